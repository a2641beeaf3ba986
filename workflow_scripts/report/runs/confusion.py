"""confusion.csv of a run, checked."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednoise_core.io import ArtifactError, read_texts


class Confusion(NamedTuple):
    """Predictions of the final models of a run for the test images of each class.

    Attributes:
        names: Of the K classes.
        counts: int64 [K, K], test images of class i predicted as class j; None where outputs of the models are not
            numbers.
    """

    names: list[str]
    counts: np.ndarray | None


def read_confusion(path: Path) -> Confusion:
    """Read a confusion.csv.

    Args:
        path: Of the file.

    Raises:
        ArtifactError: With the file's name, if it is missing or damaged.
    """
    rows = read_texts(path)
    try:
        counts = rows.iloc[:, 2:].to_numpy(np.int64)
    except ValueError as error:
        raise ArtifactError(f"{path}: damaged ({error})") from error
    k = counts.shape[1]
    if len(rows) not in (0, k):
        raise ArtifactError(f"{path}: damaged: {len(rows)} rows of {k} classes")
    return Confusion(list(rows["name"]) or [str(c) for c in range(k)], counts if len(rows) else None)

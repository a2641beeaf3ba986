"""confusion.csv of a run, checked."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednoise_core.io import ArtifactError, plain_cell

__all__ = ["Confusion", "read_confusion"]


class Confusion(NamedTuple):
    """names: of the K classes. counts: int64 [K, K], test images of class i predicted as class j; None where outputs of
    the models are no numbers.
    """

    names: list[str]
    counts: np.ndarray | None

    def shares(self) -> np.ndarray | None:
        """[K, K] in %: of the images of class i those predicted as j; NaN in the rows of classes without images."""
        if self.counts is None:
            return None
        total = self.counts.sum(1, keepdims=True)
        return np.divide(100 * self.counts, total, out=np.full(self.counts.shape, np.nan), where=total > 0)


def read_confusion(path: Path) -> Confusion:
    """Raises ArtifactError, naming the file, if it is missing or damaged."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
    except (UnicodeDecodeError, ValueError, csv.Error) as error:
        raise ArtifactError(f"{path}: damaged ({error})") from error
    k = len(head) - 2
    if head != ["class", "name", *(f"predicted_{c}" for c in range(k))] or len(rows) not in (0, k):
        raise ArtifactError(f"{path}: damaged: {len(rows)} rows under the columns {', '.join(head)[:60]}")
    names = [plain_cell(row[1]) for row in rows if len(row) > 1] or [str(c) for c in range(k)]
    try:
        if [row[0] for row in rows] not in ([], [str(c) for c in range(k)]):
            raise ValueError("the classes are not in order")
        counts = np.array([row[2:] for row in rows], np.int64).reshape(len(rows), k)
        if (counts < 0).any():
            raise ValueError("a count is negative")
    except (ValueError, IndexError) as error:
        raise ArtifactError(f"{path}: damaged ({error})") from error
    return Confusion(names, counts if rows else None)

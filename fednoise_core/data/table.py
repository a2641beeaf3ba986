"""The user's table: a CSV or Parquet file with columns of features, a label, and optionally an owner and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import MISSING, Field

from fednoise_core.data.array_checks import as_images, owners_of
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.from_user import from_user
from fednoise_core.data.images import ImageFiles
from fednoise_core.data.locate import user_path
from fednoise_core.data.settings import Dataset, OwnTest
from fednoise_core.data.splits import held_out, holdout_share
from fednoise_core.io import ArtifactError, SpecError, sha256_file

if TYPE_CHECKING:
    import pandas as pd

    from fednoise_core.data.user_values import ClassLabels

SUFFIXES = (".csv", ".parquet")
FIRST = "first_label"  # column of labels as first given


class Table(Dataset):
    """The user's CSV or Parquet file: a column of labels as collected, and numbers in all other columns.

    There may also be columns of owners, of labels as first given (first_label), and of pictures. Pictures are not used
    in training.
    """

    example: ClassVar = {"path": "mine.csv", "client": "hospital", "test": {"holdout": 0.1}}

    path: Annotated[str, Field(min_length=1, description="The file, in the working folder or below data_root.")]
    label: Annotated[str, Field(description="Column of labels: numbers or names.")] = "label"
    client: Annotated[str | MISSING, Field(description="Column of owners; default: all samples have one owner.")] = (
        MISSING
    )
    image: Annotated[
        str | MISSING,
        Field(description="Column of paths of pictures, below the file's folder, for the page; default: none."),
    ] = MISSING
    test: OwnTest = MISSING

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Features and labels of `path`.

        Raises:
            ArtifactError: the file is damaged, or a column is missing or wrong. The message names it.
            SpecError: there is no test set.
        """
        table = _read(spec, places)
        if "test" not in spec:
            raise SpecError(f"dataset table: test: {table.path} has none; let a share stand in: test: {{holdout: 0.1}}")
        labels = table.labels
        return from_user(
            spec,
            str(table.path),
            as_images("features", table.features),
            labels.numbers,
            None,
            classes=len(labels.classes),
            owners=(None, ()) if table.owners is None else owners_of(table.owners, "client"),
            names=labels.names,
            clean_known=False,
            first=table.first,
            origin=np.arange(len(labels.numbers)),
            source_sha256={table.path.name: sha256_file(table.path)},
        )

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """From the whole file."""
        labels, share = _read(spec, places).labels, holdout_share(spec)
        test_count = 0 if share is None else held_out(labels.numbers, share)
        return len(labels.numbers) - test_count, len(labels.classes), (1, 1)

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """The setting `client` names the owners."""
        return set() if "client" in spec else {"client_ids"}

    @classmethod
    def list_files(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
        """List what is read: the file."""
        return [user_path(spec, places)]


class _Columns(NamedTuple):
    path: Path
    features: np.ndarray
    labels: "ClassLabels"
    owners: np.ndarray | None
    first: np.ndarray | None


def _read(spec: Mapping[str, Any], places: Sequence[Path]) -> _Columns:
    from fednoise_core.data.user_values import number_labels, read_plain_column, read_samples  # imports pandas

    path = user_path(spec, places)
    frame = read_frame(path)
    special = {key: spec[key] for key in ("client", "image") if key in spec} | {"label": spec.get("label", "label")}
    for key, name in special.items():
        if name not in frame.columns:
            raise ArtifactError(f"{path}: {key}: it has no column {name!r}, but {', '.join(map(repr, frame.columns))}")
    try:
        firsts = frame[FIRST] if FIRST in frame.columns else None
        given = frame[special["label"]]
        features, _ = read_samples(frame.drop(columns=[*special.values(), FIRST], errors="ignore"), given)
        labels = number_labels(given, None if firsts is None else sorted({*given, *firsts}))
        first = None if firsts is None else number_labels(firsts, labels.classes.tolist()).numbers
        owners = read_plain_column(frame[special["client"]], special["client"]) if "client" in special else None
    except SpecError as error:
        raise ArtifactError(f"{path}: {error}") from error
    if not features.size:
        raise ArtifactError(f"{path}: it has no column of features beside {', '.join(special.values())}")
    return _Columns(path, features.astype(np.float32), labels, owners, first)


def read_frame(path: Path) -> "pd.DataFrame":
    """Read a CSV or Parquet file.

    Raises:
        ArtifactError: it is damaged.
    """
    import pandas as pd

    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except Exception as error:  # pandas and pyarrow each raise their own kinds
        raise ArtifactError(f"{path}: not readable as {path.suffix} ({type(error).__name__}: {error})") from error


def find_pictures(arrays: Arrays, places: Sequence[str], size: tuple[int, int]) -> ImageFiles | None:
    """Find the pictures of the samples of a table, None if it has no column of them.

    Args:
        arrays: Arrays of any data set.
        places: Folders to search for the table.
        size: Height and width of the pictures.
    """
    spec = getattr(arrays, "spec", {})  # the arrays of a site have none
    if spec.get("source") != "table" or "image" not in spec:
        return None
    path = user_path(spec, [Path(place) for place in places])
    paths = read_frame(path)[spec["image"]].astype(str)
    rows = range(arrays.n) if arrays.origin is None else arrays.origin
    return ImageFiles(path.parent, [paths[row] for row in rows], size=size)

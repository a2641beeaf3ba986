"""Decisions about labels, applied to the user's own data: an npz, a CSV of labels, or folders that are classes."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fednoise_core.data.imagefolder import classes_of_files
from fednoise_core.data.label_table import rows_of
from fednoise_core.data.splits import all_classes_occur
from fednoise_core.data.table import FIRST, read_frame
from fednoise_core.data.user_npz import hash_content, is_given
from fednoise_core.data.user_values import read_column
from fednoise_core.io import ArtifactError, open_atomic, plain_cell, read_npz, safe_cell, sha256_file, write_npz
from fednoise_core.label_errors.decisions import Decision, data_digest
from fednoise_core.settings.declare import did_you_mean

APART = ("x_test", "y_test", "x_public", "names")  # arrays of an npz that have no entry per training image
Corrected = tuple[int, list[Decision]]  # number of samples, and one decision per decided sample


def correct_npz(path: Path, out: Path, decisions: Sequence[Decision], labels: str | None = None) -> Corrected:
    """Write an npz with corrected labels. Dropped samples are removed from every array with a row per training image.

    The labels as first given are stored in `first_given`, so that the next estimate does not use corrections as
    evidence.

    Args:
        path: The npz to correct. Its other content does not change.
        out: The npz to write.
        decisions: The decisions.
        labels: Name of the array of labels. Default: the given labels, or y_train if there are none.

    Returns:
        The number of samples, and the decisions, one per decided sample.

    Raises:
        ArtifactError: The decisions were made for other rows, labels or data. Nothing is written.
    """
    arrays = read_npz(path, lambda name: True)
    key = _label_array(path, arrays, labels)
    y = arrays[key]
    if y.ndim != 1 or y.dtype.kind not in "ui":
        raise ArtifactError(f"{path}: {key} is {y.dtype} {list(y.shape)}; a vector of integers is needed")
    _check_data(path, data_digest(hash_content(arrays)), decisions)
    names, classes = _class_names(arrays)

    def find_row(decision: Decision) -> int:
        i = int(decision.source) if decision.source.isascii() and decision.source.isdecimal() else len(y)
        if i >= len(y):
            raise ArtifactError(
                f"{decision.where}: expected a row of {path}, which has {len(y)}, got {decision.source!r}"
            )
        if int(y[i]) != decision.given:
            raise ArtifactError(
                f"{decision.where}: row {i} of {path} has the label {int(y[i])} in {key}, not {decision.given}"
            )
        _check_class(path, decision, names, classes)
        return i

    chosen = _by_sample(decisions, find_row)
    before = np.unique(np.concatenate(_training_labels(arrays, np.ones(len(y), bool))))
    arrays.setdefault("first_given", y)
    arrays[key], stays = y.copy(), np.ones(len(y), bool)
    for i, decision in chosen.items():
        arrays[key][i] = decision.label if decision.decision == "relabel" else y[i]
        stays[i] = decision.decision != "drop"
    if (before >= 0).sum() == classes:  # a site of a real federation may lack some
        all_classes_occur(_training_labels(arrays, stays), classes, names, f"{path}, corrected")
    per_image = {name for name, array in arrays.items() if name not in APART and array.ndim and len(array) == len(y)}
    write_npz(out, {name: array[stays] if name in per_image else array for name, array in arrays.items()})
    return len(y), list(chosen.values())


def _training_labels(arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    return [array[rows] for name, array in arrays.items() if name == "y_train" or is_given(name)]


def _check_class(path: Path, decision: Decision, names: Sequence[str], classes: int) -> None:
    if decision.label >= classes or (names and decision.label_name != names[decision.label]):
        has = ", ".join(names[:20]) if names else f"0..{classes - 1}"
        raise ArtifactError(
            f"{decision.where}: {decision.label} {decision.label_name!r} is not a class of {path}: {has}"
        )


def _class_names(arrays: Mapping[str, np.ndarray]) -> tuple[list[str], int]:
    """Names of the classes, if there are any, and their number."""
    names = [str(name) for name in arrays["names"]] if "names" in arrays else []
    sets = [array for name, array in arrays.items() if name in ("y_train", "y_test") or is_given(name)]
    return names, len(names) or 1 + max(int(array.max(initial=0)) for array in sets)


def correct_files(path: Path, out: Path, decisions: Sequence[Decision]) -> Corrected:
    """Write a CSV of corrected labels for the setting `given` of an image folder.

    The labels as first given are stored in the column `first_label`.

    Args:
        path: Such a CSV, whose other columns are copied, or the folder itself, whose class folders are the labels.
        out: The CSV to write. A dropped image keeps its line, with yes in the column drop.
        decisions: The decisions.

    Returns:
        The number of images, and the decisions, one per decided image.

    Raises:
        ArtifactError: The decisions were made for other files, labels or data. Nothing is written.
    """
    if path.is_dir():
        columns, digest = ["file", "label"], data_digest({})
        rows = [{"file": safe_cell(name), "label": safe_cell(of)} for name, of in classes_of_files(path).items()]
    else:
        columns, lines = rows_of(path)
        rows, digest = [row for _, row in lines], data_digest({path.name: sha256_file(path)})
    if "label" not in columns:
        raise ArtifactError(f"{path}: the column label is missing. Where class folders are the labels, name the folder")
    _check_data(path, digest, decisions)
    old_labels = [plain_cell(row["label"].strip()) for row in rows]
    place = {plain_cell(row["file"]): i for i, row in enumerate(rows)} | {row["file"]: i for i, row in enumerate(rows)}
    classes = sorted({*old_labels, *_class_folders(path if path.is_dir() else path.parent)})

    def find_line(decision: Decision) -> int:
        i = place.get(decision.source)
        if i is None:
            raise ArtifactError(f"{decision.where}: {decision.source!r} is not in {path}")
        if old_labels[i] != decision.given_name:
            raise ArtifactError(
                f"{decision.where}: {decision.source} has the label {old_labels[i]!r} in {path}, "
                f"not {decision.given_name!r}"
            )
        if decision.label_name not in classes:
            raise ArtifactError(
                f"{decision.where}: {decision.label_name!r} is not a class of {path}"
                f"{did_you_mean(decision.label_name, classes)}"
            )
        return i

    chosen = _by_sample(decisions, find_line)
    for row in rows:
        row.setdefault("first_label", row["label"])
    for i, decision in chosen.items():
        if decision.decision == "relabel":
            rows[i]["label"] = safe_cell(decision.label_name)
        elif decision.decision == "drop":
            rows[i]["drop"] = "yes"
    left = {plain_cell(row["label"].strip()) for row in rows if row.get("drop", "").strip() != "yes"}
    if gone := sorted(set(old_labels) - left):
        raise ArtifactError(f"{path}, corrected: no image would be left of {gone[0]!r}")
    _write_rows(out, columns, rows)
    return len(rows), list(chosen.values())


def correct_table(path: Path, out: Path, decisions: Sequence[Decision], label: str | None = None) -> Corrected:
    """Write a table with corrected labels and without dropped rows. Other cells do not change.

    The labels as first given are stored in the column `first_label`.

    Args:
        path: A CSV or Parquet file.
        out: The file to write, of the same kind.
        decisions: The decisions.
        label: Column of labels, by default "label".

    Returns:
        The number of rows, and the decisions, one per decided row.

    Raises:
        ArtifactError: The decisions were made for other rows, labels or data. Nothing is written.
    """
    label, frame = label or "label", read_frame(path)
    if label not in frame.columns:
        raise ArtifactError(f"{path}: it has no column of labels {label!r}{did_you_mean(label, frame.columns)}")
    _check_data(path, data_digest({path.name: sha256_file(path)}), decisions)
    column = read_column(frame[label], label)
    cells = frame if path.suffix == ".parquet" else pd.read_csv(path, dtype=str, keep_default_na=False)
    cell_of = {str(value): cell for value, cell in zip(column, cells[label], strict=True)}

    def find_row(decision: Decision) -> int:
        row = int(decision.source) if decision.source.isascii() and decision.source.isdecimal() else len(frame)
        if row >= len(frame) or str(column[row]) != decision.given_name:
            raise ArtifactError(f"{decision.where}: row {decision.source} of {path} is not {decision.given_name!r}")
        if decision.label_name not in cell_of:
            raise ArtifactError(f"{decision.where}: {decision.label_name!r} is not a label of {path}")
        return row

    chosen, corrected = _by_sample(decisions, find_row), cells[label].tolist()
    for row, decision in chosen.items():
        if decision.decision == "relabel":
            corrected[row] = cell_of[decision.label_name]
    firsts = cells.get(FIRST, cells[label])
    stays = [row for row in range(len(cells)) if row not in chosen or chosen[row].decision != "drop"]
    table = cells.copy()
    table[label], table[FIRST] = corrected, firsts
    table = table.iloc[stays]
    if gone := sorted(set(map(str, cells[label])) - set(map(str, table[label]))):
        raise ArtifactError(f"{path}, corrected: no row would be left of {gone[0]!r}")
    with open_atomic(out, "wb") as file:
        if path.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, index=False, lineterminator="\n")
    return len(frame), list(chosen.values())


def _write_rows(out: Path, columns: list[str], rows: Sequence[Mapping[str, str]]) -> None:
    added = [name for name in ("first_label", "drop") if any(name in row for row in rows)]
    columns = [*columns, *(name for name in added if name not in columns)]
    with open_atomic(out) as file:
        table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _class_folders(root: Path) -> set[str]:
    return {folder.name for part in ("train", "test") for folder in root.glob(f"{part}/[!.]*/")}


def _label_array(path: Path, arrays: Mapping[str, np.ndarray], labels: str | None) -> str:
    candidates = [name for name in arrays if is_given(name) or name == "y_train"]
    sets = [name for name in candidates if is_given(name)] or ["y_train"]
    key = labels or sets[0]
    if len(sets) > 1 and labels is None:
        raise ArtifactError(f"{path}: it has several sets of given labels ({', '.join(sets)}). Name one with --labels")
    if key not in candidates:
        raise ArtifactError(f"{path}: it has no labels of training images {key!r}{did_you_mean(key, candidates)}")
    return key


def _check_data(path: Path, digest: str, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        if decision.data and decision.data != digest:
            raise ArtifactError(
                f"{decision.where}: it was decided for other data than {path} (digest {decision.data}, here {digest}): "
                "name the file that the page was made of, or make the page of this one"
            )


def _by_sample(decisions: Sequence[Decision], place: Callable[[Decision], int]) -> dict[int, Decision]:
    """Map the index of a sample to its decision. Raises ArtifactError if two lines for a sample differ."""
    chosen: dict[int, Decision] = {}
    for decision in decisions:
        before = chosen.setdefault(place(decision), decision)
        if (before.decision, before.label) != (decision.decision, decision.label):
            raise ArtifactError(f"{decision.where}: {decision.source} has another decision before ({before.where})")
    return chosen

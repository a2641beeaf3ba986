"""Decisions about labels, applied to the user's own data: an npz, a CSV of labels, or folders that are classes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fednoise_core.data.data_digest import data_digest
from fednoise_core.data.imagefolder import classes_of_files
from fednoise_core.data.npz import members
from fednoise_core.data.splits import all_classes_occur
from fednoise_core.data.user_npz import content, is_given
from fednoise_core.io import ArtifactError, atomic, plain_cell, safe_cell, sha256_file, write_npz
from fednoise_core.params import nearest

__all__ = ["Corrected", "Correction", "correct_files", "correct_npz"]

MARK = "\ufeff"  # byte order mark, by which a spreadsheet knows that a CSV is UTF-8
APART = ("x_test", "y_test", "x_public", "names")  # arrays of an npz that have no entry per training image


@dataclass(frozen=True)
class Correction:
    """One sample. where: file and line that say it, for messages; source: row of the npz or file below train/; given,
    given_name: the label that was judged; choice: keep, relabel or drop; label, label_name: the right one; data: see
    `data_digest`, "" where unknown.
    """

    where: str
    source: str
    given: int
    given_name: str
    choice: str
    label: int
    label_name: str
    data: str = ""


@dataclass(frozen=True)
class Corrected:
    """What was done: numbers of samples; notes: what else the user should know."""

    samples: int
    kept: int
    relabelled: int
    dropped: int
    notes: tuple[str, ...] = ()


def correct_npz(path: Path, out: Path, wanted: Sequence[Correction], labels: str | None = None) -> Corrected:
    """Write `out`, the npz at `path` with these labels changed and rows dropped; all else stays as it is.

    labels: the array of labels; default: the given ones, y_train where there are none. Raises ArtifactError, and
    writes nothing, if a row, a label or the data are not those that the decisions are about.
    """
    found = members(path, lambda name: True)
    key = _label_array(path, found, labels)
    y = found[key]
    if y.ndim != 1 or y.dtype.kind not in "ui":
        raise ArtifactError(f"{path}: {key} is {y.dtype} {list(y.shape)}; a vector of integers is needed")
    _check_data(path, data_digest(content(found)), wanted)
    names = [str(name) for name in found["names"]] if "names" in found else []
    sets = [array for name, array in found.items() if name in ("y_train", "y_test") or is_given(name)]
    classes = len(names) or 1 + max(int(array.max(initial=0)) for array in sets)

    def row(one: Correction) -> int:
        i = int(one.source) if one.source.isascii() and one.source.isdecimal() else len(y)
        if i >= len(y):
            raise ArtifactError(f"{one.where}: {one.source!r} is no row of {path}, which has {len(y)}")
        if int(y[i]) != one.given:
            raise ArtifactError(f"{one.where}: row {i} of {path} has the label {int(y[i])} in {key}, not {one.given}")
        if one.label >= classes or (names and one.label_name != names[one.label]):
            has = ", ".join(names[:20]) if names else f"0..{classes - 1}"
            raise ArtifactError(f"{one.where}: {one.label} {one.label_name!r} is no class of {path}: {has}")
        return i

    chosen = _by_sample(wanted, row)
    new, stays = y.copy(), np.ones(len(y), bool)
    for i, one in chosen.items():
        new[i] = one.label if one.choice == "relabel" else y[i]
        stays[i] = one.choice != "drop"
    left = [array if name != key else new for name, array in found.items() if name == "y_train" or is_given(name)]
    all_classes_occur([array[stays] for array in left], classes, names, f"{path}, corrected")
    write_npz(out, _rows_left({**found, key: new}, stays))
    others = [name for name in found if name not in APART and not is_given(name) and len(np.shape(found[name]))]
    others = [name for name in others if name not in ("x_train", "y_train", "client") and len(found[name]) == len(y)]
    dropped = not stays.all() and others
    notes = (f"rows were dropped from {', '.join(others)}, too, which have as many",) if dropped else ()
    return _told(len(y), chosen, notes)


def correct_files(path: Path, out: Path, wanted: Sequence[Correction]) -> Corrected:
    """Write `out`, a CSV as `given` of an image folder takes it. path: such a CSV, all of whose columns stay; or the
    folder itself, whose class folders are the labels. A dropped image keeps its line and says yes in the column drop.

    Raises ArtifactError, and writes nothing, if a file, a label or the data are not those that the decisions are about.
    """
    if path.is_dir():
        if not (path / "train").is_dir():
            raise ArtifactError(f"{path}: it has no folder train/")
        columns, ends, mark = ["file", "label"], "\n", ""
        rows = [{"file": safe_cell(name), "label": safe_cell(of)} for name, of in classes_of_files(path).items()]
        digest = data_digest({})
    else:
        columns, rows, ends, mark = _table(path)
        digest = data_digest({path.name: sha256_file(path)})
    _check_data(path, digest, wanted)
    given = [plain_cell(row["label"].strip()) for row in rows]
    place = {plain_cell(row["file"]): i for i, row in enumerate(rows)} | {row["file"]: i for i, row in enumerate(rows)}
    known = sorted({*given, *_folders(path if path.is_dir() else path.parent)})

    def line(one: Correction) -> int:
        i = place.get(one.source)
        if i is None:
            raise ArtifactError(f"{one.where}: {one.source!r} is not in {path}")
        if given[i] != one.given_name:
            raise ArtifactError(
                f"{one.where}: {one.source} has the label {given[i]!r} in {path}, not {one.given_name!r}"
            )
        if one.label_name not in known:
            raise ArtifactError(
                f"{one.where}: {one.label_name!r} is no class of {path}{nearest(one.label_name, known)}"
            )
        return i

    chosen = _by_sample(wanted, line)
    for i, one in chosen.items():
        if one.choice == "relabel":
            rows[i]["label"] = safe_cell(one.label_name)
        elif one.choice == "drop":
            rows[i]["drop"] = "yes"
    left = {plain_cell(row["label"].strip()) for row in rows if (row.get("drop") or "").strip() != "yes"}
    if gone := sorted(set(given) - left):
        raise ArtifactError(f"{path}, corrected: no image would be left of {gone[0]!r}")
    if any("drop" in row for row in rows) and "drop" not in columns:
        columns = [*columns, "drop"]
    with atomic(out) as file:
        file.write(mark)
        table = csv.DictWriter(file, columns, restval="", lineterminator=ends)
        table.writeheader()
        table.writerows(rows)
    return _told(len(rows), chosen)


def _label_array(path: Path, found: Mapping[str, np.ndarray], labels: str | None) -> str:
    sets = [name for name in found if is_given(name)]
    if labels is not None:
        if labels not in found:
            raise ArtifactError(f"{path}: --labels: it has no array {labels!r}{nearest(labels, sorted(found))}")
        return labels
    if len(sets) > 1:
        raise ArtifactError(f"{path}: it has several sets of given labels ({', '.join(sets)}); name one with --labels")
    if not sets and "y_train" not in found:
        raise ArtifactError(f"{path}: it has neither y_train nor given labels")
    return sets[0] if sets else "y_train"


def _check_data(path: Path, digest: str, wanted: Sequence[Correction]) -> None:
    for one in wanted:
        if one.data and one.data != digest:
            raise ArtifactError(
                f"{one.where}: it was decided for other data than {path} (digest {one.data}, here {digest}): name the "
                "file that the page was made of, or make the page of this one"
            )


def _by_sample(wanted: Sequence[Correction], place: Callable[[Correction], int]) -> dict[int, Correction]:
    """Place of a sample -> its correction. Raises ArtifactError if two lines say different things about one."""
    chosen: dict[int, Correction] = {}
    for one in wanted:
        i = place(one)
        before = chosen.setdefault(i, one)
        if (before.choice, before.label) != (one.choice, one.label):
            raise ArtifactError(f"{one.where}: {one.source} was decided otherwise before ({before.where})")
    return chosen


def _rows_left(found: Mapping[str, np.ndarray], stays: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays without the dropped rows: of every array that has one for each training image."""
    if stays.all():
        return dict(found)
    return {
        name: array[stays] if name not in APART and array.ndim and len(array) == len(stays) else array
        for name, array in found.items()
    }


def _table(path: Path) -> tuple[list[str], list[dict[str, str]], str, str]:
    """(columns, rows, how lines end, byte order mark or ""): what was not decided shall not differ."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            first = file.readline()
            ends, mark = "\r\n" if first.endswith("\r\n") else "\n", MARK if first.startswith(MARK) else ""
            file.seek(0)
            file.read(len(mark))
            table = csv.DictReader(file)
            rows = list(table)
            columns = list(table.fieldnames or ())
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArtifactError(f"{path}: no CSV in UTF-8 ({error})") from error
    if not {"file", "label"} <= set(columns):
        cure = "where class folders are the labels, name the image folder"
        raise ArtifactError(f"{path}: the columns file and label are needed, it has {', '.join(columns)}; {cure}")
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ArtifactError(f"{path}, row {number}: not as many cells as the first line has")
    return columns, rows, ends, mark


def _folders(root: Path) -> Iterable[str]:
    found = [entry for part in ("train", "test") if (root / part).is_dir() for entry in (root / part).iterdir()]
    return [entry.name for entry in found if entry.is_dir() and not entry.name.startswith(".")]


def _told(n: int, chosen: Mapping[int, Correction], notes: tuple[str, ...] = ()) -> Corrected:
    choices = [one.choice for one in chosen.values()]
    return Corrected(n, choices.count("keep"), choices.count("relabel"), choices.count("drop"), notes)

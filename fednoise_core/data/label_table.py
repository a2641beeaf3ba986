"""The user's CSV beside folders of images: which label was given to a file, and who owns it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, plain_cell
from fednoise_core.params import nearest

__all__ = ["Table", "columns_of", "read_table"]

LONGEST = 200  # letters of a class or an owner: all are stored at the length of the longest


@dataclass(frozen=True)
class Table:
    """One entry per image, in the order of the images. labels: class names or None; owners: texts or None; dropped:
    whether the column drop says yes, which leaves the image out.
    """

    path: Path
    labels: list[str] | None
    owners: list[str] | None
    dropped: list[bool]

    def kept(self) -> Table:
        """The same without the lines of images that are dropped."""
        labels, owners = (self._of_kept(texts) for texts in (self.labels, self.owners))
        return Table(self.path, labels, owners, [False] * self.dropped.count(False))

    def _of_kept(self, texts: list[str] | None) -> list[str] | None:
        return None if texts is None else [text for text, gone in zip(texts, self.dropped, strict=True) if not gone]


def columns_of(path: Path) -> set[str]:
    """Names of the columns. Raises ArtifactError unless there is file, and label or client."""
    columns = _rows(path)[0]
    if "file" not in columns or not columns & {"label", "client"}:
        has = ", ".join(sorted(columns))
        raise ArtifactError(f"{path}: the columns file and label (or client, or both) are needed; it has {has}")
    return columns


def read_table(path: Path, images: Sequence[str], known: Sequence[str] | None = None) -> Table:
    """The lines of the CSV in the order of `images` (paths below train/): each has one, and nothing else has.

    known: the classes that there are; default: those that the labels name. Cells may come as spreadsheets keep
    them (`io.plain_cell`). Raises ArtifactError naming file and line.
    """
    columns = columns_of(path)
    dropped = [False] * len(images)
    place = {name: i for i, name in enumerate(images)}
    labels, owners, lines = [""] * len(images), [""] * len(images), [0] * len(images)
    for line, row in _rows(path)[1]:
        where = f"{path}, line {line}"
        name = row["file"] or ""
        i = place.get(name, place.get(plain_cell(name)))
        if i is None:
            raise ArtifactError(f"{where}: train/{name} does not exist")
        if lines[i]:
            raise ArtifactError(f"{where}: {name} comes twice")
        labels[i], owners[i] = (plain_cell((row.get(column) or "").strip()) for column in ("label", "client"))
        lines[i] = line
        if (word := (row.get("drop") or "").strip()) not in ("", "no", "yes"):
            raise ArtifactError(f"{where}: drop {word[:40]!r}: yes, no or nothing is needed")
        dropped[i] = word == "yes"
        for column, text in (("label", labels[i]), ("client", owners[i])):
            if column in columns and not (text.strip() and text.isprintable() and len(text) <= LONGEST):
                cure = f"a text of one line is needed, {LONGEST} letters at most"
                raise ArtifactError(f"{where}: {column} {(row[column] or '')[:40]!r}: {cure}")
        if known is not None and "label" in columns and labels[i] not in known:
            raise ArtifactError(f"{where}: {labels[i]!r} is no class folder{nearest(labels[i], known)}")
    if 0 in lines:
        what = "label" if "label" in columns else "line"
        raise ArtifactError(f"{path}: no {what} for train/{images[lines.index(0)]}")
    return Table(path, labels if "label" in columns else None, owners if "client" in columns else None, dropped)


def _rows(path: Path) -> tuple[set[str], list[tuple[int, dict[str, Any]]]]:
    """(column names, (line number, row) of every row) of the CSV. Raises ArtifactError naming the file and line."""
    rows: csv.DictReader[str] | None = None
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            return set(rows.fieldnames or ()), [(rows.line_num, row) for row in rows]
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except csv.Error as error:  # such as a field of more than 128 KiB: a quote that is not closed
        line = rows.line_num + 1 if rows is not None else 1
        raise ArtifactError(f"{path}, line {line}: {error}") from error

"""The user's CSV of labels and owners for folders of images."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fednoise_core.io import ArtifactError, plain_cell, raise_all
from fednoise_core.settings.declare import did_you_mean

COLUMNS = ("file", "label", "client", "first_label", "drop")  # further columns are ignored
LONGEST = 200  # longest name of a class or owner; all names are stored at the length of the longest name


class Line(NamedTuple):
    """Line of an image. label, owner and first are None if the CSV has no such column."""

    file: str
    label: str | None
    owner: str | None
    first: str | None = None


def read_table(path: Path, images: Sequence[str], classes: Sequence[str] | None, folder: Path) -> list[Line]:
    """Read the lines of the CSV in the order of `images`. Images with yes in the column drop are left out.

    Args:
        path: the CSV. Its cells may be marked for spreadsheets (`io.safe_cell`).
        images: paths below `folder`, which must have one line each.
        classes: the allowed classes. None: all labels that occur are classes.
        folder: the folder of the images.

    Raises:
        ArtifactError: lines are missing or wrong. The message names the file and these lines.
    """
    columns, rows = rows_of(path)
    there, lines, dropped, problems = set(images), dict[str, Line](), set(), list[str]()
    named = set()  # also by a row that is wrong
    for number, row in rows:
        name = row["file"] if row["file"] in there else plain_cell(row["file"])
        try:
            if name not in there:
                raise ArtifactError(f"file: {name[:60]!r} does not exist below {folder}")
            if name in named:
                raise ArtifactError(f"{name} comes twice")
            named.add(name)
            lines[name], is_dropped = _read_line(name, row, columns, classes)
        except ArtifactError as error:
            problems.append(f"{path}, line {number}: {error}")
        else:
            dropped |= {name} if is_dropped else set()
    missing = (name for name in images if name not in named)
    problems += [f"{path}: no {'label' if 'label' in columns else 'line'} for {folder / name}" for name in missing]
    raise_all(ArtifactError, problems)
    if len(dropped) == len(images):
        raise ArtifactError(f"{path}: drop: every image is left out")
    return [lines[name] for name in images if name not in dropped]


def _read_line(
    name: str, row: Mapping[str, str], columns: Sequence[str], classes: Sequence[str] | None
) -> tuple[Line, bool]:
    """Read the line of an image. Return it, and whether the image is left out."""
    texts = {key: _read_text(row, key) for key in ("label", "client", "first_label") if key in columns}
    line = Line(name, texts.get("label"), texts.get("client"), texts.get("first_label"))
    if classes is not None and line.label is not None and line.label not in classes:
        raise ArtifactError(f"{line.label!r} is no class folder{did_you_mean(line.label, classes)}")
    if (word := row.get("drop", "").strip()) not in ("", "no", "yes"):
        raise ArtifactError(f"drop: expected yes, no or nothing, got {word[:40]!r}")
    return line, word == "yes"


def _read_text(row: Mapping[str, str], key: str) -> str:
    text = plain_cell(row[key].strip())
    if text and text.isprintable() and len(text) <= LONGEST:
        return text
    cure = f"expected a text of one line, {LONGEST} letters at most"
    raise ArtifactError(f"{key}: {cure}, got {row[key][:40]!r}")


def rows_of(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The rows of the CSV.

    Args:
        path: a UTF-8 file with the column file, and label or client or both.

    Returns:
        The column names, and (line number, row) of every row.

    Raises:
        ArtifactError: the file cannot be read, or a column is missing. The message names the file and the line.
    """
    columns, rows, line, too_long = list[str](), [], 1, list[str]()
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file, restval="")
            columns = list(table.fieldnames or ())
            if twice := next((name for name in columns if columns.count(name) > 1), None):
                raise ArtifactError(f"{path}, line 1: the column {twice[:40]!r} comes twice; remove or rename one")
            for row in table:
                line = table.line_num
                if None in row:
                    too_long.append(f"{path}, line {line}: more cells than the first line has")
                rows.append((line, row))
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except csv.Error as error:  # such as a field of more than 128 KiB: a quote that is not closed
        raise ArtifactError(f"{path}, line {line + 1}: {error}") from error
    if "file" not in columns or not {"label", "client"} & set(columns):
        has = ", ".join(map(repr, columns))[:LONGEST]
        raise ArtifactError(f"{path}: the columns file and label (or client, or both) are needed; it has {has}")
    raise_all(ArtifactError, too_long)
    return columns, rows

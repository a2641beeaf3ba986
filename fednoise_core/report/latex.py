"""Grids as LaTeX tables that fit a paper in two columns, with letters of 8 pt and decimals below each other."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from fednoise_core.report.cells import Cell, Grid, GridRow
from fednoise_core.report.texts import latex_text as tex
from fednoise_core.report.texts import unbroken

__all__ = ["latex"]

# Points: one column of a paper in two, and both; a letter or digit of 8 pt on average; the space between columns.
COLUMN, PAGE, LETTER, GAP = 238, 480, 4.4, 6
HEAD = 12  # letters at which a head is broken, unless its numbers are wider
LINES = 58  # of 9.6 points on a page of 9 inches, below a caption of three lines
CAPTION = 1.3  # a caption's letters are larger than a note's
HEAD_LINES = 4  # of each part besides its levels: rules, a head of several lines, the space between parts
SPREAD = " ± "
Piece = tuple[range, list[GridRow]]  # columns and rows of one tabular
NUMBER = re.compile(r"[−-]?[\d\u202f,]+(\.\d+)?\Z")


def latex(table: Grid, label: str) -> str:
    r"""A table in one column of the text if it fits, else in both (`table*`); one that is wider still goes on below, in
    as many parts as it needs, and one that is higher than a page in further floats of the same number. Needs the
    package booktabs. Means and spreads are columns of their own, each aligned.
    """
    parts, narrow = _parts(table)
    environment = "table" if narrow else "table*"
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\providecommand{\best}[1]{{\fontseries{b}\selectfont #1}}% bold digits as wide as the others",
    ]
    for number, (pieces, notes) in enumerate(_floats(table, parts, narrow)):
        first = number == 0
        lines += [
            rf"\begin{{{environment}}}" if first else rf"\begin{{{environment}}}\addtocounter{{table}}{{-1}}",
            r"\centering",
            rf"\caption{{{tex(table.title)}{'. ' + tex(table.caption) if first else ', continued.'}}}",
            *([rf"\label{{tab:{label}}}"] if first else []),
            rf"\fontsize{{8}}{{9.6}}\selectfont\setlength{{\tabcolsep}}{{{GAP // 2}pt}}",
        ]
        for place, (part, rows) in enumerate(pieces):
            lines += [r"\par\medskip"] if place else []
            lines += _tabular(replace(table, rows=rows), part)
        told = [rf"{{\raggedright\fontsize{{8}}{{9.6}}\selectfont {tex(note)}\par}}" for note in notes]
        lines += ["", *([r"\medskip"] if told else []), *told, rf"\end{{{environment}}}", ""]
    return "\n".join(lines)


def _floats(table: Grid, parts: list[range], narrow: bool) -> list[tuple[list[Piece], list[str]]]:
    """Pieces and notes of each float, none higher than a page. Notes that do not fit below the last piece have floats
    of their own.
    """
    wide = (COLUMN if narrow else PAGE) / LETTER
    head = len(table.levels) + HEAD_LINES
    found: list[tuple[list[Piece], list[str]]] = [([], [])]
    used = long = max(0, math.ceil(len(f"{table.title}. {table.caption}") / wide * CAPTION) - 3)
    for piece in [(part, rows) for part in parts for rows in _pages(table.rows, LINES - head - long)]:
        height = head + len(piece[1])
        if found[-1][0] and used + height > LINES:
            found.append(([], []))
            used = 0
        found[-1][0].append(piece)
        used += height
    if used + sum(math.ceil(len(note) / wide) for note in table.notes) > LINES:
        found.append(([], []))
        used = 0
    for note in table.notes:
        height = math.ceil(len(note) / wide)
        if found[-1][1] and used + height > LINES:
            found.append(([], []))
            used = 0
        found[-1][1].append(note)
        used += height
    return found


def _pages(rows: Sequence[GridRow], room: int) -> list[list[GridRow]]:
    """Rows in pieces of at most `room`. A method's rows stay together; a group that goes on has its heading again."""
    found: list[list[GridRow]] = [[]]
    group: list[GridRow] = []
    for block in _blocks(rows):
        group = block[:1] if block[0].style == "group" else group
        if found[-1] and len(found[-1]) + len(block) > room:
            found.append([] if block[0].style in ("group", "ceiling") else list(group))
        found[-1] += block
    return found


def _blocks(rows: Sequence[GridRow]) -> list[list[GridRow]]:
    """Rows that stand together: a method's own and those of the paper below it, a heading and what follows it."""
    found: list[list[GridRow]] = []
    for row in rows:
        if found and (row.style == "printed" or (len(found[-1]) == 1 and found[-1][0].style == "group")):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _parts(table: Grid) -> tuple[list[range], bool]:
    """The columns that stand beside each other, and whether all fit one column of the text."""
    heads = _heads(table)
    stubs = [len(row.stub) + 2 * (row.style == "printed") for row in table.rows if row.style != "group"]
    stub = LETTER * max([len(table.stub), *stubs]) + GAP
    widths = []
    for column in range(table.width):
        texts = [row.cells[column].text for row in table.rows if row.cells]
        cell = max((len(text) for text in texts), default=0)
        head = max((len(line) for line in _broken(heads[column], cell).split("\n")), default=0)
        widths.append(LETTER * max(cell, head) + GAP)
    if stub + sum(widths) <= COLUMN:
        return [range(table.width)], True
    parts, start, used = [], 0, stub
    for column, width in enumerate(widths):
        if used + width > PAGE and column > start:
            parts.append(range(start, column))
            start, used = column, stub
        used += width
    return [*parts, range(start, table.width)], False


def _heads(table: Grid) -> list[str]:
    """The lowest head of each column."""
    return [text for text, span in table.levels[-1] for _ in range(span)]


def _broken(text: str, cell: int) -> str:
    return textwrap.fill(unbroken(text), max(cell, HEAD), break_long_words=False, break_on_hyphens=False)


def _tabular(table: Grid, part: range) -> list[str]:
    """The lines of one tabular: the first column, and those of `part`."""
    double = {c: any(row.cells and SPREAD in row.cells[c].text for row in table.rows) for c in part}
    columns = "l" + "".join("r@{}l" if double[c] else "r" for c in part)
    total = 1 + sum(2 if double[c] else 1 for c in part)
    digits = {c: max((_whole(row.cells[c].text) for row in table.rows if row.cells), default=1) for c in part}
    head = _header(table, part, double)
    body: list[str] = []
    before = ""
    for row in table.rows:
        if row.style == "group":
            text = tex(row.stub)
            body += [r"\midrule"] * bool(body) + [rf"\multicolumn{{{total}}}{{l}}{{\emph{{{text}}}}} \\"]
        else:
            body += [r"\midrule"] * (bool(body) and row.style == "ceiling" and before != "ceiling")
            cells = [_cell(row.cells[c], double[c], digits[c]) for c in part]
            body.append(" & ".join([_first(row), *cells]) + r" \\")
        before = row.style
    return [
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _header(table: Grid, part: range, double: dict[int, bool]) -> list[str]:
    lines = []
    for place, level in enumerate(table.levels):
        last = place == len(table.levels) - 1
        owner = [(number, text) for number, (text, span) in enumerate(level) for _ in range(span)]
        cells, rules, start = [tex(table.stub) if last else ""], [], 2
        for (_, text), group in groupby(part, key=owner.__getitem__):
            inside = list(group)
            span = sum(2 if double[c] else 1 for c in inside)
            wide = max((len(row.cells[inside[0]].text) for row in table.rows if row.cells), default=0) if last else 99
            stacked = r" \\ ".join(tex(line) for line in _broken(text, wide).split("\n"))
            shown = rf"\shortstack{{{stacked}}}" if r"\\" in stacked else stacked
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{shown}}}" if span > 1 else shown)
            rules += [rf"\cmidrule(lr){{{start}-{start + span - 1}}}"] if text and len(inside) > 1 else []
            start += span
        lines.append(" & ".join(cells) + r" \\")
        lines += ["".join(rules)] if rules and not last else []
    return lines


def _whole(text: str) -> int:
    """Digits before the point of a cell's spread."""
    found = re.search(rf"{SPREAD}([\d\u202f]+)", text)
    return len(found[1]) if found else 1


def _cell(cell: Cell, double: bool, digits: int) -> str:
    mean, _, spread = cell.text.partition(SPREAD)

    def shown(text: str) -> str:
        return rf"\best{{{tex(text)}}}" if cell.bold else tex(text)

    if not double:
        return shown(cell.text)
    if spread:
        room = rf"\phantom{{{'0' * (digits - _whole(cell.text))}}}" if digits > _whole(cell.text) else ""
        return rf"{shown(mean)} & \,$\pm$\,{room}{shown(spread)}"
    return rf"{shown(mean)} &" if NUMBER.match(mean) else rf"\multicolumn{{2}}{{c}}{{{shown(mean)}}}"


def _first(row: GridRow) -> str:
    r"""A row's first cell: after the \\ of the row above, LaTeX would take a [ or * for that command's argument."""
    text = rf"\quad {tex(row.stub)}" if row.style == "printed" else tex(row.stub)
    return f"{{}}{text}" if text[:1] in ("[", "*") else text

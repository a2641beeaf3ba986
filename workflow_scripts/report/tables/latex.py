"""Grids as LaTeX tables for a paper in two columns: means and spreads aligned, shrunk to the page where too large."""

import textwrap
from collections.abc import Sequence
from itertools import groupby

from workflow_scripts.report.text.cells import Cell, Grid, GridRow
from workflow_scripts.report.text.escape import keep_numbers_whole
from workflow_scripts.report.text.escape import latex_text as tex

SPREAD = " ± "
NARROW = 3  # largest number of columns for a table in one of the page's two columns
HEAD = 14  # characters after which a head is broken
COMMANDS = r"""% needs \usepackage{booktabs,graphicx}
\providecommand{\best}[1]{{\fontseries{b}\selectfont #1}}% bold digits as wide as the others
\providecommand{\fitted}[1]{\sbox0{#1}%
  \ifdim\wd0>\linewidth\sbox0{\resizebox{\linewidth}{!}{\usebox0}}\fi
  \ifdim\dimexpr\ht0+\dp0\relax>.7\textheight\sbox0{\resizebox*{!}{.7\textheight}{\usebox0}}\fi\usebox0}"""


def render_latex(table: Grid, label: str) -> str:
    """Render a table as LaTeX. The document needs booktabs and graphicx.

    A table with few columns takes one column of the text. Other tables take both (`table*`). The font size is 8 pt. A
    table that is wider or higher than the page is shrunk to fit.

    Args:
        table: The result of `registry.lay_out_table`.
        label: The part after `tab:`, for references.
    """
    environment = "table" if table.width <= NARROW else "table*"
    spread = [any(row.cells and SPREAD in row.cells[c].text for row in table.rows) for c in range(table.width)]
    lines = [
        COMMANDS,
        rf"\begin{{{environment}}}",
        r"\centering",
        rf"\caption{{{tex(table.title)}. {tex(table.caption)}}}",
        rf"\label{{tab:{label}}}",
        r"\fontsize{8}{9.6}\selectfont\setlength{\tabcolsep}{3pt}",
        r"\fitted{%",
        rf"\begin{{tabular}}{{@{{}}l{''.join('r@{}l' if with_spread else 'r' for with_spread in spread)}@{{}}}}",
        r"\toprule",
        *_header_rows(table, spread),
        r"\midrule",
        *_body_rows(table.rows, spread),
        r"\bottomrule",
        r"\end{tabular}}",
        "",
        *[r"\medskip"] * bool(table.notes),
        *(rf"{{\raggedright {tex(note)}\par}}" for note in table.notes),
        rf"\end{{{environment}}}",
        "",
    ]
    return "\n".join(lines)


def _header_rows(table: Grid, spread: Sequence[bool]) -> list[str]:
    lines = []
    for level in table.levels:
        last = level is table.levels[-1]
        cells, rules, start, column = [tex(table.stub) if last else ""], [], 2, 0
        for text, span in level:
            width = span + sum(spread[column : column + span])
            wrapped = textwrap.wrap(keep_numbers_whole(text), HEAD, break_long_words=False, break_on_hyphens=False)
            head = r" \\ ".join(map(tex, wrapped)) if last else tex(text)
            head = rf"\shortstack{{{head}}}" if r"\\" in head else head
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{head}}}" if width > 1 else head)
            rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if text and span > 1 else []
            start, column = start + width, column + span
        lines.append(" & ".join(cells) + r" \\")
        lines += ["".join(rules)] if rules and not last else []
    return lines


def _body_rows(rows: Sequence[GridRow], spread: Sequence[bool]) -> list[str]:
    """The rows, with a rule above each group and above those set apart."""
    lines: list[str] = []
    width = 1 + len(spread) + sum(spread)
    for style, block in groupby(rows, key=lambda row: row.style if row.style in ("group", "ceiling") else ""):
        lines += [r"\midrule"] * (bool(lines) and style != "")
        for row in block:
            if row.cells:
                cells = (_render_cell(cell, with_spread) for cell, with_spread in zip(row.cells, spread, strict=True))
                lines.append(" & ".join([_render_stub(row), *cells]) + r" \\")
            else:
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{tex(row.stub)}}}}} \\")
    return lines


def _render_cell(cell: Cell, with_spread: bool) -> str:
    """Render a cell. With `with_spread` it takes two columns, for the mean and the spread."""
    parts = [rf"\best{{{tex(part)}}}" if cell.bold else tex(part) for part in cell.text.split(SPREAD)]
    if not with_spread:
        return parts[0]
    if len(parts) > 1:
        return rf"{parts[0]} & \,$\pm$\,{parts[1]}"
    return f"{parts[0]} &" if cell.text[:1].isdigit() else rf"\multicolumn{{2}}{{c}}{{{parts[0]}}}"


def _render_stub(row: GridRow) -> str:
    r"""Render a row's first cell. LaTeX would read a [ or * after the \\ of the row above as an argument of \\."""
    text = {"printed": r"\quad %s", "own": r"\textbf{%s}"}.get(row.style, "%s") % tex(row.stub)
    return f"{{}}{text}" if text[:1] in ("[", "*") else text

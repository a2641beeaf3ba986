"""Grids as Markdown."""

from collections.abc import Sequence

from workflow_scripts.report.text.cells import Cell, Grid
from workflow_scripts.report.text.escape import markdown_text as md


def render_markdown(table: Grid) -> str:
    """Render a table in GitHub Markdown, with its caption and notes. Texts from settings are escaped.

    Header lines are joined by commas, since Markdown has only one header line.

    Args:
        table: The result of `registry.lay_out_table`.
    """
    heads = [
        ", ".join(word for word in parts if word)
        for parts in zip(*([text for text, span in level for _ in range(span)] for level in table.levels), strict=True)
    ]
    lines = [
        f"**{md(table.title)}.** {md(table.caption)}",
        "",
        _render_row([table.stub, *map(md, heads)]),
        _render_row(["---", *["--:"] * len(heads)]),
    ]
    for row in table.rows:
        stub = {"own": "**{}**", "group": "*{}*", "ceiling": "*{}*", "printed": "&nbsp;&nbsp;{}"}.get(row.style, "{}")
        cells = row.cells or [Cell("")] * len(heads)
        texts = (f"**{md(cell.text)}**" if cell.bold else md(cell.text) for cell in cells)
        lines.append(_render_row([stub.format(md(row.stub)), *texts]))
    return "\n".join([*lines, "", *(f"{md(note)}  " for note in table.notes), ""])


def _render_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

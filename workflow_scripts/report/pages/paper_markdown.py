"""A paper's page as Markdown, for docs/results: the same sections as the HTML page (`PaperParts`)."""

from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from workflow_scripts.report.pages.assets import ASSETS
from workflow_scripts.report.pages.paper_sections import PaperParts
from workflow_scripts.report.text.escape import markdown_text


def render_section(name: str, paper: PaperParts, *values: Any) -> str:
    """A part of the page: a macro of `assets/paper.md`.

    Args:
        name: "first" (the paper, the scale, the scoreboard, and what our numbers say), "top" (the claims), "ranks" (the
            reproduction at a glance) or "end" (what is cut, settings with who says so, one cell again, and where each
            number comes from).
        paper: The sections.
        values: Of "first" the figure, as Markdown; of "end" the CSV with a row for each run.
    """
    environment = Environment(
        loader=FileSystemLoader(ASSETS), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["md"] = markdown_text
    return str(getattr(environment.get_template("paper.md").module, name)(paper, *values))

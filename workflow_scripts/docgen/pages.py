"""The generated parts of docs/: each stands between `<!-- generated: WHAT -->` and `<!-- end -->`."""

import re
from collections.abc import Callable
from pathlib import Path

from workflow_scripts.docgen import gallery, methods_table, references, settings_tables
from workflow_scripts.docgen.python_api import describe_name
from workflow_scripts.provenance.step_code import ROOT

PART = re.compile(r"<!-- generated: (\S+)( without members)? -->\n.*?<!-- end -->\n", re.DOTALL)
PARTS: dict[str, Callable[[], str]] = {
    "settings": settings_tables.format_tables,
    "methods": methods_table.format_table,
    "gallery": gallery.list_figures,
    "references": references.list_references,
}


def fill_page(text: str) -> str:
    """Make the generated parts of a page anew."""
    return PART.sub(_fill_part, text)


def list_pages() -> list[Path]:
    """Pages that have generated parts."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in pages if PART.search(page.read_text(encoding="utf-8"))]


def _fill_part(part: re.Match[str]) -> str:
    what, brief = part[1], part[2] or ""
    text = PARTS[what]() if what in PARTS else describe_name(what, members=not brief)
    return f"<!-- generated: {what}{brief} -->\n\n{text.strip()}\n\n<!-- end -->\n"

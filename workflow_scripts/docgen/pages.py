"""The generated parts of docs/, each between the lines `<!-- generated: WHAT -->` and `<!-- end -->`.

WHAT is a key of `PARTS`, `leaderboard:ID` for the results of the method with this id, or a name of the Python API.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from workflow_scripts.docgen import references, settings_tables
from workflow_scripts.docgen.python_api import describe_name
from workflow_scripts.provenance.step_code import ROOT
from workflow_scripts.report.text.cells import format_interval

PAGES = ROOT / "docs/methods"
BOARD = "leaderboard:"
HEAD = """\
| method | what it changes | traffic | client state | passes | also needs |
|---|---|---|---|--:|---|
"""
PART = re.compile(r"<!-- generated: (\S+)( without members)? -->\n.*?<!-- end -->\n", re.DOTALL)


def read_facts(name: str) -> dict[str, Any]:
    """Read the front matter of a method's page: method, changes, traffic, client_state, passes, and maybe needs."""
    _, front, _ = (PAGES / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front)


def list_methods() -> str:
    """Return a table in Markdown with one row for each registered method."""
    methods = yaml.safe_load((ROOT / "config/schema/method.yaml").read_text(encoding="utf-8"))
    return HEAD + "".join(_row(name, **read_facts(name)) for name in methods)


def _row(name: str, method: str, changes: str, traffic: str, client_state: str, passes: int, needs: str = "–") -> str:
    cells = (f"[{method}]({name}.md) `{name}`", changes, traffic, client_state, passes, needs)
    return f"| {' | '.join(map(str, cells))} |\n"


def describe_result(method: str) -> str:
    """Describe the published results of the method with this id on the leaderboard."""
    page = "[leaderboard](../results/leaderboard/README.md)"
    files = sorted((ROOT / "docs/results/leaderboard").glob("main*.csv"), key=lambda file: len(file.name))
    texts = [_describe_ranks(frame, method) for frame in map(pd.read_csv, files) if method in set(frame["method"])]
    if not texts:
        return f"Not run on the {page} yet."
    return f"Compared with tuned FedAvg on the {page}:\n\n{''.join(texts)}"


def _describe_ranks(frame: pd.DataFrame, method: str) -> str:
    """Describe the ranks of a method on a board that has rows of it."""
    row = frame[frame["method"] == method].iloc[0]
    compared = row[["ahead", "behind", "undecided"]].sum()
    verdicts = (
        f"- {row['dataset_label']}: {row['method_label']} is ahead in {row['ahead']} of {compared} settings and behind "
        f"in {row['behind']}."
    )
    if pd.isna(row["rank"]):
        why = "In the others it was not compared" if compared < row["of_settings"] else "Runs of it are missing"
        return f"{verdicts} {why}, so it has no rank.\n"
    gain, ranked = format_interval(row, "mean_gain"), frame["rank"].notna().sum()
    return f"{verdicts} Its mean gain is {gain} points and its mean rank {row['rank']:.1f} of {ranked}.\n"


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings_tables.format_tables,
    "methods": list_methods,
    "references": references.list_references,
}


def fill_page(text: str) -> str:
    """Replace the generated parts of a page."""
    return PART.sub(_fill_part, text)


def list_pages() -> list[Path]:
    """Pages that have generated parts."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in pages if PART.search(page.read_text(encoding="utf-8"))]


def _fill_part(part: re.Match[str]) -> str:
    name, brief = part[1], part[2] or ""
    if name.startswith(BOARD):
        text = describe_result(name.removeprefix(BOARD))
    else:
        text = PARTS[name]() if name in PARTS else describe_name(name, members=not brief)
    return f"<!-- generated: {name}{brief} -->\n\n{text.strip()}\n\n<!-- end -->\n"

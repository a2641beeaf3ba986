"""docs/results/papers.md: a line for each paper and scale that was published, from the claims.csv beside its page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fednoise_core.io import atomic
from fednoise_core.report.claims import STATES, state
from fednoise_core.report.csv_files import read_texts
from fednoise_core.report.result_figures.scoreboard import HELD
from fednoise_core.report.texts import markdown_text

__all__ = ["write"]

HEAD = """# The papers: claims that were run

A claim of a paper is judged by the columns of the paper's table that were run. It agrees if our numbers bear it out in
all of them, disagrees if in none, and is mixed otherwise. Scale `paper` is the paper's own size; each page says what
another scale cuts. Made by `python -m workflow_scripts.publish`.

| paper | scale | claims | agree | mixed | disagree | not run |
| --- | --- | --: | --: | --: | --: | --: |
"""


def write(results: Path) -> Path:
    """Write papers.md into the folder of published results; returns its path."""
    lines = [_line(file, results) for file in sorted(results.rglob("claims.csv"))]
    page = results / "papers.md"
    with atomic(page) as opened:
        opened.write(HEAD + "".join(lines))
    return page


def _line(file: Path, results: Path) -> str:
    """The line of a published folder."""
    rows = read_texts(file)
    found = [_state(group) for _, group in rows.groupby(["table", "claim"], sort=False)]
    counts = [len(found), *(found.count(name) for name in STATES)]
    page = file.with_name("README.md").relative_to(results).as_posix()
    title = (file.with_name("README.md").read_text(encoding="utf-8").splitlines() or [""])[0].removeprefix("# ")
    scale = rows["scale"].iloc[0] if len(rows) else ""
    return f"| [{title or markdown_text(file.parent.name)}]({page}) | `{scale}` | {' | '.join(map(str, counts))} |\n"


def _state(rows: pd.DataFrame) -> str:
    return state(HELD.get(word) for word in rows["ours"])

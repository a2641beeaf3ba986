"""The README's summary of the papers' reproduction, from what is published under docs/results.

A line for each paper at its own scale, whether anything was run or not, and one for each other scale that is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pandas as pd

from fednoise_core.report.cells import MISSING
from fednoise_core.report.csv_files import read_csv, read_texts
from fednoise_core.report.reproduction import JUDGED, KEYS
from fednoise_core.report.scorecard import Score, score
from workflow_scripts.config_file import read_yaml

__all__ = ["table"]

PAPERS, RESULTS = Path("config/papers"), Path("docs/results")
HEADS = ("paper", "scale", "cells", "run", *JUDGED, "Spearman’s ρ", "claims that hold", "that do not", "open")


def table(folder: Path = Path()) -> str:
    """The table in Markdown, for the project in `folder`. A cell published twice at a scale counts once, with the run
    of more seeds. Raises ArtifactError or SpecError for a damaged file.
    """
    lines = [_line(HEADS), _line(["---", "---", *["--:"] * (len(HEADS) - 2)])]
    for file in sorted((folder / PAPERS).glob("*.yaml")):
        specs = _reproductions(read_yaml(file))
        printed = sum(_printed(folder, spec) for spec in specs.values())
        published = _published(folder, file.stem, specs)
        for scale in ["paper", *sorted({*published} - {"paper"})]:
            shown = published.get(scale, {})
            scores = [score(frame, specs[name]) for name, frame in shown.items()]
            ran = sum(_ran(frame) for frame in shown.values())
            links = _links(folder, file.stem, scale) if scale in published else ""
            lines.append(_row(f"`{file.stem}`{links}", scale, printed, ran, reduce(add, scores) if scores else None))
    return "\n".join(lines) + "\n"


def _row(name: str, scale: str, printed: int, ran: int, found: Score | None) -> str:
    if found is None:
        return _line([name, scale, f"{printed:,}", "0", *[MISSING] * (len(JUDGED) + 4)])
    verdicts = map(str, found.judged) if scale == "paper" else [MISSING] * len(JUDGED)
    return _line([name, scale, f"{printed:,}", f"{ran:,}", *verdicts, found.ranks_words(), *map(str, found.held)])


def _reproductions(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: spec for name, spec in data["tables"].items() if spec["kind"] == "reproduction"}


def _printed(folder: Path, spec: Mapping[str, Any]) -> int:
    """How many numbers the paper's table has that can be read and placed."""
    rows = read_texts(folder / spec["reference"]["file"])
    rows = rows[(rows["method"] != "") & (rows["mean"] != "")]
    number = spec["reference"].get("table")
    return len(rows if number is None else rows[rows["table"] == str(number)])


def _ran(frame: pd.DataFrame) -> int:
    """How many of those numbers have a run of ours beside them."""
    return int(((frame["paper"] == "printed") & ~frame["verdict"].str.startswith("not run")).sum())


def _published(folder: Path, paper: str, specs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, pd.DataFrame]]:
    """Scale → table → its frame, for the tables of a paper that were published."""
    parts: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for place in _folders(folder, paper):
        for name in specs:
            if (place / f"{name}.csv").is_file():
                frame = read_csv(place / f"{name}.csv")
                parts.setdefault((str(frame["scale"].iloc[0]), name), []).append(frame)
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for (scale, name), frames in parts.items():
        whole = pd.concat(frames).sort_values("seeds", ascending=False, kind="stable").drop_duplicates(KEYS)
        found.setdefault(scale, {})[name] = whole
    return found


def _folders(folder: Path, paper: str) -> list[Path]:
    """The published results of a paper: <paper> or <paper>-<scale>, at any depth below docs/results."""
    found = [path.parent for path in (folder / RESULTS).rglob("README.md")]
    return sorted(path for path in found if path.name == paper or path.name.startswith(f"{paper}-"))


def _links(folder: Path, paper: str, scale: str) -> str:
    """Links to the pages of a paper at a scale."""
    found = []
    for place in _folders(folder, paper):
        tables = [read_texts(path) for path in sorted(place.glob("table*.csv"))]
        if any("verdict" in one and scale in set(one["scale"]) for one in tables):
            found.append(f"[page]({place.relative_to(folder).as_posix()}/README.md)")
    return f" {', '.join(found)}" if found else ""


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"

"""What the page of a paper has besides a study's: its reproduction at a glance, claims, who says so of each setting,
deviations, how to make one cell again, and where each number comes from. Here as plain values; `paper.html` and
`paper_markdown.py` show them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pandas as pd

from fednoise_core.report.cells import MISSING, number
from fednoise_core.report.csv_files import csv_text, read_csv
from fednoise_core.report.origins import origins
from fednoise_core.report.reproduction import JUDGED
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.scorecard import Score, score

__all__ = ["PaperParts", "paper_parts"]

LISTED = 500  # runs shown in the page; beyond, the CSV inside it is the list
PARTS_OF_CELL = ("dataset", "noise", "partition", "method", "seed")


LEGEND = "“paper”: the paper says so. “code”: published code does. “our choice”: neither says."


@dataclass(frozen=True)
class PaperParts:
    """The sections of a paper's page. Tables are (heads, rows of texts).

    scale: what the runs are of. summary: a row a table, and one of all. claims: table, claim, ours, the paper's own.
    settings: who says so, in the words of `legend`. changes: what the scale changes. differs: rows of the paper's
    own tables of settings where we have another value. notes: sentences on deviations. examples: commands. origin:
    `origins.origins`.
    """

    scale: str
    legend: str
    summary: tuple[list[str], list[list[str]]]
    claims: tuple[list[str], list[list[str]]]
    settings: tuple[list[str], list[list[str]]]
    changes: tuple[list[str], list[list[str]]]
    differs: tuple[list[str], list[list[str]]]
    notes: list[str]
    examples: list[str]
    origin: pd.DataFrame = field(repr=False)

    @property
    def origin_csv(self) -> str:
        """All of `origin` as CSV."""
        return csv_text(self.origin)

    @property
    def origin_rows(self) -> tuple[list[str], list[list[str]]]:
        """The same in words, a run a row; none where a page would drown in them."""
        heads = ["table", "run", "accuracy, %", "spec digest", "code hash", "device", "versions", "once more"]
        rows = []
        for row in self.origin.to_dict("records"):
            accuracy = "diverged" if pd.isna(row["accuracy"]) else number(row["accuracy"], 2)
            cell = "/".join(str(row[key]) for key in PARTS_OF_CELL)
            rest = [str(row[key]) for key in ("digest", "code", "device", "versions", "command")]
            rows.append([str(row["table"]), cell, accuracy, *rest])
        return heads, rows if len(rows) <= LISTED else []


def paper_parts(study: Mapping[str, Any], runs: Sequence[RecordedRun], root: str | Path) -> PaperParts | None:
    """The sections of a study that is a paper's (has `paper`), from its tables' CSVs below `root`; else None."""
    if "paper" not in study:
        return None
    told, scale = study["paper"], str(study.get("scale") or "paper")
    frames = {
        name: read_csv(Path(root) / "tables" / f"{name}.csv")
        for name, spec in study["tables"].items()
        if spec["kind"] in ("reproduction", "setup")
    }
    made = origins(study, runs)
    scores = {
        name: score(frames[name], spec) for name, spec in study["tables"].items() if spec["kind"] == "reproduction"
    }
    titles = {name: str(spec.get("title") or name) for name, spec in study["tables"].items()}
    return PaperParts(
        scale=scale,
        legend=LEGEND,
        summary=_summary(scores, titles, scale),
        claims=_claims(scores, titles),
        settings=_settings(told["settings"], scale),
        changes=(
            ["setting", "paper", f"scale {scale}"],
            [[row["name"], row["value"], row["scaled"]] for row in told["changes"]],
        ),
        differs=_differs({name: frame for name, frame in frames.items() if name not in scores}, study["tables"]),
        notes=_notes(told, scale),
        examples=_examples(made),
        origin=made,
    )


def _summary(scores: Mapping[str, Score], titles: Mapping[str, str], scale: str) -> tuple[list[str], list[list[str]]]:
    """Verdicts only at paper scale: elsewhere there are none."""
    at_paper = scale == "paper"
    middle = ["run", *JUDGED, "other"] if at_paper else [f"run, scale {scale}"]
    heads = ["table", "cells", *middle, "not run", "Spearman’s ρ", "claims that hold", "that do not", "open"]
    rows = [_row(titles[name], one, at_paper) for name, one in scores.items()]
    if len(scores) > 1:
        rows.append(_row("all", reduce(add, scores.values()), at_paper))
    return heads, rows


def _row(title: str, one: Score, at_paper: bool) -> list[str]:
    whole, ran = sum(one.cells.values()), one.ran
    middle = [ran, *one.judged, ran - sum(one.judged)] if at_paper else [ran]
    counts = [f"{count:,}" for count in (whole, *middle, whole - ran)]
    return [title, *counts, one.ranks_words(), *(str(count) for count in one.held)]


def _claims(scores: Mapping[str, Score], titles: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [titles[name].split(":")[0], says, ours, theirs]
        for name, one in scores.items()
        for says, ours, theirs in one.claims
    ]
    return ["table", "claim", "by our numbers", "by the paper’s own"], rows


def _settings(rows: Sequence[Mapping[str, str]], scale: str) -> tuple[list[str], list[list[str]]]:
    heads = ["of", "setting", "value", "who says so", "note"]
    shown = [[row["part"], row["name"], row["value"], row["says"] or MISSING, row["note"]] for row in rows]
    if scale == "paper":
        return heads, shown
    values = [row["scaled"] or "the same" for row in rows]
    return [*heads[:3], f"at scale {scale}", *heads[3:]], [
        [*one[:3], value, *one[3:]] for one, value in zip(shown, values, strict=True)
    ]


def _differs(
    frames: Mapping[str, pd.DataFrame], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """Where a table of the paper names a setting of which this study has another value."""
    rows = []
    for name, frame in frames.items():
        heads = specs[name].get("heads", {})
        for row in frame.to_dict("records"):
            if row["ours"] and not _same(row["paper"], row["ours"]):
                rows.append(
                    [name, row["parameter"], heads.get(row["column"], row["column"]), row["paper"], row["ours"]]
                )
    return ["table", "setting", "of", "paper", "here"], rows


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.lower() == other.lower()


def _notes(told: Mapping[str, Any], scale: str) -> list[str]:
    said = []
    if told["absent"]:
        said.append(f"Not here, as only the user can supply it: {', '.join(told['absent'])}. Its cells are not run.")
    who = Counter(part for row in told["settings"] for part in row["says"].split(", ") if part)
    if who["our choice"]:
        said.append(
            f"{who['our choice']} settings are our choice, as neither the paper nor published code says them: they are "
            "marked so in the table of settings, with what speaks for them."
        )
    if scale != "paper":
        said.append(
            f"Scale {scale} is smaller than the paper's experiment, in all that the table of changes lists. Its "
            "numbers are no counterpart of the paper's; ranks and claims alone are compared."
        )
    pages = ", ".join(f"docs/methods/{name}.md" for name in told["methods"])
    said.append(f"Where an algorithm differs from its paper or from published code, its page says so: {pages}.")
    return said


def _examples(made: pd.DataFrame) -> list[str]:
    """The first run of each table."""
    return [str(command) for command in made.drop_duplicates("table")["command"]]

"""What a table of a paper comes to: cells by verdict, rank correlations, and its claims, judged."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fednoise_core.report.cells import MISSING, number
from fednoise_core.report.claims import HOLDS, NOT_HELD, NOT_RUN, chosen, judge
from fednoise_core.report.reproduction import JUDGED, KEYS, VERDICTS, rank_correlation

__all__ = ["Score", "column_ranks", "of_paper", "score"]

PARTLY = re.compile(rf"{NOT_RUN} in full \(holds (in \d+ of \d+ columns)\)")  # as `claims.judge` says it


@dataclass(frozen=True)
class Score:
    """cells: how many have which verdict (`reproduction.VERDICTS`). ranks: Spearman's ρ of each column that has one.
    claims: (in words, by our numbers, by the paper's own), both last as `claims.judge` says it.
    """

    scale: str
    cells: Counter[str]
    ranks: list[float] = field(default_factory=list)
    claims: list[tuple[str, str, str]] = field(default_factory=list)

    def __add__(self, other: Score) -> Score:
        scale = self.scale if self.scale == other.scale else f"{self.scale}, {other.scale}"
        return Score(scale, self.cells + other.cells, [*self.ranks, *other.ranks], [*self.claims, *other.claims])

    @property
    def ran(self) -> int:
        """Cells with a number of ours, or with runs that diverged."""
        return sum(count for name, count in self.cells.items() if not name.startswith("not run"))

    @property
    def judged(self) -> list[int]:
        """Cells within 2 σ, within 2 points, apart."""
        return [self.cells[name] for name in JUDGED]

    @property
    def held(self) -> tuple[int, int, int]:
        """Claims that hold, that do not, and those with a number missing."""
        words = [ours for _, ours, _ in self.claims]
        holds, fails = words.count(HOLDS), sum(word.startswith(NOT_HELD) for word in words)
        return holds, fails, len(words) - holds - fails

    def cells_words(self) -> str:
        """ "4 other scale, 56 not run"."""
        return ", ".join(f"{self.cells[name]} {name}" for name in VERDICTS if self.cells[name])

    def ranks_words(self) -> str:
        """The median over the columns, from the lowest to the highest, and of how many."""
        if not self.ranks:
            return MISSING
        if len(self.ranks) == 1:
            return f"{number(self.ranks[0], 2)} (1 column)"
        low, high, middle = min(self.ranks), max(self.ranks), float(pd.Series(self.ranks).median())
        return f"{number(middle, 2)} ({number(low, 2)} to {number(high, 2)}, {len(self.ranks)} columns)"


def score(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Score:
    """The score of a reproduction table, from its frame (`tables.build`, or its CSV) and its spec."""
    claims = [(claim["says"], judge(frame, claim), of_paper(frame, claim)) for claim in spec.get("claims", ())]
    scale = str(frame["scale"].iloc[0]) if len(frame) else str(spec.get("scale", "paper"))
    found = [value for value, _ in column_ranks(frame).values() if not math.isnan(value)]
    return Score(scale, Counter(frame["verdict"]), found, claims)


def of_paper(frame: pd.DataFrame, claim: Mapping[str, Any]) -> str:
    """What the paper's own numbers say of a claim. A number that is missing cannot be read, or the paper has no such
    cell: "not in paper" where that is so of all that are missing.
    """
    words = judge(frame, claim, "paper")
    rows = chosen(frame, claim)
    named = {name for key in ("above", "within", "costs", "leads", "widens", "among") for name in claim.get(key, ())}
    if named:
        rows = rows[rows["method"].isin({*named, claim.get("best")})]
    gone = rows[rows["paper_mean"].isna()]
    none = not len(gone) or bool((gone["paper"] == "absent").all())
    if words == NOT_RUN:
        return "not in paper" if none else "unreadable"
    others = "are not in the paper" if none else "cannot be read"
    held = PARTLY.fullmatch(words)
    if held:
        return f"{HOLDS} {held[1]}, the others {others}"
    return words.replace("that were run", "that are in the paper" if none else "that can be read")


def column_ranks(frame: pd.DataFrame) -> dict[tuple[str, ...], tuple[float, int]]:
    """Column (data set, noise, partition, member) → Spearman's ρ of our methods' ranks with the paper's (NaN: too few),
    and of how many methods. Runs without noise beside noisy ones are no column.
    """
    found = {}
    columns = [key for key in KEYS if key != "method"]
    for ids, rows in frame[frame["ceiling"] == 0].groupby(columns, sort=False):
        both = int((rows["ours_mean"].notna() & rows["paper_mean"].notna()).sum())
        value = rank_correlation(list(rows["ours_mean"]), list(rows["paper_mean"]))
        found[tuple(map(str, ids))] = (value, both)
    return found

"""What a table of a paper comes to: cells by verdict, rank correlations, and its claims, judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fednoise_core.report.tables.claims import STATES, Claim, judged
from fednoise_core.report.tables.reproduction import JUDGED, KEYS, rank_correlation
from fednoise_core.report.text.cells import MISSING, number

__all__ = ["Score", "column_ranks", "score", "states_words"]


@dataclass(frozen=True)
class Score:
    """cells: how many have which verdict (`reproduction.VERDICTS`). ranks: Spearman's ρ of each column that has one."""

    scale: str
    cells: Counter[str]
    ranks: list[float] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

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
    def states(self) -> list[int]:
        """Claims that agree, are mixed, disagree, were not run."""
        found = Counter(claim.state for claim in self.claims)
        return [found[name] for name in STATES]

    def ranks_words(self) -> str:
        """The median over the columns, from the lowest to the highest, and of how many."""
        if not self.ranks:
            return MISSING
        if len(self.ranks) == 1:
            return f"{number(self.ranks[0], 2)} (1 column)"
        low, high, middle = min(self.ranks), max(self.ranks), float(pd.Series(self.ranks).median())
        return f"{number(middle, 2)} ({number(low, 2)} to {number(high, 2)}, {len(self.ranks)} columns)"


def states_words(claims: Iterable[Claim]) -> str:
    """ "Of 10 claims, judged by the columns that were run: agrees 6, mixed 2, disagrees 1, not run 1."."""
    found = Counter(claim.state for claim in claims)
    words = ", ".join(f"{name} {found[name]}" for name in STATES if found[name])
    whole = sum(found.values())
    return f"Of {whole} claims, judged by the columns that were run: {words}." if whole else "No claim is judged here."


def score(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Score:
    """The score of a reproduction table, from its frame (`tables.build`, or its CSV) and its spec."""
    claims = [judged(frame, claim) for claim in spec.get("claims", ())]
    scale = str(frame["scale"].iloc[0]) if len(frame) else str(spec.get("scale", "paper"))
    found = [value for value, _ in column_ranks(frame).values() if not math.isnan(value)]
    return Score(scale, Counter(frame["verdict"]), found, claims)


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

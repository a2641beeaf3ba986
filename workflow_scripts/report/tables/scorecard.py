"""Comparison of a paper's numbers with ours: verdicts on cells, and for a table their counts and rank correlations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from workflow_scripts.report.tables.claims import NOT_RUN, STATES, Claim
from workflow_scripts.report.text.cells import MISSING, format_number

POINTS = 2.0  # percentage points; smaller differences count as near, whatever the spread
KEYS = ["dataset", "noise", "partition", "method", "member"]
JUDGED = ("within 2 σ", "within 2 points", "apart")
VERDICTS = (
    *JUDGED,
    "diverged",
    "no number",
    "paper unreadable",
    "not in paper",
    "run",
    "not run",
    "not run (data absent)",
)
LEAST_RANKED = 3  # methods; two would give a rank correlation of only 1 or -1


def compare_numbers(ours: tuple[float, float], paper: tuple[float, float]) -> str:
    """Compare two numbers: "within 2 σ", else "within 2 points", else "apart".

    σ² is the sum of both variances, if both are known. Means that are equal within rounding are never apart.

    Args:
        ours: Our mean and standard deviation in %. An unknown deviation is NaN.
        paper: Mean and standard deviation of the paper, in the same form.
    """
    apart, spread = abs(ours[0] - paper[0]), math.hypot(ours[1], paper[1])  # NaN if one is unknown
    if apart <= 2 * spread:
        return "within 2 σ"
    return "within 2 points" if apart <= POINTS else "apart"


@dataclass(frozen=True)
class Score:
    """Summary of a table. cells: number of the paper's cells by verdict (VERDICTS).

    ranks: Spearman's ρ of each column that has one.
    """

    cells: Counter[str]
    ranks: list[float] = field(default_factory=list)

    def __add__(self, other: Score) -> Score:
        return Score(self.cells + other.cells, [*self.ranks, *other.ranks])

    @property
    def ran(self) -> int:
        """Cells with a number of ours, or with runs that diverged."""
        return sum(count for name, count in self.cells.items() if not name.startswith("not run"))

    def ranks_words(self) -> str:
        """Describe the rank correlations: median, lowest and highest, and the number of columns."""
        if not self.ranks:
            return MISSING
        if len(self.ranks) == 1:
            return f"{format_number(self.ranks[0], 2)} (1 column)"
        values = float(pd.Series(self.ranks).median()), min(self.ranks), max(self.ranks)
        middle, low, high = (format_number(value, 2) for value in values)
        return f"{middle} ({low} to {high}, {len(self.ranks)} columns)"


def count_states(claims: Iterable[Claim]) -> Counter[str]:
    """Count the claims in each of STATES and NOT_RUN, by the reading of the tables."""
    return Counter(claim.state for claim in claims if not claim.reading)


def states_words(claims: Iterable[Claim]) -> str:
    """Count the claims in each state and give their numbers, as a sentence.

    Args:
        claims: The claims, with verdicts. They may be of several tables.
    """
    chosen = [claim for claim in claims if not claim.reading]
    counts = count_states(chosen)
    if not counts:
        return "No claim is judged here."
    left = counts[NOT_RUN]
    if left == counts.total():
        return f"None of the paper's {left} claims was run."
    ran = counts.total() - left
    numbers = {state: ", ".join(str(claim.number) for claim in chosen if claim.state == state) for state in STATES}
    states = "; ".join(f"{state} {counts[state]}{f' (no. {of})' if of else ''}" for state, of in numbers.items())
    return f"Of the paper's {counts.total()} claims {ran} {'has' if ran == 1 else 'have'} a verdict: {states}."


def score_table(frame: pd.DataFrame) -> Score:
    """Summarize a reproduction table.

    Args:
        frame: The table's frame, or the frame that was read from its CSV.
    """
    correlations = [value for value, _ in column_ranks(frame).values() if not math.isnan(value)]
    return Score(count_verdicts(frame), correlations)


def count_verdicts(frame: pd.DataFrame) -> Counter[str]:
    """Count the verdicts on the cells that the paper has.

    Args:
        frame: Of a reproduction table.
    """
    return Counter(frame.loc[frame["paper"] != "absent", "verdict"])


def column_ranks(frame: pd.DataFrame) -> dict[tuple[str, ...], tuple[float, int]]:
    """Rank correlation of our methods with the paper's, by column. Runs without noise beside noisy ones are left out.

    Args:
        frame: Of a reproduction table.

    Returns:
        (data set, noise, partition, member) -> Spearman's ρ (Spearman, 1904), and the number of methods. ρ is NaN
        for fewer than LEAST_RANKED methods, or if all of our means or all of the paper's means are equal.
    """
    ranks = {}
    columns = [key for key in KEYS if key != "method"]
    for ids, rows in frame[frame["ceiling"] == 0].groupby(columns, sort=False):
        pairs = rows[["ours_mean", "paper_mean"]].dropna()
        value = float(pairs.corr("spearman", min_periods=LEAST_RANKED).to_numpy()[0, 1])
        ranks[tuple(map(str, ids))] = (value, len(pairs))
    return ranks

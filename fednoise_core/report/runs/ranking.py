"""Which methods are the best of a setting: what tables set in bold, and what a page and the terminal say of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.text.footnotes import NO_MEMBERS, merge_marks

TIE = (
    "its mean is lower by no more than the best one's standard deviation over seeds, "
    "or √2 times the median deviation of the methods compared there"
)


def find_baseline(runs: Sequence[RecordedRun]) -> str | None:
    """Find the id of plain FedAvg among the runs, which the others are compared with.

    Returns:
        The id, that with the fewest settings if there are several, or None.
    """
    found = {run.listed.method: run.spec.get("method", {}) for run in runs}
    plain = [method for method, spec in found.items() if spec.get("name", method) == "fedavg"]
    return min(plain, key=lambda method: len(found[method])) if plain else None


def is_compared(marks: Iterable[Any]) -> bool:
    """Whether a method is compared with the others: it needs nothing that a federation cannot have.

    Args:
        marks: Texts of marks of its runs.
    """
    return not set(merge_marks(marks)) & set(NO_MEMBERS)


def compared_rows(block: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of a setting that are compared.

    They have a mean, and no rate of their own that happens to be the setting's (`as_told`).

    Args:
        block: Rows of an accuracy table's frame, of one setting.
        metric: One of `run.METRICS`.
    """
    told = block["as_told"] > 0 if "as_told" in block else False
    return block[block["marks"].map(lambda marks: is_compared([marks])) & ~told & block[f"{metric}_mean"].notna()]


def best_methods(block: pd.DataFrame, metric: str, digits: int) -> set[str]:
    """Ids of the best of a setting, by `tied_best`. None where there is nothing to compare.

    Args:
        block: As for `compared_rows`.
        metric: One of `run.METRICS`.
        digits: Decimals with which equal means tie.
    """
    found = compared_rows(block, metric)
    columns = (found["method"], found[f"{metric}_mean"], found[f"{metric}_std"])
    scores = {str(method): (float(mean), float(std)) for method, mean, std in zip(*columns, strict=True)}
    return set(tied_best(scores, digits))


def tied_best(scores: Mapping[str, tuple[float, float]], digits: int) -> list[str]:
    """The method with the highest mean, and all that tie with it, the highest mean first.

    None for fewer than two methods: one alone is not the best.

    A tie is a difference of no more than the best one's own deviation, or √2 times the median deviation of all: that
    of a difference between two usual methods, so that two seeds which happen to agree make no winner, and two which
    lie far apart lift no poor method. Means that are equal with `digits` decimals tie, too. An unknown deviation (NaN,
    one seed) counts as 0.
    """
    if len(scores) < 2:
        return []
    ranked = sorted(scores, key=lambda method: -scores[method][0])
    top, spread = scores[ranked[0]]

    known = [0 if math.isnan(std) else std for _, std in scores.values()]
    wide = max(0 if math.isnan(spread) else spread, math.sqrt(2) * statistics.median(known)) + 1e-9

    def ties(mean: float) -> bool:
        return top - mean <= wide or round(top, digits) == round(mean, digits)

    return [method for method in ranked if ties(scores[method][0])]

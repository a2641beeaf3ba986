"""A paper's claims about a table, checked on numbers: ours, or the paper's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

__all__ = ["HOLDS", "NOT_HELD", "NOT_RUN", "chosen", "judge"]

HOLDS, NOT_HELD, NOT_RUN = "holds", "does not hold", "not run"
COLUMN = ["dataset", "noise", "partition", "member"]
ROUNDING = 1e-9  # points: means of two decimals that differ by a limit are not beyond it
Found = tuple[int, int, int]  # columns in which a claim holds, does not, has a number missing


def judge(frame: pd.DataFrame, claim: Mapping[str, Any], whose: str = "ours") -> str:
    """ "holds", "does not hold" or "not run", with how many columns say so where that is not all.

    frame: of a reproduction table; whose: "ours", or "paper", whose missing numbers nobody can read. A claim about
    every column fails with the first that speaks against it; it holds only if every column has all its numbers.
    """
    rows = chosen(frame, claim)
    counts = _widens(rows, claim, whose) if "widens" in claim else _in_columns(rows, claim, whose)
    return _words(*counts)


def chosen(frame: pd.DataFrame, claim: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the columns that a claim is about."""
    rows = frame[(frame["ceiling"] == 0) & (frame["member"] == "")]
    for key in ("datasets", "noises", "partitions"):
        if key in claim:
            rows = rows[rows[key.removesuffix("s")].isin(claim[key])]
    return rows


def _words(held: int, failed: int, missing: int) -> str:
    whole = held + failed + missing
    if failed and missing:
        return f"{NOT_HELD} (in {failed} of {held + failed} columns that were run, of {whole})"
    if failed:
        return NOT_HELD if failed == whole else f"{NOT_HELD} (in {failed} of {whole} columns)"
    if missing or not held:
        return NOT_RUN if missing == whole or not held else f"{NOT_RUN} in full (holds in {held} of {whole} columns)"
    return HOLDS


def _in_columns(rows: pd.DataFrame, claim: Mapping[str, Any], whose: str) -> Found:
    counts = [0, 0, 0]
    for _, column in rows.groupby(COLUMN, sort=False):
        says = _column(dict(zip(column["method"], column[f"{whose}_mean"], strict=True)), claim)
        counts[2 if says is None else 0 if says else 1] += 1
    return counts[0], counts[1], counts[2]


def _column(means: Mapping[str, float], claim: Mapping[str, Any]) -> bool | None:
    """Whether a claim holds in one column; None: a number is missing."""
    points = float(claim.get("points", 0))
    if "best" in claim:
        rivals = claim.get("among") or [name for name in means if name != claim["best"]]
        return _all(_above(means, claim["best"], other, 0) for other in rivals if other != claim["best"])
    if "above" in claim:
        return _all(_above(means, *pair, points) for pair in pairwise(claim["above"]))
    kind = next(name for name in ("costs", "leads", "within") if name in claim)
    lead = _lead_in(means, *claim[kind])
    if math.isnan(lead):
        return None
    if kind == "costs":
        return -lead <= points + ROUNDING
    return 0 < lead <= float(claim["at_most"]) + ROUNDING if kind == "leads" else abs(lead) <= points + ROUNDING


def _lead_in(means: Mapping[str, float], first: str, second: str) -> float:
    """By how much the first is above the second; NaN: a number is missing."""
    return means.get(first, math.nan) - means.get(second, math.nan)


def _above(means: Mapping[str, float], first: str, second: str, points: float) -> bool | None:
    lead = _lead_in(means, first, second)
    return None if math.isnan(lead) else lead > 0 if points == 0 else lead >= points - ROUNDING


def _all(found: Any) -> bool | None:
    """False if one is False, else None if one is unknown, else True."""
    said = list(found)
    return False if False in said else None if None in said or not said else True


def _widens(rows: pd.DataFrame, claim: Mapping[str, Any], whose: str) -> Found:
    """Counted by data set and by the part that does not vary."""
    along: Sequence[str] = claim["along"]
    axis = "noise" if set(along) & set(rows["noise"]) else "partition"
    counts = [0, 0, 0]
    for _, block in rows.groupby([name for name in COLUMN if name != axis], sort=False):
        means = block.set_index([axis, "method"])[f"{whose}_mean"]
        leads = [_lead(means, one, claim["widens"]) for one in along]
        if any(map(math.isnan, leads)):
            counts[2] += 1
        else:
            counts[0 if all(b > a for a, b in pairwise(leads)) else 1] += 1
    return counts[0], counts[1], counts[2]


def _lead(means: pd.Series, where: str, pair: Sequence[str]) -> float:
    return float(means.get((where, pair[0]), math.nan)) - float(means.get((where, pair[1]), math.nan))

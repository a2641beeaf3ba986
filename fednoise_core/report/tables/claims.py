"""A paper's claims about a table, judged by the columns that have numbers: ours, or the paper's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from fednoise_core.report.text.cells import settings_of

__all__ = ["AGREES", "DISAGREES", "MIXED", "NOT_RUN", "STATES", "Claim", "columns", "counted", "judged", "state"]

AGREES, MIXED, DISAGREES, NOT_RUN = STATES = ("agrees", "mixed", "disagrees", "not run")
COLUMN = ["dataset", "noise", "partition", "member"]
ROUNDING = 1e-9  # points: means of two decimals that differ by a limit are not beyond it
CONCERNS = ("above", "within", "costs", "leads", "widens", "among")  # keys of a claim that list methods

Column = tuple[str, ...]
"""Ids of data set, noise, partition and client; "" for the part along which a lead widens."""


@dataclass(frozen=True)
class Claim:
    """A claim, judged. ours, theirs: column in words → whether our numbers and the paper's bear the claim out there;
    None: a number is missing. keys: the columns by their ids, in the same order.
    """

    id: str
    says: str
    ours: dict[str, bool | None]
    theirs: dict[str, bool | None]
    keys: list[Column]
    missing: str
    """Why the paper's own numbers are missing where they are: "unreadable", or "not in the paper"."""

    @property
    def state(self) -> str:
        """One of STATES."""
        return state(self.ours.values())

    @property
    def counted(self) -> str:
        """In how many columns our numbers agree."""
        return counted(self.ours.values())

    @property
    def against(self) -> list[str]:
        """The columns in which our numbers disagree."""
        return [words for words, holds in self.ours.items() if holds is False]

    @property
    def in_paper(self) -> str:
        """In how many columns the paper's own numbers bear the claim out."""
        known = [holds for holds in self.theirs.values() if holds is not None]
        if not known:
            return self.missing
        gone = len(self.theirs) - len(known)
        return counted(known) + (f", {gone} {self.missing}" if gone else "")


def judged(frame: pd.DataFrame, claim: Mapping[str, Any]) -> Claim:
    """Judge a claim on the frame of a reproduction table."""
    ours, theirs = (columns(frame, claim, whose) for whose in ("ours", "paper"))
    words = _words(frame, ours)
    return Claim(
        str(claim.get("id", "")),
        str(claim["says"]),
        {words[key]: holds for key, holds in ours.items()},
        {words[key]: theirs[key] for key in ours},
        list(ours),
        _missing(frame, claim),
    )


def state(held: Iterable[bool | None]) -> str:
    """What the columns that have their numbers say together; one of STATES."""
    known = [holds for holds in held if holds is not None]
    return NOT_RUN if not known else AGREES if all(known) else MIXED if any(known) else DISAGREES


def counted(held: Iterable[bool | None]) -> str:
    """ "11 of 12 columns", of those that have their numbers; "3 of 4 columns run, of 12" where others lack them."""
    whole = list(held)
    known = [holds for holds in whole if holds is not None]
    if not known:
        return f"0 of {len(whole)} column{'s' * (len(whole) != 1)}"
    words = f"{sum(known)} of {len(known)} column{'s' * (len(known) != 1)}"
    return words if len(known) == len(whole) else f"{words} run, of {len(whole)}"


def columns(frame: pd.DataFrame, claim: Mapping[str, Any], whose: str = "ours") -> dict[Column, bool | None]:
    """Column → whether the claim holds there by the numbers of `whose` ("ours", "paper"); None: a number is missing."""
    rows = _chosen(frame, claim)
    if "widens" in claim:
        return _widens(rows, claim, whose)
    found = {
        tuple(map(str, ids)): _column(dict(zip(part["method"], part[f"{whose}_mean"], strict=True)), claim)
        for ids, part in rows.groupby(COLUMN, sort=False)
    }
    return {(*setting, ""): found[*setting, ""] for setting in settings_of(rows)}  # in the order of the shown table


def _chosen(frame: pd.DataFrame, claim: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the columns that a claim is about."""
    rows = frame[(frame["ceiling"] == 0) & (frame["member"] == "")]
    for key in ("datasets", "noises", "partitions"):
        if key in claim:
            rows = rows[rows[key.removesuffix("s")].isin(claim[key])]
    return rows


def _words(frame: pd.DataFrame, keys: Iterable[Column]) -> dict[Column, str]:
    """Columns in words: the parts that vary in the table, or all of them if none does."""
    rows, parts = frame[frame["ceiling"] == 0], COLUMN[:3]
    vary = [part for part in parts if rows[part].nunique() > 1]
    labels = {part: dict(zip(rows[part], rows.get(f"{part}_label", rows[part]), strict=True)) for part in parts}
    found = {}
    for key in keys:
        named = {part: str(labels[part][one]) for part, one in zip(parts, key, strict=False) if one}
        found[key] = " · ".join([named[part] for part in vary if part in named] or named.values())
    return found


def _missing(frame: pd.DataFrame, claim: Mapping[str, Any]) -> str:
    rows = _chosen(frame, claim)
    if named := {name for key in CONCERNS for name in claim.get(key, ())}:
        rows = rows[rows["method"].isin({*named, claim.get("best")})]
    gone = rows[rows["paper_mean"].isna()]
    return "not in the paper" if not len(gone) or bool((gone["paper"] == "absent").all()) else "unreadable"


def _column(means: Mapping[str, float], claim: Mapping[str, Any]) -> bool | None:
    """Whether a claim holds in one column: each lead that it speaks of is above `low` and at most `high`. None: one is
    missing, and none that is there contradicts.
    """
    points, low, high = float(claim.get("points", 0)), 0.0, math.inf
    if "best" in claim:
        pairs = [(claim["best"], other) for other in claim.get("among") or means if other != claim["best"]]
    elif "above" in claim:
        pairs, low = list(pairwise(claim["above"])), points - ROUNDING if points else 0.0
    elif "costs" in claim:
        pairs, low = [claim["costs"]], -points - ROUNDING
    elif "within" in claim:
        pairs, low, high = [claim["within"]], -points - ROUNDING, points + ROUNDING
    else:
        pairs, high = [claim["leads"]], float(claim["at_most"]) + ROUNDING
    leads = [means.get(first, math.nan) - means.get(second, math.nan) for first, second in pairs]
    known = [low < lead <= high for lead in leads if not math.isnan(lead)]
    if not all(known):
        return False
    return True if leads and len(known) == len(leads) else None


def _widens(rows: pd.DataFrame, claim: Mapping[str, Any], whose: str) -> dict[Column, bool | None]:
    """By data set and by the part that does not vary."""
    along: Sequence[str] = claim["along"]
    axis = "noise" if set(along) & set(rows["noise"]) else "partition"
    first, second = claim["widens"]
    found: dict[Column, bool | None] = {}
    for _, block in rows.groupby([name for name in COLUMN if name != axis], sort=False):
        means = block.set_index([axis, "method"])[f"{whose}_mean"]
        leads = [means.get((one, first), math.nan) - means.get((one, second), math.nan) for one in along]
        holds = None if any(map(math.isnan, leads)) else all(b > a for a, b in pairwise(leads))
        found[tuple("" if name == axis else str(block[name].iloc[0]) for name in COLUMN)] = holds
    return found

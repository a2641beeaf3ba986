"""A paper's claims about a table, judged by the columns that have numbers: ours, or the paper's own."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import MISSING, ConfigDict, Field

from fednoise_core.settings.declare import Distinct, Settings
from workflow_scripts.report.runs.csv_files import DECIMALS
from workflow_scripts.report.text.cells import settings_of

AGREES, MIXED, DISAGREES, NOT_RUN = STATES = ("agrees", "mixed", "disagrees", "not run")
COLUMN = ["dataset", "noise", "partition", "member"]
ROUNDING = 1e-9  # points: means of two decimals that differ by a limit are not beyond it
CONCERNS = ("above", "within", "costs", "leads", "widens", "among")  # keys of a claim that list methods

Column = tuple[str, ...]
"""Ids of data set, noise, partition and client; "" for the part along which a lead widens."""


class SeedValues(NamedTuple):
    """Values of a method in a column of a table, in %."""

    mean: float
    by_seed: str
    """What `format_by_seed` made of the value of each seed; "" for a number of the paper."""


NO_VALUES = SeedValues(math.nan, "")

Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}\Z")]
Pair = Annotated[Distinct[str], Field(min_length=2, max_length=2)]
Row = Annotated[Distinct[str], Field(min_length=2)]
Ids = Annotated[Distinct[str], Field(min_length=1)]
ONE_OF = (["best"], ["above"], ["within", "points"], ["costs"], ["leads", "at_most"], ["widens", "along"])


class ClaimSettings(Settings):
    """A claim of the paper: `id`, `says`, one of the keys of ONE_OF, and which columns."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 3, "oneOf": [{"required": list(keys)} for keys in ONE_OF]}
    )

    id: Annotated[Id, Field(description="Its name, one of a kind in the table; `why` and the CSV name it.")]
    says: Annotated[str, Field(min_length=1, max_length=200, description="The claim in words.")]
    best: Annotated[str | MISSING, Field(description="This method is above every other in every column.")] = MISSING
    above: Annotated[Row | MISSING, Field(description="In every column each of these methods is above the next.")] = (
        MISSING
    )
    within: Annotated[
        Pair | MISSING,
        Field(description="In every column these two differ by at most `points`, whichever is ahead."),
    ] = MISSING
    costs: Annotated[
        Pair | MISSING,
        Field(
            description="In every column the first is below the second by at most `points`, or not at all: `points` 0 "
            "says not worse."
        ),
    ] = MISSING
    leads: Annotated[
        Pair | MISSING, Field(description="In every column the first is above the second, by at most `at_most`.")
    ] = MISSING
    at_most: Annotated[float | MISSING, Field(gt=0, description="leads: the largest lead, in points of %.")] = MISSING
    widens: Annotated[
        Pair | MISSING,
        Field(description="The lead of the first method over the second grows from each of `along` to the next."),
    ] = MISSING
    points: Annotated[
        float,
        Field(
            ge=0,
            description="within: the largest difference; costs: the largest loss; above: the least lead, in points "
            "of %.",
        ),
    ] = 0.0
    along: Annotated[Row | MISSING, Field(description="widens: ids of noises or of partitions, in order.")] = MISSING
    among: Annotated[Ids | MISSING, Field(description="best: of these methods only; default: all of the table.")] = (
        MISSING
    )
    datasets: Annotated[Ids | MISSING, Field(description="Only these columns.")] = MISSING
    noises: Annotated[Ids | MISSING, Field(description="Only these columns.")] = MISSING
    partitions: Annotated[Ids | MISSING, Field(description="Only these columns.")] = MISSING


@dataclass(frozen=True)
class Claim:
    """A claim, judged.

    Attributes:
        ours: Column in words → whether our numbers bear the claim out there; None: a number is missing.
        theirs: The same of the paper's numbers.
        keys: The columns by their ids, in the same order.
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
        return combine_verdicts(self.ours.values())

    @property
    def counted(self) -> str:
        """In how many columns our numbers agree."""
        return _format_counts(self.ours.values())

    @property
    def against(self) -> list[str]:
        """The columns in which our numbers disagree."""
        return [column for column, holds in self.ours.items() if holds is False]

    @property
    def in_paper(self) -> str:
        """In how many columns the paper's own numbers bear the claim out."""
        judged = [holds for holds in self.theirs.values() if holds is not None]
        if not judged:
            return self.missing
        gone = len(self.theirs) - len(judged)
        return _format_counts(judged) + (f", {gone} {self.missing}" if gone else "")


def judge_claim(frame: pd.DataFrame, claim: Mapping[str, Any]) -> Claim:
    """Judge a claim.

    Args:
        frame: Of a reproduction table.
        claim: As in `ClaimSettings`.
    """
    ours, theirs = (judge_columns(frame, claim, source) for source in ("ours", "paper"))
    labels = _column_labels(frame, ours)
    return Claim(
        str(claim.get("id", "")),
        str(claim["says"]),
        {labels[key]: holds for key, holds in ours.items()},
        {labels[key]: theirs[key] for key in ours},
        list(ours),
        _explain_missing(frame, claim),
    )


def combine_verdicts(verdicts: Iterable[bool | None]) -> str:
    """Combine the verdicts of the columns that have their numbers.

    Args:
        verdicts: Of each column, whether the claim holds; None: a number is missing.

    Returns:
        One of STATES.
    """
    judged = [holds for holds in verdicts if holds is not None]
    return NOT_RUN if not judged else AGREES if all(judged) else MIXED if any(judged) else DISAGREES


def format_by_seed(values: Mapping[int, float]) -> str:
    """Write the values of seeds for a column of a table, such as "0=71.2000 1=70.9300"."""
    return " ".join(f"{seed}={value:.{DECIMALS}f}" for seed, value in sorted(values.items()))


def read_values(rows: pd.DataFrame, source: str) -> list[SeedValues]:
    """Read the values in the rows of a reproduction table.

    Args:
        rows: Some of its rows.
        source: "ours" or "paper".
    """
    by_seed = rows["ours_by_seed"] if source == "ours" else [""] * len(rows)
    return list(map(SeedValues, rows[f"{source}_mean"], by_seed))


def shared_means(*several: SeedValues) -> list[float]:
    """The mean of each over the seeds that all have, as runs with the same seed share clients and wrong labels.

    If they share no seed, or a mean is NaN, these are the means over each one's own seeds.

    Args:
        several: Those of methods or columns that are compared.
    """
    parts = [[word.partition("=") for word in values_of_method.by_seed.split()] for values_of_method in several]
    values = [{seed: float(value) for seed, _, value in pairs} for pairs in parts]
    shared = set.intersection(*map(set, values))
    if not shared or any(math.isnan(values_of_method.mean) for values_of_method in several):
        return [values_of_method.mean for values_of_method in several]
    return [fmean(of[seed] for seed in sorted(shared)) for of in values]


def measure_lead(first: SeedValues, second: SeedValues) -> float:
    """Measure the lead of the first over the second in points, over the seeds that both have (`shared_means`)."""
    first_mean, second_mean = shared_means(first, second)
    return round(first_mean - second_mean, 9)  # equal means are equal, whatever their sums


def _format_counts(verdicts: Iterable[bool | None]) -> str:
    """For instance "11 of 12 columns", or "3 of 4 columns run, of 12" where others lack their numbers."""
    columns = list(verdicts)
    judged = [holds for holds in columns if holds is not None]
    if not judged:
        return f"0 of {len(columns)} column{'s' * (len(columns) != 1)}"
    text = f"{sum(judged)} of {len(judged)} column{'s' * (len(judged) != 1)}"
    return text if len(judged) == len(columns) else f"{text} run, of {len(columns)}"


def judge_columns(frame: pd.DataFrame, claim: Mapping[str, Any], source: str = "ours") -> dict[Column, bool | None]:
    """Judge a claim in each column.

    Args:
        frame: Of a reproduction table.
        claim: As in `ClaimSettings`.
        source: The numbers that count, "ours" or "paper".

    Returns:
        Column -> whether it holds there; None: a number is missing.
    """
    rows = _select_rows(frame, claim)
    if "widens" in claim:
        return _judge_widening(rows, claim, source)
    verdicts = {
        tuple(map(str, ids)): _judge_column(dict(zip(part["method"], read_values(part, source), strict=True)), claim)
        for ids, part in rows.groupby(COLUMN, sort=False)
    }
    return {(*setting, ""): verdicts[*setting, ""] for setting in settings_of(rows)}  # in the order of the shown table


def _select_rows(frame: pd.DataFrame, claim: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the columns that a claim is about."""
    rows = frame[(frame["ceiling"] == 0) & (frame["member"] == "")]
    for key in ("datasets", "noises", "partitions"):
        if key in claim:
            rows = rows[rows[key.removesuffix("s")].isin(claim[key])]
    return rows


def _column_labels(frame: pd.DataFrame, keys: Iterable[Column]) -> dict[Column, str]:
    """Columns in words: the parts that vary in the table, or all of them if none does."""
    rows, parts = frame[frame["ceiling"] == 0], COLUMN[:3]
    vary = [part for part in parts if rows[part].nunique() > 1]
    labels = {part: dict(zip(rows[part], rows.get(f"{part}_label", rows[part]), strict=True)) for part in parts}
    texts = {}
    for key in keys:
        named = {part: str(labels[part][name]) for part, name in zip(parts, key, strict=False) if name}
        texts[key] = " · ".join([named[part] for part in vary if part in named] or named.values())
    return texts


def _explain_missing(frame: pd.DataFrame, claim: Mapping[str, Any]) -> str:
    rows = _select_rows(frame, claim)
    if named := {name for key in CONCERNS for name in claim.get(key, ())}:
        rows = rows[rows["method"].isin({*named, claim.get("best")})]
    gone = rows[rows["paper_mean"].isna()]
    return "not in the paper" if not len(gone) or bool((gone["paper"] == "absent").all()) else "unreadable"


def _judge_column(values: Mapping[str, SeedValues], claim: Mapping[str, Any]) -> bool | None:
    """Judge a claim in one column: each lead that it speaks of is above `low` and at most `high`.

    None: one is missing, and none that is there contradicts.
    """
    points, low, high = float(claim.get("points", 0)), 0.0, math.inf
    if "best" in claim:
        pairs = [(claim["best"], rival) for rival in claim.get("among") or values if rival != claim["best"]]
    elif "above" in claim:
        pairs, low = list(pairwise(claim["above"])), points - ROUNDING if points else 0.0
    elif "costs" in claim:
        pairs, low = [claim["costs"]], -points - ROUNDING
    elif "within" in claim:
        pairs, low, high = [claim["within"]], -points - ROUNDING, points + ROUNDING
    else:
        pairs, high = [claim["leads"]], float(claim["at_most"]) + ROUNDING
    leads = [measure_lead(values.get(first, NO_VALUES), values.get(second, NO_VALUES)) for first, second in pairs]
    holding = [low < lead <= high for lead in leads if not math.isnan(lead)]
    if not all(holding):
        return False
    return True if leads and len(holding) == len(leads) else None


def _judge_widening(rows: pd.DataFrame, claim: Mapping[str, Any], source: str) -> dict[Column, bool | None]:
    """By data set and by the part that does not vary."""
    along: Sequence[str] = claim["along"]
    axis = "noise" if set(along) & set(rows["noise"]) else "partition"
    first, second = claim["widens"]
    verdicts: dict[Column, bool | None] = {}
    for _, block in rows.groupby([name for name in COLUMN if name != axis], sort=False):
        values = dict(zip(zip(block[axis], block["method"], strict=True), read_values(block, source), strict=True))
        pairs = [[values.get((place, method), NO_VALUES) for method in (first, second)] for place in along]
        means = [shared_means(*before, *after) for before, after in pairwise(pairs)]
        growths = [round((c - d) - (a - b), 9) for a, b, c, d in means]
        holds = None if any(map(math.isnan, growths)) else all(growth > 0 for growth in growths)
        verdicts[tuple("" if name == axis else str(block[name].iloc[0]) for name in COLUMN)] = holds
    return verdicts

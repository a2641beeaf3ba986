"""Verdicts on a paper's claims, by intervals of the differences between runs (`intervals.py`)."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Any, Literal, NamedTuple

import pandas as pd
from pydantic import MISSING, ConfigDict, Field

from fednoise_core.settings.declare import Distinct, Settings
from workflow_scripts.report.runs.csv_files import DECIMALS
from workflow_scripts.report.tables.intervals import Spread, find_interval, pool_spread
from workflow_scripts.report.text.cells import settings_of

AGREES, DISAGREES, UNDECIDED, VOID = STATES = ("agrees", "disagrees", "undecided", "void")
NOT_RUN = "not run"  # not a verdict, since there are no runs
COLUMN = ["dataset", "noise", "partition", "member"]
ROUNDING = 1e-9  # points; a difference that equals a limit counts as within it
CONCERNS = ("above", "within", "costs", "leads", "widens", "declines", "among")  # keys of a claim that list methods

Column = tuple[str, ...]
"""Ids of data set, noise, partition and client; of a lead that widens those of its last column."""


Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}\Z")]
Pair = Annotated[Distinct[str], Field(min_length=2, max_length=2)]
Row = Annotated[Distinct[str], Field(min_length=2)]
Ids = Annotated[Distinct[str], Field(min_length=1)]
ONE_OF = (
    *(["best"], ["above"], ["within", "points"], ["costs"], ["leads", "at_most"], ["widens", "along"]),
    *(["declines"], ["unjudged"]),
)


class ClaimSettings(Settings):
    """A claim of the paper: `id`, `says`, `place`, one of the keys of ONE_OF, and which columns."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 4, "oneOf": [{"required": list(keys)} for keys in ONE_OF]}
    )

    id: Annotated[Id, Field(description="Its name, one of a kind in the table; `why` and the CSV name it.")]
    says: Annotated[str, Field(min_length=1, max_length=300, description="The paper's sentence, in our words.")]
    place: Annotated[str, Field(min_length=1, max_length=60, description="Where the paper says it.")]
    columns: Annotated[
        Literal["all", "most"],
        Field(description="all: it says so of every column; most: of more than half of them, as “generally”."),
    ] = "all"
    best: Annotated[str | MISSING, Field(description="This method is above every other.")] = MISSING
    above: Annotated[Row | MISSING, Field(description="Each of these methods is above the next.")] = MISSING
    within: Annotated[
        Row | MISSING,
        Field(description="The first differs from each other by at most `points`, whichever is ahead."),
    ] = MISSING
    costs: Annotated[
        Pair | MISSING,
        Field(
            description="The first is below the second by at most `points`, or not at all: `points` 0 says not worse."
        ),
    ] = MISSING
    leads: Annotated[Pair | MISSING, Field(description="The first is above the second, by at most `at_most`.")] = (
        MISSING
    )
    at_most: Annotated[float | MISSING, Field(gt=0, description="leads: the largest lead, in points of %.")] = MISSING
    widens: Annotated[
        Row | MISSING,
        Field(description="The first's lead over each other is larger at the last of `along` than at the first."),
    ] = MISSING
    declines: Annotated[
        Ids | MISSING,
        Field(description="The highest mean of ten successive evaluations of each is above that of its last ten."),
    ] = MISSING
    unjudged: Annotated[
        str | MISSING, Field(min_length=1, max_length=300, description="Why no run of this study can decide it.")
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
    beside: Annotated[str | MISSING, Field(description="Another table, whose cells count, too.")] = MISSING
    among: Annotated[Ids | MISSING, Field(description="best: of these methods only; default: all of the table.")] = (
        MISSING
    )
    datasets: Annotated[Ids | MISSING, Field(description="Only these columns.")] = MISSING
    noises: Annotated[Ids | MISSING, Field(description="Only these columns.")] = MISSING
    partitions: Annotated[Ids | MISSING, Field(description="Only these columns.")] = MISSING


class Cell(NamedTuple):
    """A cell of a table's CSV: the paper's number, our numbers by seed, and the inputs of the interval by seed."""

    paper: float
    label: str
    metric: str
    values: Mapping[int, float]
    peaks: Mapping[int, float]
    swings: Mapping[int, float]
    runs: Mapping[int, str]
    collapsed: frozenset[int]


class Term(NamedTuple):
    """A term of a difference: ±1 times a cell's value (`end`) or its highest mean of ten evaluations (`peak`)."""

    weight: int
    what: str
    method: str
    cell: Cell

    def value(self, seed: int) -> float:
        """Return the value for a seed."""
        return float(self.cell.peaks[seed] if self.what == "peak" else self.cell.values[seed])


@dataclass(frozen=True)
class Comparison:
    """A difference that lies between `lowest` and `highest` according to a claim, with its verdict.

    Attributes:
        paper: The paper's own difference.
        differences: Our differences, one for each seed that all runs have.
        interval: The ends of the interval. NaN if nothing was compared.
        void: The reason why the comparison does not count, or "".
    """

    terms: tuple[Term, ...]
    lowest: float
    highest: float
    paper: float
    differences: tuple[float, ...]
    interval: tuple[float, float] = (math.nan, math.nan)
    void: str = ""

    @property
    def seeds(self) -> list[int]:
        """The seeds that all terms have."""
        return sorted(set.intersection(*(set(term.cell.values) for term in self.terms)))

    @property
    def words(self) -> str:
        """The difference in words, such as "FedEFC − FedAvg"."""
        named = [f"{term.cell.label or term.method}{' at its peak' * (term.what == 'peak')}" for term in self.terms]
        if len(named) == 4:
            return f"change of {named[0]} − {named[1]}"
        return " − ".join(named)

    @property
    def state(self) -> str:
        """One of STATES, or NOT_RUN."""
        if self.void:
            return VOID
        if not self.differences:
            return NOT_RUN
        low, high = self.interval
        if high < self.lowest or low > self.highest:
            return DISAGREES
        return AGREES if low > self.lowest and high <= self.highest else UNDECIDED

    @property
    def mean(self) -> float:
        """Mean difference; NaN for none."""
        return fmean(self.differences) if self.differences else math.nan


@dataclass(frozen=True)
class Claim:
    """A claim with its comparisons and verdict.

    Attributes:
        reading: The reading of the paper under which the claim is checked. "" is the reading of the tables.
        comparisons: Column in words → its comparisons.
        keys: The columns by their ids, in the same order.
        missing: The reason why numbers of the paper are missing: "unreadable", or "not in the paper".
        set_aside: The reason why every column that was run is void at this scale, or "".
    """

    table: str
    id: str
    says: str
    place: str
    quantifier: str
    reading: str
    unjudged: str
    comparisons: dict[str, list[Comparison]]
    keys: list[Column]
    missing: str
    set_aside: str = ""
    number: int = 0

    @property
    def ours(self) -> dict[str, str]:
        """Column in words → one of STATES, or NOT_RUN."""
        states = {column: combine_comparisons(parts) for column, parts in self.comparisons.items()}
        return {column: VOID if self.set_aside and state != NOT_RUN else state for column, state in states.items()}

    @property
    def theirs(self) -> dict[str, bool | None]:
        """Column in words → whether the paper's own numbers support the claim. None if a number is missing."""
        return {column: _holds_in_paper(parts) for column, parts in self.comparisons.items()}

    @property
    def state(self) -> str:
        """One of STATES. NOT_RUN if no comparison was run, even if some columns are void."""
        return combine_columns(self.ours.values(), self.quantifier) if self.compared else NOT_RUN

    @property
    def counted(self) -> str:
        """The columns in each state, such as "2 agrees, 10 void"."""
        ours = list(self.ours.values())
        counts = {state: ours.count(state) for state in (*STATES, NOT_RUN)}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "–"

    @property
    def compared(self) -> list[Comparison]:
        """The comparisons that have runs."""
        return [one for parts in self.comparisons.values() for one in parts if one.differences]

    @property
    def decisive(self) -> Comparison | None:
        """The comparison that decides the state: of the comparisons in this state, the one nearest to its limit."""
        same = [one for one in self.compared if one.state == self.state] or self.compared
        return min(same, key=_margin, default=None)

    @property
    def reasons(self) -> list[str]:
        """The reasons why columns are void, each once."""
        voids = [one.void for parts in self.comparisons.values() for one in parts if one.void]
        return [self.set_aside] if self.set_aside else list(dict.fromkeys(voids))


def _margin(one: Comparison) -> float:
    """Points between a mean difference and the nearest limit, as a sort key. Negative if the claim fails."""
    distance = min(abs(one.mean - limit) for limit in (one.lowest, one.highest) if math.isfinite(limit))
    return -distance if one.state == DISAGREES else distance


def combine_comparisons(comparisons: Sequence[Comparison]) -> str:
    """The state of a column.

    It is void if the paper's own numbers contradict the claim there. Otherwise it disagrees if one comparison does, and
    it is not run or undecided if one comparison is. If all others agree, a method at chance makes the column void.
    """
    if any(one.void == CONTRADICTION for one in comparisons):
        return VOID
    states = {one.state for one in comparisons}
    return next((state for state in (DISAGREES, NOT_RUN, UNDECIDED, VOID, AGREES) if state in states), NOT_RUN)


def combine_columns(columns: Iterable[str], quantifier: str) -> str:
    """The state of a claim. All, or most, of the columns that were run and are not void must agree.

    Args:
        columns: States of its columns.
        quantifier: "all" or "most".
    """
    states = list(columns)
    counted = [state for state in states if state not in (VOID, NOT_RUN)]
    if not counted:
        return VOID if VOID in states else NOT_RUN
    agreeing, against = counted.count(AGREES), counted.count(DISAGREES)
    if quantifier == "all":
        return DISAGREES if against else AGREES if agreeing == len(counted) else UNDECIDED
    return AGREES if 2 * agreeing > len(counted) else DISAGREES if 2 * against >= len(counted) else UNDECIDED


CONTRADICTION = "the paper's own numbers contradict the claim"


def judge_claims(frames: Mapping[str, pd.DataFrame], specs: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """Find the verdicts on a paper's claims, each for every reading that has runs.

    Args:
        frames: Table → its frame, or the frame that was read from its CSV.
        specs: Table → its completed settings.
    """
    cells = {name: _read_cells(frame) for name, frame in frames.items()}
    every = {
        (*column, method): cell
        for table in cells.values()
        for column, of in table.items()
        for method, cell in of.items()
    }
    columns: dict[Column, list[Mapping[int, float]]] = {}
    for key, cell in every.items():
        if not cell.collapsed:
            columns.setdefault(key[:-1], []).append(cell.values)
    spread = pool_spread(columns.values())
    claims: list[Claim] = []
    for name, spec in specs.items():
        for settings in spec["claims"]:
            number = len({(one.table, one.id) for one in claims}) + 1
            for reading, substitutes in {"": {}, **spec.get("readings", {})}.items():
                claim = _judge_claim(name, settings, reading, substitutes, frames, cells, spread)
                claim = replace(claim, number=number, set_aside=str(spec.get("void", "")))
                if not reading or (
                    not claim.set_aside
                    and claim.state != NOT_RUN
                    and claim.decisive
                    and _concerns(settings, next(iter(substitutes)))
                ):
                    claims.append(claim)
    return claims


def _concerns(claim: Mapping[str, Any], method: str) -> bool:
    return method in {name for key in CONCERNS for name in claim.get(key, ())} | {claim.get("best")}


def _judge_claim(
    table: str,
    claim: Mapping[str, Any],
    reading: str,
    substitutes: Mapping[str, str],
    frames: Mapping[str, pd.DataFrame],
    cells: Mapping[str, Mapping[Column, Mapping[str, Cell]]],
    spread: Spread,
) -> Claim:
    tables = [claim["beside"], table] if claim.get("beside") in frames else [table]
    frame = pd.concat([frames[name] for name in tables])
    by_column = {column: of for name in tables for column, of in cells[name].items()}

    def find_cell(column: Column, method: str) -> Cell:
        of = by_column.get(column, {})
        found = of.get(substitutes.get(method, method), NO_CELL)
        return found._replace(paper=of.get(method, NO_CELL).paper)

    groups = {} if "unjudged" in claim else _compare(_select_rows(frame, claim), claim, find_cell)
    compared = sum(bool(one.differences) and not one.void for parts in groups.values() for one in parts)
    judged = {key: [_judge(one, spread, compared) for one in parts] for key, parts in groups.items()}
    labels = _column_labels(frame, judged)
    return Claim(
        table,
        str(claim["id"]),
        str(claim["says"]),
        str(claim["place"]),
        str(claim.get("columns", "all")),
        reading,
        str(claim.get("unjudged", "")),
        {labels[key]: parts for key, parts in judged.items()},
        list(judged),
        _explain_missing(frame, claim),
    )


def _judge(one: Comparison, spread: Spread, compared: int) -> Comparison:
    """Add the interval to a comparison."""
    if not one.differences or one.void == CONTRADICTION:
        return one
    swings = [sum(term.cell.swings[seed] ** 2 for term in one.terms) for seed in one.seeds]
    weights = [term.weight for term in one.terms]
    return replace(one, interval=find_interval(one.differences, weights, swings, spread, max(1, compared)))


NO_CELL = Cell(math.nan, "", "last", {}, {}, {}, {}, frozenset())


def _read_cells(frame: pd.DataFrame) -> dict[Column, dict[str, Cell]]:
    cells: dict[Column, dict[str, Cell]] = {}
    rows = frame[(frame["ceiling"] == 0) & (frame["member"] == "")]
    for row in rows.to_dict("records"):
        values, peaks, swings = (_by_seed(row[f"ours_{key}by_seed"], float) for key in ("", "peak_", "swing_"))
        finite = {seed: value for seed, value in values.items() if not math.isnan(value)}
        collapsed = frozenset(map(int, str(row["collapsed"]).split()))
        runs = _by_seed(row["runs_by_seed"], str)
        cells.setdefault(tuple(map(str, (row[key] for key in COLUMN))), {})[row["method"]] = Cell(
            row["paper_mean"],
            str(row.get("method_label", "")),
            str(row["metric"]),
            finite,
            peaks,
            swings,
            runs,
            collapsed,
        )
    return cells


def _by_seed(text: str, read: Callable[[str], Any]) -> dict[int, Any]:
    return {int(seed): read(value) for seed, _, value in (word.partition("=") for word in str(text).split())}


def _compare(
    rows: pd.DataFrame, claim: Mapping[str, Any], find_cell: Callable[[Column, str], Cell]
) -> dict[Column, list[Comparison]]:
    """The comparisons of a claim in each column."""
    if "widens" in claim:
        return dict(_compare_along(rows, claim, find_cell))
    groups, by_setting = {}, rows.groupby(COLUMN[:3], sort=False)["method"].agg(list)
    for setting in settings_of(rows):  # in the order of the shown table
        column = (*setting, "")
        pairs, low, high = _find_limits(claim, by_setting[setting])
        groups[column] = [
            _make_comparison(
                [
                    Term(1, "peak" if first == second else "end", first, find_cell(column, first)),
                    Term(-1, "end", second, find_cell(column, second)),
                ],
                low,
                high,
            )
            for first, second in pairs
        ]
    return groups


def _find_limits(claim: Mapping[str, Any], methods: Sequence[str]) -> tuple[list[tuple[str, str]], float, float]:
    """Pairs of methods, and the limits between which the first's lead over the second lies."""
    points = float(claim.get("points", 0))
    if "best" in claim:
        rivals = claim.get("among") or methods
        return [(claim["best"], rival) for rival in rivals if rival != claim["best"]], 0.0, math.inf
    if "declines" in claim:
        return [(name, name) for name in claim["declines"]], 0.0, math.inf
    if "above" in claim:
        return list(pairwise(claim["above"])), points - ROUNDING if points else 0.0, math.inf
    if "costs" in claim:
        return [tuple(claim["costs"])], -points - ROUNDING, math.inf
    if "within" in claim:
        first, *others = claim["within"]
        return [(first, other) for other in others], -points - ROUNDING, points + ROUNDING
    return [tuple(claim["leads"])], 0.0, float(claim["at_most"]) + ROUNDING


def _compare_along(
    rows: pd.DataFrame, claim: Mapping[str, Any], find_cell: Callable[[Column, str], Cell]
) -> Iterator[tuple[Column, list[Comparison]]]:
    """Yield the comparisons of a claim `widens`, by data set and by the part of the setting that does not vary."""
    along: Sequence[str] = claim["along"]
    axis = "noise" if set(along) & set(rows["noise"]) else "partition"
    for ids, block in rows.groupby([name for name in COLUMN if name != axis], sort=False):
        if not {along[0], along[-1]} <= set(block[axis]):
            continue
        place = dict(zip([name for name in COLUMN if name != axis], map(str, ids), strict=True))
        ends = [
            (sign, tuple((place | {axis: end})[name] for name in COLUMN))
            for sign, end in ((1, along[-1]), (-1, along[0]))
        ]
        first, *others = claim["widens"]
        yield (
            ends[0][1],
            [
                _make_comparison(
                    [
                        Term(weight, "end", method, find_cell(column, method))
                        for sign, column in ends
                        for weight, method in ((sign, first), (-sign, other))
                    ],
                    0.0,
                    math.inf,
                )
                for other in others
            ],
        )


def _make_comparison(terms: Sequence[Term], lowest: float, highest: float) -> Comparison:
    """Make a comparison. It is void if the paper's numbers contradict the claim or one of our runs collapsed."""
    is_peak = any(term.what == "peak" for term in terms)
    paper = math.nan if is_peak else round(sum(term.weight * term.cell.paper for term in terms), 9)
    one = Comparison(tuple(terms), lowest, highest, paper, ())
    seeds = one.seeds
    differences = tuple(round(sum(term.weight * term.value(seed) for term in terms), 9) for seed in seeds)
    if _holds_in_paper([one]) is False:
        return replace(one, differences=differences, void=CONTRADICTION)
    fallen = [term.cell.label or term.method for term in terms if term.cell.collapsed & set(seeds)]
    void = f"{' and '.join(dict.fromkeys(fallen))} fell to chance" if fallen else ""
    return replace(one, differences=differences, void=void)


def _holds_in_paper(comparisons: Sequence[Comparison]) -> bool | None:
    holding = [one.lowest < one.paper <= one.highest for one in comparisons if not math.isnan(one.paper)]
    if not all(holding):
        return False
    return True if holding and len(holding) == len(comparisons) else None


def list_comparisons(claims: Iterable[Claim]) -> pd.DataFrame:
    """List every comparison of claims, with all inputs of its verdict.

    Args:
        claims: The claims, with verdicts.

    Returns:
        A row for each comparison, and one for a claim that has none.
    """
    rows = []
    for claim in claims:
        ours, theirs = claim.ours, claim.theirs
        head = {"number": claim.number, "table": claim.table, "claim": claim.id, "place": claim.place}
        head |= {
            "says": claim.says,
            "reading": claim.reading,
            "columns": claim.quantifier,
            "set_aside": claim.set_aside,
        }
        tail = {"state": claim.state}
        parts = [(column, one) for column, several in claim.comparisons.items() for one in several]
        if not parts:
            rows.append(head | {"void": claim.unjudged, "n": 0} | tail)
        for column, one in parts:
            runs = "; ".join(
                f"{term.what} {term.weight:+d} {' '.join(f'{seed}={term.cell.runs[seed]}' for seed in one.seeds)}"
                for term in one.terms
            )
            low, high = one.interval
            holds = theirs[column]
            rows.append(
                head
                | {"column": column, "comparison": one.words, "metric": one.terms[0].cell.metric}
                | {"lowest": one.lowest, "highest": one.highest, "paper": one.paper, "n": len(one.differences)}
                | {"difference": one.mean, "low": low, "high": high, "runs_by_seed": runs if one.differences else ""}
                | {"void": one.void, "verdict": one.state, "ours": ours[column]}
                | {"theirs": claim.missing if holds is None else AGREES if holds else DISAGREES}
                | tail
            )
    return pd.DataFrame(rows, columns=CSV_COLUMNS)


CSV_COLUMNS = [
    *("number", "table", "claim", "place", "says", "reading", "columns", "set_aside", "column", "comparison", "metric"),
    *(
        "lowest",
        "highest",
        "paper",
        "n",
        "difference",
        "low",
        "high",
        "runs_by_seed",
        "void",
        "verdict",
        "ours",
        "theirs",
    ),
    "state",
]


def format_by_seed(values: Mapping[int, float]) -> str:
    """Write the values of seeds for a column of a table, such as "0=71.2000 1=70.9300"."""
    return " ".join(f"{seed}={value:.{DECIMALS}f}" for seed, value in sorted(values.items()))


def measure_lead(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> float:
    """Measure our lead of a method over another in points.

    The lead is measured over the seeds that both have, since runs with the same seed share clients and wrong labels. If
    they share no seed, or a mean is NaN, it is the difference of the means over each method's own seeds.

    Args:
        first: Row of a reproduction table.
        second: Row of the other method.
    """
    means = first["ours_mean"], second["ours_mean"]
    values, others = (_by_seed(row["ours_by_seed"], float) for row in (first, second))
    if (shared := sorted(values.keys() & others.keys())) and not any(map(math.isnan, means)):
        means = fmean(values[seed] for seed in shared), fmean(others[seed] for seed in shared)
    return round(means[0] - means[1], 9)  # so that equal means give 0 despite rounding


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
        named = {part: str(labels[part][name]) for part, name in zip(parts, key, strict=False)}
        texts[key] = " · ".join([named[part] for part in vary] or named.values())
    return texts


def _explain_missing(frame: pd.DataFrame, claim: Mapping[str, Any]) -> str:
    rows = _select_rows(frame, claim)
    if named := {name for key in CONCERNS for name in claim.get(key, ())}:
        rows = rows[rows["method"].isin({*named, claim.get("best")})]
    gone = rows[rows["paper_mean"].isna()]
    return "not in the paper" if not len(gone) or bool((gone["paper"] == "absent").all()) else "unreadable"

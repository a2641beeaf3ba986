"""The first sentence of a study's page, computed: what won where, by how much, over how many seeds.

It reads the frames of the page's own accuracy tables and their rule for bold (`best.py`): a page names one winner a
setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fednoise_core.report.runs import agreement
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.ranking import best_methods, compared
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.tables.build import accuracy
from fednoise_core.report.text.cells import (
    ACCURACY_DIGITS,
    METRIC_WORDS,
    MISSING,
    count_words,
    in_setting,
    mean_std,
    method_words,
    number,
    settings_of,
    signed,
)

__all__ = ["Headline", "Won", "closing", "headline", "plain_averaging"]

DIGITS = 1  # of points: what a sentence can say
NAMED = 3  # names in a sentence; beyond, a count
LINES = 12  # settings that closing lines name
NOTHING = "Nothing is compared: fewer than two methods that a federation can have have an accuracy in a setting."


@dataclass(frozen=True)
class Won:
    """A setting's best: `methods`, more than one where they tie; their accuracy in words, what they lead by, seeds."""

    setting: Setting
    methods: list[str]
    accuracy: str
    lead: float
    """Points between the highest mean and the next that does not tie with it; NaN where all tie or nothing is left."""
    next: str
    over: float
    """Points between the highest mean and the baseline's; NaN where the baseline is not in the setting."""
    seeds: int
    """The fewest that any of the compared methods has."""


@dataclass(frozen=True)
class Headline:
    """What a page says first. rows: a setting each; baseline: the name of the method that `over` is about, or ""."""

    sentence: str
    rows: list[Won]
    baseline: str
    metric: str
    """The metric that everything here is of: a key of METRIC_WORDS."""


def headline(
    tables: Sequence[tuple[Mapping[str, Any], pd.DataFrame]], baseline: str | None, given: Collection[str] = ()
) -> Headline | None:
    """The headline of accuracy tables (settings and frame of each); None without any. They must be of one metric: those
    of another than the first's are passed over. baseline: the id of a method to compare with, e.g. plain averaging.
    given: ids of the data sets without trusted test labels.
    """
    every = [(spec, frame, str(spec.get("metric", "best"))) for spec, frame in tables if spec.get("kind") == "accuracy"]
    if not every:
        return None
    metric = every[0][2]
    blocks: dict[Setting, tuple[pd.DataFrame, int]] = {}
    for spec, frame, of in every:
        main = frame[frame["ceiling"] == 0]
        for key in settings_of(main) if of == metric else ():
            block = main[in_setting(main, key)], int(spec.get("digits", ACCURACY_DIGITS))
            blocks.setdefault(Setting(*key[:3]), block)
    found = [_won(setting, block, metric, digits, baseline) for setting, (block, digits) in blocks.items()]
    decided = [won for won in found if won.methods]
    every_row = pd.concat([block for block, _ in blocks.values()])
    same = every_row[every_row["method"] == baseline]
    label = method_words(same) if any(not math.isnan(won.over) for won in decided) else ""
    untrusted = sorted({setting.dataset for setting in blocks} & set(given))
    said = _several(decided, label) if len(decided) > 1 else _one(decided[0], label) if decided else NOTHING
    seeds = count_words(pd.Series([won.seeds for won in found]))
    sentence = f"{said} Accuracy, {METRIC_WORDS[metric]}; {seeds}. {agreement.note(untrusted)}".rstrip()
    return Headline(sentence, decided, label, metric)


def closing(runs: Sequence[RecordedRun]) -> list[str]:
    """Lines for a terminal or a list: the headline of all runs by the mean of the last ten evaluations, and what won in
    each setting where there are several.
    """
    spec = {"kind": "accuracy", "metric": "last10_mean"}
    found = headline([(spec, accuracy(runs, spec))], plain_averaging(runs), agreement.datasets(runs))
    if found is None or len(found.rows) < 2:
        return [found.sentence] if found else []
    names, more = Names.of_runs(runs), len(found.rows) - LINES
    lines = [f"{names.title(won.setting)}: {_one(won, found.baseline)}" for won in found.rows[:LINES]]
    return [found.sentence, *lines, *([f"and {more} more"] if more > 0 else [])]


def plain_averaging(runs: Sequence[RecordedRun]) -> str | None:
    """The id of plain averaging in this study: what every other method wants to beat."""
    plain = [run.listed.method for run in runs if run.spec["method"].get("name") == "fedavg"]
    return "fedavg" if "fedavg" in plain else next(iter(plain), None)


def _won(setting: Setting, block: pd.DataFrame, metric: str, digits: int, baseline: str | None) -> Won:
    best, mean = best_methods(block, metric, digits), f"{metric}_mean"
    if not best:
        return Won(setting, [], MISSING, math.nan, "", math.nan, int(block["seeds"].min()))
    ranked = compared(block, metric).sort_values(mean, ascending=False, kind="stable")
    top, rest = ranked[ranked["method"].isin(best)], ranked[~ranked["method"].isin(best)]
    first = top.iloc[0]
    alone = mean_std(first[mean], first[f"{metric}_std"], DIGITS)
    base = block[(block["method"] == baseline) & ~block["method"].isin(best)][mean]
    return Won(
        setting,
        [method_words(top[top["method"] == method]) for method in top["method"]],
        _range(top[mean]) if len(top) > 1 else alone,
        first[mean] - float(rest[mean].iloc[0]) if len(rest) else math.nan,
        method_words(rest.iloc[:1]) if len(rest) else "",
        first[mean] - float(base.iloc[0]) if len(base) else math.nan,
        int(ranked["seeds"].min()),
    )


def _one(won: Won, label: str) -> str:
    """ "SCE leads at 85.0 ± 0.1 %, 2.0 points above GCE, 5.0 above FedAvg."."""
    said = f"{_names(won.methods)} {'tie' if len(won.methods) > 1 else 'leads'} at {won.accuracy}\xa0%"
    said += f", {number(won.lead, DIGITS)} points above {won.next}" if won.next else ""
    further = label and label != won.next and not math.isnan(won.over)
    return said + (f", {number(won.over, DIGITS)} above {label}" if further else "") + "."


def _several(found: Sequence[Won], label: str) -> str:
    """How often each method is the best of a setting or ties with it, and the best's gain over the baseline."""
    counts = Counter(name for won in found for name in won.methods).most_common()
    names = [f"{name} in {count}" for name, count in counts]
    said = f"Best of {len(found)} settings, alone or tied: {_names(names)}."
    over = [won.over for won in found if not math.isnan(won.over)]
    if not over:
        return said
    return (
        f"{said} The best is {_range(over)} points above {label} in the {len(over)} settings where {label} is not best."
    )


def _range(values: Iterable[float]) -> str:
    low, high = number(min(values), DIGITS), number(max(values), DIGITS)
    return low if low == high else f"{low} to {high}"


def _names(names: Sequence[str]) -> str:
    """ "A", "A, B", "A, B, C and 4 more"."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def points(value: float) -> str:
    """ "+5.3", or a dash."""
    return MISSING if math.isnan(value) else signed(value, DIGITS)

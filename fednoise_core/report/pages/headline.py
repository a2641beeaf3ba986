"""The first sentence of a study's page, computed: what won where, by how much, over how many seeds.

It reads the frames of the page's own accuracy tables and their rule for bold (`ranking.py`): a page names one winner a
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
from fednoise_core.report.runs.ranking import best_methods, compared_rows, find_baseline
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.tables.accuracy import accuracy_frame
from fednoise_core.report.tables.registry import complete_spec
from fednoise_core.report.text.cells import (
    METRIC_WORDS,
    MISSING,
    count_words,
    format_number,
    format_signed,
    in_setting,
    mean_std,
    method_words,
    settings_of,
)

DIGITS = 1  # of points: what a sentence can say
NAMED = 3  # names in a sentence; beyond, a count
LINES = 12  # settings that closing lines name
NOTHING = "Nothing is compared: fewer than two methods that a federation can have have an accuracy in a setting."


@dataclass(frozen=True)
class SettingWinner:
    """A setting's best.

    Attributes:
        methods: More than one where they tie.
        accuracy: Theirs, in words.
        lead: Points between the highest mean and the next that does not tie with it; NaN where all tie or nothing is
            left.
        next: The next one's name.
        over: Points between the highest mean and the baseline's; NaN where the baseline is not in the setting.
        seeds: The fewest that any of the compared methods has.
    """

    setting: Setting
    methods: list[str]
    accuracy: str
    lead: float
    next: str
    over: float
    seeds: int


@dataclass(frozen=True)
class Headline:
    """What a page says first.

    Attributes:
        rows: A setting each.
        baseline: The name of the method that `over` is about, or "".
        metric: The metric that everything here is of: a key of METRIC_WORDS.
    """

    sentence: str
    rows: list[SettingWinner]
    baseline: str
    metric: str


def make_headline(
    tables: Sequence[tuple[Mapping[str, Any], pd.DataFrame]], baseline: str | None, given: Collection[str] = ()
) -> Headline | None:
    """What a study's page says first: what won where, by how much, over how many seeds.

    Args:
        tables: Settings and frame of each. Accuracy tables of another metric than the first one's are passed over.
        baseline: The id of a method to compare with, e.g. plain averaging.
        given: Ids of the data sets without trusted test labels.

    Returns:
        None without any accuracy table.
    """
    every = [(complete_spec(spec), frame) for spec, frame in tables if spec["kind"] == "accuracy"]
    if not every:
        return None
    metric = every[0][0]["metric"]
    blocks: dict[Setting, tuple[pd.DataFrame, int]] = {}
    for spec, frame in every:
        main = frame[frame["ceiling"] == 0]
        for key in settings_of(main) if spec["metric"] == metric else ():
            block = main[in_setting(main, key)], spec["digits"]
            blocks.setdefault(Setting(*key[:3]), block)
    found = [_find_winner(setting, block, metric, digits, baseline) for setting, (block, digits) in blocks.items()]
    decided = [won for won in found if won.methods]
    every_row = pd.concat([block for block, _ in blocks.values()])
    same = every_row[every_row["method"] == baseline]
    label = method_words(same) if any(not math.isnan(won.over) for won in decided) else ""
    untrusted = sorted({setting.dataset for setting in blocks} & set(given))
    said = NOTHING
    if decided:
        said = _winners_sentence(decided, label) if len(decided) > 1 else _winner_sentence(decided[0], label)
    seeds = count_words(pd.Series([won.seeds for won in found]))
    sentence = f"{said} Accuracy, {METRIC_WORDS[metric]}; {seeds}. {agreement.untrusted_note(untrusted)}".rstrip()
    return Headline(sentence, decided, label, metric)


def summary_lines(runs: Sequence[RecordedRun]) -> list[str]:
    """Lines for a terminal or a list: the headline of all runs by the mean of the last ten evaluations.

    Where there are several settings, what won in each follows.

    Args:
        runs: Those of the study.
    """
    spec = complete_spec({"kind": "accuracy", "metric": "last10_mean"})
    table = spec, accuracy_frame(runs, spec)
    found = make_headline([table], find_baseline(runs), agreement.untrusted_datasets(runs))
    if found is None or len(found.rows) < 2:
        return [found.sentence] if found else []
    names, more = Names.of_runs(runs), len(found.rows) - LINES
    lines = [f"{names.title(won.setting)}: {_winner_sentence(won, found.baseline)}" for won in found.rows[:LINES]]
    return [found.sentence, *lines, *([f"and {more} more"] if more > 0 else [])]


def _find_winner(
    setting: Setting, block: pd.DataFrame, metric: str, digits: int, baseline: str | None
) -> SettingWinner:
    best, mean = best_methods(block, metric, digits), f"{metric}_mean"
    if not best:
        return SettingWinner(setting, [], MISSING, math.nan, "", math.nan, int(block["seeds"].min()))
    ranked = compared_rows(block, metric).sort_values(mean, ascending=False, kind="stable")
    top, rest = ranked[ranked["method"].isin(best)], ranked[~ranked["method"].isin(best)]
    first = top.iloc[0]
    alone = mean_std(first[mean], first[f"{metric}_std"], DIGITS)
    base = block[(block["method"] == baseline) & ~block["method"].isin(best)][mean]
    return SettingWinner(
        setting,
        [method_words(top[top["method"] == method]) for method in top["method"]],
        _format_range(top[mean]) if len(top) > 1 else alone,
        first[mean] - float(rest[mean].iloc[0]) if len(rest) else math.nan,
        method_words(rest.iloc[:1]) if len(rest) else "",
        first[mean] - float(base.iloc[0]) if len(base) else math.nan,
        int(ranked["seeds"].min()),
    )


def _winner_sentence(won: SettingWinner, label: str) -> str:
    """For instance "SCE leads at 85.0 ± 0.1 %, 2.0 points above GCE, 5.0 above FedAvg."."""
    said = f"{_join_names(won.methods)} {'tie' if len(won.methods) > 1 else 'leads'} at {won.accuracy}\xa0%"
    said += f", {format_number(won.lead, DIGITS)} points above {won.next}" if won.next else ""
    further = label and label != won.next and not math.isnan(won.over)
    return said + (f", {format_number(won.over, DIGITS)} above {label}" if further else "") + "."


def _winners_sentence(found: Sequence[SettingWinner], label: str) -> str:
    """How often each method is the best of a setting or ties with it, and the best's gain over the baseline."""
    counts = Counter(name for won in found for name in won.methods).most_common()
    names = [f"{name} in {count}" for name, count in counts]
    said = f"Best of {len(found)} settings, alone or tied: {_join_names(names)}."
    over = [won.over for won in found if not math.isnan(won.over)]
    if not over:
        return said
    gain = _format_range(over)
    return f"{said} The best is {gain} points above {label} in the {len(over)} settings where {label} is not best."


def _format_range(values: Iterable[float]) -> str:
    low, high = format_number(min(values), DIGITS), format_number(max(values), DIGITS)
    return low if low == high else f"{low} to {high}"


def _join_names(names: Sequence[str]) -> str:
    """For instance "A", "A, B", "A, B, C and 4 more"."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def format_points(value: float) -> str:
    """For instance "+5.3", or a dash."""
    return MISSING if math.isnan(value) else format_signed(value, DIGITS)

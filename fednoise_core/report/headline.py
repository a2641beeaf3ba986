"""The first sentence of a study's page, computed: what won where, by how much, over how many seeds.

It reads the frames of the page's own accuracy tables and their rule for bold (`best.py`): a page names one winner a
setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fednoise_core.report import agreement
from fednoise_core.report.best import best_methods, compared, leads
from fednoise_core.report.cells import (
    ACCURACY_DIGITS,
    METRIC_WORDS,
    MISSING,
    PARTS,
    in_setting,
    mean_std,
    method_words,
    number,
    settings_of,
    signed,
)
from fednoise_core.report.names import Names
from fednoise_core.report.runs import RecordedRun, Setting
from fednoise_core.report.tables import accuracy

__all__ = ["Headline", "Won", "closing", "headline", "plain_averaging"]

DIGITS = 1  # of points: what a sentence can say
NAMED = 3  # names in a sentence; beyond, a count
LINES = 12  # settings that closing lines name


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
    word: str
    """What the numbers are: "accuracy", or agreement with given labels where that is true of every setting."""
    note: str
    """Which of the data sets have no trusted test labels where others have; else ""."""


def headline(
    tables: Sequence[tuple[Mapping[str, Any], pd.DataFrame]], baseline: str | None, given: Collection[str] = ()
) -> Headline | None:
    """The headline of accuracy tables (settings and frame of each); None without any. They must be of one metric: those
    of another than the first's are passed over. baseline: the id of a method to compare with, e.g. plain averaging.
    given: ids of the data sets without trusted test labels, of which "accuracy" is agreement with given labels.
    """
    of_accuracy = [(spec, frame) for spec, frame in tables if spec.get("kind") == "accuracy"]
    if not of_accuracy:
        return None
    metric = str(of_accuracy[0][0].get("metric", "best"))
    rows: dict[Setting, Won] = {}
    means: list[float] = []
    label = ""
    for spec, frame in of_accuracy:
        if spec.get("metric", "best") != metric:
            continue
        main = frame[frame["ceiling"] == 0]
        for key in settings_of(main):
            block = main[in_setting(main, key)]
            if Setting(*key[:3]) not in rows:
                rows[Setting(*key[:3])] = _won(block, metric, int(spec.get("digits", ACCURACY_DIGITS)), baseline)
                means += [float(value) for value in compared(block, metric)[f"{metric}_mean"]]
        same = main[main["method"] == baseline]
        label = label or (method_words(same) if len(same) else "")
    found = list(rows.values())
    decided = [won for won in found if won.methods]
    untrusted = sorted({setting.dataset for setting in rows} & set(given))
    word = agreement.word(all(setting.dataset in given for setting in rows))
    note = f"In {', '.join(untrusted)} it is {agreement.WORDS}." if untrusted and word != agreement.WORDS else ""
    of = f" {word.capitalize()}, {METRIC_WORDS[metric]}; {_seeds(found)}. {note}".rstrip()
    if decided:
        said = _one(decided[0], label) if len(decided) == 1 else _many(decided, label)
    else:
        names = list(
            dict.fromkeys(method_words(group) for _, frame in of_accuracy for _, group in frame.groupby("method"))
        )
        said = _alone(names, means, len(found))
    against = label if any(not math.isnan(won.over) for won in decided) else ""
    return Headline(said + of, decided, against, metric, word, note)


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


def _won(block: pd.DataFrame, metric: str, digits: int, baseline: str | None) -> Won:
    setting = Setting(*(str(block[part].iloc[0]) for part in PARTS))
    best = best_methods(block, metric, digits)
    seeds = int((compared(block, metric) if best else block)["seeds"].min())
    ranked = compared(block, metric).sort_values(f"{metric}_mean", ascending=False, kind="stable")
    if not best:
        return Won(setting, [], MISSING, math.nan, "", math.nan, seeds)
    top, rest = ranked[ranked["method"].isin(best)], ranked[~ranked["method"].isin(best)]
    values = [float(value) for value in top[f"{metric}_mean"]]
    first = top.iloc[0]
    accuracy = mean_std(first[f"{metric}_mean"], first[f"{metric}_std"], DIGITS)
    if len(top) > 1:
        accuracy = _range(values)
    base = block[(block["method"] == baseline) & ~block["method"].isin(best)][f"{metric}_mean"]
    return Won(
        setting,
        [method_words(top[top["method"] == method]) for method in top["method"]],
        accuracy,
        values[0] - float(rest[f"{metric}_mean"].iloc[0]) if len(rest) else math.nan,
        method_words(rest.iloc[:1]) if len(rest) else "",
        values[0] - float(base.iloc[0]) if len(base) else math.nan,
        seeds,
    )


def _one(won: Won, label: str) -> str:
    """One setting."""
    after = f"{number(won.lead, DIGITS)} points above {won.next}" if won.next else ""
    if label and label != won.next and not math.isnan(won.over):
        after += f"{' and ' if after else ''}{number(won.over, DIGITS)} {'' if after else 'points '}above {label}"
    if len(won.methods) == 1:
        return f"{won.methods[0]} {leads(won.seeds)} with {won.accuracy}\xa0%{', ' if after else ''}{after}."
    return f"{_names(won.methods)} tie at {won.accuracy}\xa0%{'; the highest mean is ' if after else ''}{after}."


def _many(found: Sequence[Won], label: str) -> str:
    """Several settings: who is alone at the top, how often and by how much; who ties; what the best gain over the
    baseline.
    """
    alone = [won for won in found if len(won.methods) == 1]
    verb = leads(min(won.seeds for won in found))
    parts: list[str] = []
    for name, count in Counter(won.methods[0] for won in alone).most_common():
        points_of = [won.lead for won in alone if won.methods[0] == name and not math.isnan(won.lead)]
        of, after = (f" of {len(found)} settings", " points over the next") if not parts else ("", "")
        where = f"{count}{of}" if verb == "wins" else f"in {count}{of}"
        parts.append(f"{name} {verb} {where}" + (f", by {_range(points_of)}{after}" if points_of else ""))
    shown, more = parts[:NAMED], len(parts) - NAMED
    said = "; ".join([*shown, *([f"{more} other methods the rest"] if more > 0 else [])])
    said += ". " if said else ""
    said += _ties(found)
    over = [won.over for won in found if not math.isnan(won.over)]
    if label and over:
        best = [label in won.methods for won in found if math.isnan(won.over)]
        where = f"Where {label} {'is' if all(best) else 'has a mean and is'} not among the best, the" if best else "The"
        said += f"{where} best is {_range(over)} points above {label}. "
    return said.rstrip()


def _ties(found: Sequence[Won]) -> str:
    """Who stands at the top together: by name where they are always the same, else how often each is among them."""
    tied = [won for won in found if len(won.methods) > 1]
    if not tied:
        return ""
    where = f"In {len(tied)} of {len(found)} settings" if len(tied) < len(found) else "In every setting"
    if len({frozenset(won.methods) for won in tied}) == 1:
        return f"{where} {_names(tied[0].methods)} tie. "
    counts = Counter(name for won in tied for name in won.methods)
    most, *fewer = sorted(set(counts.values()) - {1}, reverse=True) or [0]
    said, named = "", 0
    for count in [most, *fewer[:1]] if most else []:
        names = [name for name in counts if counts[name] == count]
        named += len(names)
        if said and named > NAMED:
            break
        times = "every time" if count == len(tied) else f"{count} times"
        said += f", {_names(names)} {times}" if said else f"; {_names(names)} {_be(names)} among them {times}"
    return f"{where} several methods tie{said}. "


def _alone(names: Sequence[str], means: Sequence[float], settings: int) -> str:
    """Nothing to compare: one method, or none that a federation can have."""
    if not means:
        return "No method that a federation can have has an accuracy here."
    where = f"in {settings} settings" if settings > 1 else "in the one setting"
    return f"{_names(names)} reaches {_range(means)}\xa0% {where}; with one method there is no winner."


def _range(values: Sequence[float]) -> str:
    low, high = number(min(values), DIGITS), number(max(values), DIGITS)
    return low if low == high else f"{low} to {high}"


def _seeds(found: Sequence[Won]) -> str:
    low, high = min(won.seeds for won in found), max(won.seeds for won in found)
    if high == 1:
        return "one seed, so no spread is known"
    return f"mean of {high} seeds" if low == high else f"mean of {low} to {high} seeds"


def _names(names: Sequence[str]) -> str:
    """ "A", "A and B", "A, B and 4 more"."""
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _be(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def points(value: float) -> str:
    """ "+5.3", or a dash."""
    return MISSING if math.isnan(value) else signed(value, DIGITS)

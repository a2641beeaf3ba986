"""What the figures of results share: scores, panels' selections, error bars, captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednoise_core.report import frames
from fednoise_core.report.best import is_compared, level
from fednoise_core.report.cells import ACCURACY_DIGITS, METRIC_WORDS, count_words, signed
from fednoise_core.report.marks import NO_MEMBERS, ORACLE, as_told_notes, marked, marks_of, notes
from fednoise_core.report.names import Names
from fednoise_core.report.rates import noiseless
from fednoise_core.report.runs import RecordedRun, Setting
from fednoise_core.report.style import Drawn, legend_below, outer, titles

__all__ = [
    "METRIC",
    "bars",
    "drawn",
    "finish",
    "labels_of",
    "metric_words",
    "n_words",
    "not_compared",
    "of_setting",
    "scores",
    "split_clean",
    "stop_mark",
]

METRIC = "last10_mean"  # what every figure of accuracies shows unless it is asked for another


def scores(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """Accuracy of every method in every setting, in %: over `n` runs their `mean`, `std` (sample standard deviation),
    `low` and `high`, all NaN where a run diverged.
    """
    frame = frames.results(runs, spec.get("view", "headline"))
    grouped = frame.groupby([*frames.IDS, "method_label"], sort=False)
    values = grouped[spec.get("metric", METRIC)]
    table = values.agg(n="size", mean="mean", std="std", low="min", high="max")
    table.loc[grouped["diverged"].any(), ["mean", "std", "low", "high"]] = np.nan
    return table.reset_index()


def metric_words(spec: Mapping[str, Any]) -> str:
    """Which accuracy is shown."""
    return METRIC_WORDS[spec.get("metric", METRIC)]


def n_words(table: pd.DataFrame) -> str:
    """The end of a sentence: over how many seeds the means are, and what error bars say."""
    if table["n"].max() == 1:
        return "n = 1 seed."
    return f"means of {count_words(table['n'])}, bars from the lowest to the highest."


def split_clean(runs: Sequence[RecordedRun]) -> tuple[list[Setting], dict[Setting, None]]:
    """Settings with a panel, and those on clean labels, which are drawn into the others (if there are any)."""
    clean = {run.listed.setting: None for run in runs if noiseless(run.spec.get("noise", {}))}
    settings = dict.fromkeys(run.listed.setting for run in runs)
    noisy = [key for key in settings if key not in clean]
    return (noisy, clean) if noisy else (list(settings), {})


def of_setting(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """The rows of one setting."""
    return table[(table["dataset"] == setting[0]) & (table["noise"] == setting[1]) & (table["partition"] == setting[2])]


def labels_of(runs: Sequence[RecordedRun]) -> dict[str, str]:
    """Method -> its words in the legend: label, dagger, and how many of its runs diverged."""
    found = {run.listed.method: marked(run.label, marks_of(run.summary)) for run in runs}
    for method in found:
        lost = [run.diverged for run in runs if run.listed.method == method]
        found[method] += f", diverged ({sum(lost)} of {len(lost)})" if any(lost) else ""
    return found


def not_compared(runs: Sequence[RecordedRun]) -> tuple[set[tuple[Setting, str]], str]:
    """The methods that take no part in a setting, and the words of the legend: what no federation can have, and what
    goes by the setting's own noise rate.
    """
    frame = frames.results(runs)
    found, marks = set(), ""
    for run, told, mark in zip(runs, frame["as_told"], frame["marks"], strict=True):
        if told or not is_compared([mark]):
            found.add((run.listed.setting, run.listed.method))
            marks += mark + (ORACLE if told else "")
    return found, f"not compared: {' '.join(mark for mark in NO_MEMBERS if mark in marks)}"


def stop_mark(axis: Axes, line: pd.DataFrame, x: str, y: str, colour: str) -> None:
    """A cross where a line stops because a run diverged: at its last mean, if it has any."""
    axis.plot(line[x][-1:], line[y][-1:], color=colour, zorder=4.5, marker="x", markersize=6, markeredgewidth=1.4)


def bars(axis: Axes, x: Any, y: Any, colour: str, **spread: Any) -> None:
    """Error bars without an entry in the legend; an unknown spread draws none."""
    axis.errorbar(
        x,
        y,
        fmt="none",
        ecolor=colour,
        capsize=2,
        elinewidth=0.8,
        capthick=0.8,
        zorder=3.5,
        **{key: np.nan_to_num(np.asarray(value, float)).clip(0) for key, value in spread.items()},
    )


def finish(
    figure: Figure, axes: Sequence[Axes], heads: Sequence[str], x: str, spec: Mapping[str, Any], legend: bool = True
) -> None:
    """Titles of the panels, the asked range of y (%), words at the axes, and the legend."""
    titles(axes, heads)
    for axis in axes:
        if spec.get("y"):
            axis.set_ylim(*spec["y"])
    outer(axes, x, "test accuracy, %")
    if legend:
        legend_below(figure, axes)


def drawn(
    figure: Figure,
    table: pd.DataFrame,
    spec: Mapping[str, Any],
    title: str,
    caption: str,
    end: pd.DataFrame,
    runs: Sequence[RecordedRun],
    names: Names,
    ceiling: Mapping[Setting, None],
    dotted: bool = False,
    shape: str = "",
    which: str = "",
    unit: str = "%",
) -> Drawn:
    """Finish: the caption with its footnotes, and a text for those who cannot see: what is drawn (`shape`), and who is
    highest and lowest by the column `mean` of `end` (`which` accuracy that is, in `unit`) in each setting.
    """
    results = frames.results(runs, spec.get("view", "headline"))
    common = names.common(runs[0].listed.setting)
    caption += f" All on {common}." if common else ""
    caption += " Dotted: the same method trained on clean labels." if dotted else ""
    words = [names.title(run.listed.setting) for run in runs]
    caption += "".join(f" {note}" for note in [*notes(results), *as_told_notes(results.assign(setting=words))])
    lost = frames.divergence(results)
    if lost:
        caption += " A run diverged: its outputs were not finite, so it has no accuracy, nor has a mean with it."
        table = table.assign(diverged=[lost.get(ids, (0, 0))[0] for ids in table[frames.IDS].itertuples(False, None)])
    groups = {
        Setting(*map(str, ids)): group for ids, group in end.dropna(subset=["mean"]).groupby(frames.IDS[:3], sort=False)
    }
    said = [
        f"{names.title(setting)}: {_order(group, of_setting(results, setting), spec, unit)}"
        for setting, group in groups.items()
        if setting not in ceiling
    ]
    alt = f"{spec.get('title') or title}{': ' if shape else ''}{shape}, {end['method'].nunique()} methods. "
    alt += f"Highest {which or metric_words(spec)}: {'; '.join(said)}." if said else "None has an accuracy at the end."
    alt += f" Diverged: {'; '.join(frames.diverged_words(runs))}." if lost else ""
    text = f"{spec['caption']} {caption}" if spec.get("caption") else caption
    return Drawn(figure, table, spec.get("title") or title, text, alt)


def _order(group: pd.DataFrame, results: pd.DataFrame, spec: Mapping[str, Any], unit: str) -> str:
    """The highest and the lowest of a setting's methods, in words; ties by the rule of the tables. Those that are not
    compared stand apart. group: what is drawn of the setting, a row a method; results: `frames.results` of its runs.
    """
    marks, told = (dict(zip(results["method"], results[key], strict=True)) for key in ("marks", "as_told"))
    words = {
        row["method"]: f"{marked(row['method_label'], marks[row['method']])} {_value(row['mean'], unit)}"
        for _, row in group.iterrows()
    }
    rows = list(group.sort_values("mean", ascending=False, kind="stable")["method"])
    fair = [method for method in rows if is_compared([marks[method]]) and not told[method]] or rows
    best = [method for method in _level(group, results, fair, spec, unit) if method in fair] or fair[:1]
    text = " = ".join(words[method] for method in best) + (" (tie)" if len(best) > 1 else "")
    if rows[0] not in (*best, *fair[:1]):
        text += f" (not compared: {words[rows[0]]})"
    return f"{text}, lowest {words[rows[-1]]}" if len(rows) > 1 else text


def _level(
    group: pd.DataFrame, results: pd.DataFrame, fair: Sequence[str], spec: Mapping[str, Any], unit: str
) -> list[str]:
    """The methods that tie as the best, where the figure is of the numbers of the runs; else nobody."""
    found = results[results["method"].isin(fair)].groupby("method")[spec.get("metric", METRIC)].agg(["mean", "std"])
    drawn_mean = group.drop_duplicates("method").set_index("method")["mean"].reindex(found.index)
    if unit == "%" and ((drawn_mean - found["mean"]).abs() > 0.05).any():
        return []
    known = found.dropna(subset=["mean"]).itertuples(name=None)
    return level({str(method): (float(mean), float(std)) for method, mean, std in known}, ACCURACY_DIGITS)


def _value(value: float, unit: str) -> str:
    return f"{value:.1f} {unit}" if unit == "%" else f"{signed(value, 1)} {unit}"

"""Test accuracy over rounds or work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.figures.line_labels import End, room
from fednoise_core.report.figures.results.common import (
    drawn,
    finish,
    in_settings,
    labels_of,
    metric_words,
    of_setting,
    ranked,
    scores,
    smoothed,
    split_clean,
)
from fednoise_core.report.figures.results.rows import baseline_of
from fednoise_core.report.figures.style import CEILING, INK, Drawn, Look, panels
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.text.cells import count_words

__all__ = ["curves"]

FEW = 5  # lines of a panel that may have bands; of more, none could be followed
MANY, BEST = 10, 8  # methods of which all have a colour; of more, how many have: as many as there are colours
PALE: dict[str, Any] = {"color": "#949494", "linestyle": "-", "linewidth": 0.8}
Looks = Mapping[str, Mapping[str, Any]]


def curves(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Test accuracy over rounds or work, mean of the seeds, one panel a setting; name and value beside each line's end.

    The value is the `metric` that the tables have. What is drawn is the mean of the last `smooth` evaluations, by
    default as `smoothed` says. Up to FEW methods have a band (`band`: std | range | none). Of more than MANY methods
    the BEST best are in colour, the others grey. A line stops at a cross before the first evaluation of which a seed
    has no finite number.
    """
    x = spec.get("x", "round")
    over = "rounds" if x == "round" else x
    table, window = _means(runs, spec)
    at_end = scores(runs, spec)
    shown, ceiling = split_clean(runs)
    few = max(of_setting(table, setting)["method"].nunique() for setting in shown) <= FEW
    band = "none" if table["n"].max() == 1 else spec.get("band") or ("std" if few else "none")
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    pale = _pale(at_end, shown, baseline_of(runs))
    styles = {method: PALE if method in pale else {**one.line(), "marker": ""} for method, one in looks.items()}
    one = len({key[0] for key in shown}) == 1
    above = {setting: _above(at_end, ceiling, setting) for setting in shown}
    listed = [[*(labels[m] for m in of_setting(table, key)["method"].unique()), *above[key].values()] for key in shown]
    columns, height = room(spec, listed)
    figure, axes = panels(len(shown), spec, height, columns, sharex=True, sharey=one)
    ends = []
    for axis, setting in zip(axes, shown, strict=True):
        values = {row["method"]: row["mean"] for _, row in of_setting(at_end, setting).iterrows()}
        found = _ceilings(axis, table, at_end, above[setting], styles, spec)
        ends.append([*_lines(axis, of_setting(table, setting), styles, labels, band, values, spec), *found])
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=x == "round"))
        axis.set_xlim(0, 1.01 * float(table["x"].max() or 1))
    words = "round" if x == "round" else "work (rounds of FedAvg)"
    cut = finish(axes, [names.title(key) for key in shown], [key.dataset for key in shown], words, ends, spec)
    table = table.rename(columns={"x": x} if x != "round" else {})
    caption = _caption(runs, table, spec, window, band) + cut
    if pale:
        caption += f" In colour: the {BEST} best over the settings; grey: {', '.join(labels[m] for m in pale)}."
    said: dict[str, Any] = {"dotted": bool(ceiling), "shape": f"lines over {over}"}
    return drawn(figure, table, spec, f"Accuracy over {over}", caption, at_end, runs, names, ceiling, **said)


def _means(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> tuple[pd.DataFrame, str]:
    """A row a method, setting and evaluated round: `x`, and over the `n` seeds, in %, mean and std of that evaluation;
    mean (`drawn`), spread, low and high of the last so many up to it. Also returns how many these are, in words.
    """
    each, window = smoothed(runs, spec)
    grouped = each.groupby([*frames.IDS, "method_label", "round"], sort=False)
    table = grouped.agg(
        x=("work", "mean"),
        n=("value", "size"),
        mean=("value", "mean"),
        std=("value", "std"),
        drawn=("trailing", "mean"),
        spread=("trailing", "std"),
        low=("trailing", "min"),
        high=("trailing", "max"),
    ).reset_index()
    return table if spec.get("x") == "work" else table.assign(x=table["round"].astype(float)), window


def _pale(at_end: pd.DataFrame, shown: Sequence[Setting], base: str | None) -> list[str]:
    """The methods without a colour of their own, if there are many: not among the best in the mean over the settings,
    and not the baseline.
    """
    order = ranked(in_settings(at_end, shown))
    if len(order) <= MANY:
        return []
    kept = [base, *(method for method in order if method != base)] if base in order[BEST:] else order
    return [method for method in order if method not in kept[:BEST]]


def _lines(
    axis: Axes,
    table: pd.DataFrame,
    styles: Looks,
    labels: Mapping[str, str],
    band: str,
    values: Mapping[str, float],
    spec: Mapping[str, Any],
) -> list[End]:
    """Draw the methods of one panel; their ends. One that diverged has no value at its end."""
    ends = []
    for method, found in table.groupby("method", sort=False):
        style, line = styles[str(method)], found.dropna(subset=["drawn"])
        grey = style is PALE
        axis.plot(line["x"], line["drawn"], label=labels[str(method)], zorder=2.2 if grey else 3, **style)
        if len(line) < len(found):
            cross: dict[str, Any] = {"marker": "x", "markersize": 6, "markeredgewidth": 1.4, "zorder": 4.5}
            axis.plot(line["x"][-1:], line["drawn"][-1:], color=style["color"], **cross)  # a run diverged
        if band != "none" and not grey:
            wide = line["spread"].fillna(0)
            low, high = (line["drawn"] - wide, line["drawn"] + wide) if band == "std" else (line["low"], line["high"])
            axis.fill_between(line["x"], low, high, color=style["color"], alpha=0.13, linewidth=0, zorder=2)
        ends.append(_end(line, labels[str(method)], style, values[str(method)], spec))
    return ends


def _end(line: pd.DataFrame, name: str, style: Mapping[str, Any], value: float, spec: Mapping[str, Any]) -> End:
    """The end of a line, at the value that the tables have; without one (it diverged) where the line stops, and there,
    too, if that value is its best, which may lie rounds before.
    """
    ink = "#6b6b6b" if style is PALE else INK
    if line.empty:
        return End(math.nan, name, dict(style), ink=ink)
    known = math.isfinite(value)
    y = value if known and spec.get("metric") != "best" else float(line["drawn"].iloc[-1])
    return End(y, name, dict(style), f"{value:.1f}" if known else "", ink)


def _above(at_end: pd.DataFrame, ceiling: Mapping[Setting, None], setting: Setting) -> dict[tuple[Setting, str], str]:
    """The runs on clean labels that belong into a setting's panel, same data set and partition, with their names. Of
    several, that they are without noise is said by their dots.
    """
    found = {}
    for clean in ceiling:
        if (clean.dataset, clean.partition) == (setting.dataset, setting.partition):
            for _, row in of_setting(at_end, clean).iterrows():
                found[clean, str(row["method"])] = str(row["method_label"])
    return found if len(found) > 1 else {key: f"{label}, no noise" for key, label in found.items()}


def _ceilings(
    axis: Axes,
    table: pd.DataFrame,
    at_end: pd.DataFrame,
    above: Mapping[tuple[Setting, str], str],
    styles: Looks,
    spec: Mapping[str, Any],
) -> list[End]:
    """Draw the runs on clean labels, dotted, several in their methods' colours; their ends."""
    ends = []
    for (clean, method), name in above.items():
        line = of_setting(table, clean)
        line = line[line["method"] == method].dropna(subset=["drawn"])
        value = of_setting(at_end, clean).set_index("method")["mean"][method]
        style = {**CEILING, "color": styles[method]["color"]} if len(above) > 1 else CEILING
        axis.plot(line["x"], line["drawn"], label="_", zorder=1.5, **style)
        ends.append(_end(line, name, style, float(value), spec))
    return ends


def _caption(runs: Sequence[RecordedRun], table: pd.DataFrame, spec: Mapping[str, Any], window: str, band: str) -> str:
    text = f"Test accuracy {_when(runs)}"
    text += f", at each {window}" if window else ""
    text += f", mean over seeds: {count_words(table['n'])}" if table["n"].max() > 1 else ": one seed"
    text += {"std": "; bands: one standard deviation.", "range": "; bands: range."}.get(band, ".")
    text += f" Beside each line the number of the tables: {metric_words(spec)}."
    text += " Work counts passes over samples." if spec.get("x") == "work" else ""
    return text


def _when(runs: Sequence[RecordedRun]) -> str:
    """Which rounds were evaluated, in words."""
    every = {int(run.spec.get("train", {}).get("eval_every", 1)) for run in runs}
    if every == {1}:
        return "after every round"
    return f"after every {every.pop()} rounds" if len(every) == 1 else "after the rounds that were evaluated"

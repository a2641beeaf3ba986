"""Accuracy against what a run costs, time and traffic side by side, with the methods that no other dominates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fednoise_core.report import frames
from fednoise_core.report.cells import count_words
from fednoise_core.report.ends import BELOW, cut_words
from fednoise_core.report.floor import floor
from fednoise_core.report.marks import NO_MEMBERS, marks_of
from fednoise_core.report.names import Names
from fednoise_core.report.result_figures.common import (
    drawn,
    labels_of,
    metric_words,
    of_setting,
    scores,
    split_clean,
    time_of,
)
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.statistics import non_dominated
from fednoise_core.report.style import INK, SIZE, Drawn, Look, inches, legend_below, outer, panels, titles, wrap

__all__ = ["pareto"]

TRAFFIC = "megabytes"
ALIKE = 1.1  # times the least traffic: up to it all send the same, and a panel of it would spread nothing over its axis
TALL, HIGH, LEAST = 7.6, 2.3, 1.5  # inches: all rows at most, one of them, and what it has at least
FRONT: dict[str, Any] = {"color": INK, "linewidth": 0.9, "drawstyle": "steps-post", "zorder": 1.8}
RING: dict[str, Any] = {"marker": "o", "linestyle": "none", "markerfacecolor": "none", "markeredgecolor": INK}
WIDE = 12  # times the least cost: beyond, the axis is logarithmic


def pareto(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Two panels a setting: accuracy against time and against megabytes of all clients, a marker a method (mean of its
    seeds). Ringed and joined: no other method is at least as accurate for at most as much. What no federation can have
    (told the noise rate, trained in one place) is drawn, and is no member of the front; nor has one run's wall time a
    front. Without the traffic where all methods send about the same.
    """
    shown, _ = split_clean(runs)
    time, unit = time_of(runs)
    table = _table(runs, spec, time)
    table = table[[tuple(key) in shown for key in table[frames.IDS[:3]].to_numpy()]].reset_index(drop=True)
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    apart = {run.listed.method for run in runs if set(marks_of(run.summary)) & set(NO_MEMBERS)}
    sent = table[TRAFFIC]
    costs = {time: unit} | ({} if sent.max() <= ALIKE * sent.min() else {TRAFFIC: "MB a run, both ways"})
    for cost in (time, TRAFFIC):
        table[f"front_{cost}"] = False
    fair = {cost for cost in costs if cost != "seconds" or table["n"].max() > 1}
    count, columns = len(shown) * len(costs), 2 if len(costs) == 2 else min(2, len(shown))
    high = max(LEAST, min(HIGH, TALL / -(-count // columns)))
    figure, axes = panels(count, spec, high, columns=columns, sharex="col" if len(costs) == 2 else True)
    for number, setting in enumerate(shown):
        here = of_setting(table, setting).dropna(subset=["mean"])
        members = here[~here["method"].isin(apart)]
        for axis, cost in zip(axes[len(costs) * number :], costs, strict=False):
            flags = non_dominated(members[cost].tolist(), members["mean"].tolist()) if cost in fair else []
            front = members[np.array(flags, dtype=bool)] if flags else members.iloc[:0]
            table.loc[front.index, f"front_{cost}"] = True
            _panel(axis, here, front, cost, looks, labels)
    words = ("time", "traffic") if len(costs) == 2 else ("",)
    titles(axes, [" · ".join(filter(None, (word, names.title(setting)))) for setting in shown for word in words])
    for place, cost in enumerate(costs):
        for axis in axes[place :: len(costs)]:
            _scale(axis, table[cost])
    outer(axes, unit, "test accuracy, %")
    if len(costs) == 2:
        axes[-1].set_xlabel(wrap(costs[TRAFFIC], inches(spec) / columns - 0.5))
    each = [axes[place : place + len(costs)] for place in range(0, count, len(costs))]
    starts = [_focus(two, of_setting(table, key), looks, spec, costs) for two, key in zip(each, shown, strict=True)]
    if len(costs) == 2:
        for left, right in zip(axes[::2], axes[1::2], strict=True):
            right.sharey(left)
    if fair:
        axes[0].plot([], [], markersize=9.5, label="not dominated", **RING)
    legend_below(figure, axes)
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs}))
    against = f"{unit} (device: {device})" + (" and traffic" if len(costs) == 2 else "")
    caption = f"Test accuracy ({metric_words(spec)}) against {against}; mean of {count_words(table['n'])}."
    if len(costs) == 1:
        caption += f" No traffic: all send about the same, {sent.min():.4g} to {sent.max():.4g} MB a run."
    caption += cut_words([start for start in starts if start is not None])
    caption += " Ringed, and joined by a line: no other method is as accurate for as little." if fair else ""
    caption += "" if time in fair else " No front over time: the wall time of one run says too little."
    if apart & {*table["method"]} and fair:
        caption += " Those that were told the noise rate or trained in one place are no part of it."
    return drawn(figure, table, spec, "Accuracy and cost", caption, table, runs, names, {}, shape="points over cost")


def _table(runs: Sequence[RecordedRun], spec: Mapping[str, Any], time: str) -> pd.DataFrame:
    """A row a method and setting: accuracy (`scores`), mean `time` (its key) and `megabytes` of a run."""
    rows = [
        {
            **dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)),
            time: float(run.cost[time]),
            TRAFFIC: (run.summary.get("bytes_up", 0) + run.summary.get("bytes_down", 0)) / 1e6,
        }
        for run in runs
    ]
    cost = pd.DataFrame(rows).groupby(frames.IDS, sort=False)[[time, TRAFFIC]].mean().reset_index()
    return scores(runs, spec).merge(cost, on=frames.IDS)


def _panel(
    axis: Axes,
    here: pd.DataFrame,
    front: pd.DataFrame,
    cost: str,
    looks: Mapping[str, Look],
    labels: Mapping[str, str],
) -> None:
    for _, row in here.iterrows():
        style = {**looks[str(row["method"])].line(), "linestyle": "none", "markersize": 6}
        axis.plot([row[cost]], [row["mean"]], label=labels[str(row["method"])], **style)
    line = front.sort_values(cost, kind="stable")
    axis.plot(line[cost], line["mean"], **FRONT)
    axis.plot(line[cost], line["mean"], markersize=9.5, zorder=3, **RING)
    axis.margins(0.1)


def _focus(
    axes: Sequence[Axes], here: pd.DataFrame, looks: Mapping[str, Look], spec: Mapping[str, Any], costs: Iterable[str]
) -> float | None:
    """The accuracies that a setting's panels show: as asked for, else from where most stand apart. Returns that, if it
    leaves something out, which stands at the bottom as a number.
    """
    if spec.get("y"):
        for axis in axes:
            axis.set_ylim(*spec["y"])
        return None
    known = here.dropna(subset=["mean"])
    low = floor(known["mean"].tolist())
    if low is None or low <= known["mean"].min():
        return None
    up = 2.0  # points
    for axis, cost in zip(axes, costs, strict=True):
        axis.set_ylim(low, known["mean"].max() + 0.1 * (known["mean"].max() - low))
        lower = known[known["mean"] < low].sort_values(cost, kind="stable")
        share = 0.34 / (inches(spec) / 2 - 0.6)  # of the axis: so close, and numbers would stand over one another
        near = share * (known[cost].max() - known[cost].min())
        for (_, row), gap in zip(lower.iterrows(), lower[cost].diff().fillna(np.inf), strict=True):
            up = up + SIZE + 1 if gap <= near else 2.0
            colour = looks[str(row["method"])].colour
            words = f"{BELOW}\u202f{row['mean']:.0f}"
            axis.annotate(words, (row[cost], low), (0, up), textcoords="offset points", ha="center", color=colour,
                          fontsize=SIZE - 0.5)  # fmt: skip
    return low


def _scale(axis: Axes, values: pd.Series) -> None:
    """A logarithmic axis where costs lie far apart, with a place for those of nothing."""
    some = values[values > 0]
    if not len(some) or some.max() <= WIDE * some.min():
        axis.xaxis.set_major_locator(MaxNLocator(5))
        return
    none = bool((values == 0).any())
    if none:
        axis.set_xscale("symlog", linthresh=float(some.min()), linscale=0.4)
    else:
        axis.set_xscale("log")
    powers = range(int(np.floor(np.log10(some.min()))), int(np.ceil(np.log10(some.max()))) + 1)
    ticks = [lead * 10.0**power for power in powers for lead in (1, 3) if power < powers[-1] or lead == 1]
    ticks = [0.0, *(tick for tick in ticks if tick >= some.min())] if none else ticks
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

"""Accuracy against what a run costs, time and traffic side by side, with the methods that no other dominates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

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
)
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.statistics import non_dominated
from fednoise_core.report.style import INK, SIZE, Drawn, Look, inches, legend_below, panels, titles, wrap

__all__ = ["pareto"]

COSTS = {"seconds": "seconds a run", "megabytes": "MB a run, both ways"}
FRONT: dict[str, Any] = {"color": INK, "linewidth": 0.9, "drawstyle": "steps-post", "zorder": 1.8}
RING: dict[str, Any] = {"marker": "o", "linestyle": "none", "markerfacecolor": "none", "markeredgecolor": INK}
WIDE = 12  # times the least cost: beyond, the axis is logarithmic


def pareto(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Two panels a setting: accuracy against seconds and against megabytes of all clients, a marker a method (mean of
    its seeds). Ringed and joined: no other method is at least as accurate for at most as much. What no federation can
    have (told the noise rate, trained in one place) is drawn, and is no member of the front.
    """
    shown, _ = split_clean(runs)
    table = _table(runs, spec)
    table = table[[tuple(key) in shown for key in table[frames.IDS[:3]].to_numpy()]].reset_index(drop=True)
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    apart = {run.listed.method for run in runs if set(marks_of(run.summary)) & set(NO_MEMBERS)}
    for cost in COSTS:
        table[f"front_{cost}"] = False
    columns = 2
    figure, axes = panels(len(shown) * len(COSTS), spec, columns=columns, sharex="col")
    for number, setting in enumerate(shown):
        here = of_setting(table, setting).dropna(subset=["mean"])
        members = here[~here["method"].isin(apart)]
        for axis, cost in zip(axes[columns * number :], COSTS, strict=False):
            flags = non_dominated(members[cost].tolist(), members["mean"].tolist())
            front = members[np.array(flags, dtype=bool)]  # no members: an empty list would choose no columns
            table.loc[front.index, f"front_{cost}"] = True
            _panel(axis, here, front, cost, looks, labels)
    heads = [f"{word} · {names.title(setting)}" for setting in shown for word in ("time", "traffic")]
    titles(axes, heads)
    for place, (cost, words) in enumerate(COSTS.items()):
        for axis in axes[place::columns]:
            _scale(axis, table[cost])
        axes[place - columns].set_xlabel(wrap(words, inches(spec) / columns - 0.5))
    for axis in axes[::columns]:
        axis.set_ylabel("test accuracy, %")
    starts = [_focus(axes[columns * number : columns * (number + 1)], of_setting(table, setting), looks, spec)
              for number, setting in enumerate(shown)]  # fmt: skip
    for left, right in zip(axes[::columns], axes[1::columns], strict=True):
        right.sharey(left)
    axes[0].plot([], [], markersize=9.5, label="not dominated", **RING)
    legend_below(figure, axes)
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs}))
    caption = f"Test accuracy ({metric_words(spec)}) against time (device: {device}) and traffic; mean of "
    caption += f"{count_words(table['n'])}."
    caption += cut_words([start for start in starts if start is not None])
    caption += " Ringed, and joined by a line: no other method is as accurate for as little."
    if apart & {*table["method"]}:
        caption += " Those that were told the noise rate or trained in one place are no part of it."
    return drawn(figure, table, spec, "Accuracy and cost", caption, table, runs, names, {}, shape="points over cost")


def _table(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """A row a method and setting: accuracy (`scores`), mean `seconds` and `megabytes` of a run."""
    rows = [
        {
            **dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)),
            "seconds": float(run.cost["seconds"]),
            "megabytes": (run.summary.get("bytes_up", 0) + run.summary.get("bytes_down", 0)) / 1e6,
        }
        for run in runs
    ]
    cost = pd.DataFrame(rows).groupby(frames.IDS, sort=False)[list(COSTS)].mean().reset_index()
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
    axes: Sequence[Axes], here: pd.DataFrame, looks: Mapping[str, Look], spec: Mapping[str, Any]
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
    for axis, cost in zip(axes, COSTS, strict=True):
        axis.set_ylim(low, known["mean"].max() + 0.1 * (known["mean"].max() - low))
        for _, row in known[known["mean"] < low].iterrows():
            colour = looks[str(row["method"])].colour
            words = f"{BELOW}\u202f{row['mean']:.0f}"
            axis.annotate(words, (row[cost], low), (0, 2), textcoords="offset points", ha="center", color=colour,
                          fontsize=SIZE - 0.5)  # fmt: skip
    return low


def _scale(axis: Axes, values: pd.Series) -> None:
    """A logarithmic axis where costs lie far apart; a method that sends nothing stands at its left on a linear one."""
    if values.min() > 0 and values.max() > WIDE * values.min():
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5))

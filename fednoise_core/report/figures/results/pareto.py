"""Accuracy against what a run costs, time and traffic side by side, with the methods that no other dominates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.figures.line_labels import End, focus
from fednoise_core.report.figures.results.common import (
    drawn,
    in_settings,
    labels_of,
    metric_words,
    of_setting,
    scores,
    split_clean,
    time_of,
    widen,
)
from fednoise_core.report.figures.style import INK, Drawn, Look, inches, legend_below, outer, panels, titles, wrap
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.runs.statistics import non_dominated
from fednoise_core.report.text.cells import count_words
from fednoise_core.report.text.footnotes import NO_MEMBERS, marks_of

__all__ = ["pareto"]

TRAFFIC = "megabytes"
ALIKE = 1.1  # times the least traffic: up to it all send the same, and a panel of it would spread nothing over its axis
TALL, HIGH, LEAST = 7.6, 2.3, 1.5  # inches: all rows at most, one of them, and what it has at least
FRONT: dict[str, Any] = {"color": INK, "linewidth": 0.9, "drawstyle": "steps-post", "zorder": 1.8}
RING: dict[str, Any] = {"marker": "o", "markersize": 9.5, "markerfacecolor": "none", "markeredgecolor": INK}


def pareto(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Two panels a setting: accuracy against time and against megabytes of all clients, a marker a method (mean of its
    seeds). Ringed and joined: no other method is at least as accurate for at most as much. What no federation can have
    (told the noise rate, trained in one place) is drawn, and is no member of the front; nor has one run's wall time a
    front. Without the traffic where all methods send about the same.
    """
    shown, _ = split_clean(runs)
    time, unit = time_of(runs)
    table = in_settings(_table(runs, spec, time), shown)
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    sent = table[TRAFFIC]
    costs = {time: unit} | ({} if sent.max() <= ALIKE * sent.min() else {TRAFFIC: "MB a run, both ways"})
    fair = [cost for cost in costs if cost != "seconds" or table["n"].max() > 1]
    apart = {run.listed.method for run in runs if set(marks_of(run.summary)) & set(NO_MEMBERS)}
    for cost in (time, TRAFFIC):
        table[f"front_{cost}"] = _front(table, cost, apart) if cost in fair else False
    places = [(setting, cost) for setting in shown for cost in costs]
    columns = 2 if len(costs) == 2 else min(2, len(shown))
    high = max(LEAST, min(HIGH, TALL / -(-len(places) // columns)))
    share = "col" if len(costs) == 2 else True
    figure, axes = panels(len(places), spec, high, columns=columns, sharex=share)
    styles = {method: {**one.line(), "linestyle": "none", "markersize": 6} for method, one in looks.items()}
    ends = []
    for axis, (setting, cost) in zip(axes, places, strict=True):
        here = of_setting(table, setting).dropna(subset=["mean"])
        for _, row in here.iterrows():
            axis.plot([row[cost]], [row["mean"]], label=labels[row["method"]], **styles[row["method"]])
        front = here[here[f"front_{cost}"]].sort_values(cost, kind="stable")
        axis.plot(front[cost], front["mean"], **FRONT, **RING)
        axis.margins(0.1)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        widen([axis], table[cost])
        ends.append([End(row["mean"], labels[row["method"]], {}) for _, row in here.iterrows()])
    words = {time: "time", TRAFFIC: "traffic"} if len(costs) == 2 else {time: ""}
    titles(axes, [" · ".join(filter(None, (words[cost], names.title(setting)))) for setting, cost in places])
    outer(axes, unit, "test accuracy, %")
    if len(costs) == 2:
        axes[-1].set_xlabel(wrap(costs[TRAFFIC], inches(spec) / columns - 0.5))
    starts = focus(axes, [" ".join(setting) for setting, _ in places], ends, spec)
    low = {setting: axis.get_ylim()[0] for axis, (setting, _) in zip(axes, places, strict=True)}
    under = table[[row["mean"] < low[Setting(*row[frames.IDS[:3]])] for _, row in table.iterrows()]]
    handles = [Line2D([], [], label=labels[method], **styles[method]) for method in table["method"].unique()]
    handles += [Line2D([], [], label="not dominated", linestyle="none", **RING)] if fair else []
    legend_below(figure, handles)
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs}))
    against = f"{unit} (device: {device})" + (" and traffic" if len(costs) == 2 else "")
    caption = f"Test accuracy ({metric_words(spec)}) against {against}; mean of {count_words(table['n'])}."
    if len(costs) == 1:
        caption += f" No traffic: all send about the same, {sent.min():.4g} to {sent.max():.4g} MB a run."
    if starts:
        begin = " or ".join(f"{start:g}" for start in sorted(set(starts)))
        below = ", ".join(f"{labels[row['method']]} {row['mean']:.1f}" for _, row in under.iterrows())
        caption += f" The axes start at {begin} %; below is {below}."
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


def _front(table: pd.DataFrame, cost: str, apart: Collection[str]) -> pd.Series:
    """Whether no other member of the same setting is as accurate for as little; a row of `table` each."""
    members = table[~table["method"].isin(apart)]
    front = [
        flag
        for _, here in members.groupby(frames.IDS[:3], sort=False)
        for flag in zip(here.index, non_dominated(here[cost].tolist(), here["mean"].tolist()), strict=True)
    ]
    return pd.Series(dict(front), dtype=bool).reindex(table.index, fill_value=False)

"""Accuracy against what a run costs, time and traffic side by side, with the methods that no other dominates."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.figures.kind import Drawn, FigureKind, LineSettings
from fednoise_core.report.figures.line_labels import LineEnd, set_y_ranges
from fednoise_core.report.figures.results.common import (
    find_common_time,
    finish_figure,
    in_settings,
    legend_labels,
    metric_words,
    of_setting,
    score_methods,
    split_clean_settings,
    spread_x_axis,
)
from fednoise_core.report.figures.style import (
    INK,
    Look,
    add_legend_below,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
    wrap_to_width,
)
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.runs.statistics import non_dominated
from fednoise_core.report.text.cells import count_words
from fednoise_core.report.text.footnotes import NO_MEMBERS, marks_of

TRAFFIC = "megabytes"
ALIKE = 1.1  # times the least traffic: up to it all send the same, and a panel of it would spread nothing over its axis
TALL, HIGH, LEAST = 7.6, 2.3, 1.5  # inches: all rows at most, one of them, and what it has at least
FRONT: dict[str, Any] = {"color": INK, "linewidth": 0.9, "drawstyle": "steps-post", "zorder": 1.8}
RING: dict[str, Any] = {"marker": "o", "markersize": 9.5, "markerfacecolor": "none", "markeredgecolor": INK}


class ParetoSettings(LineSettings):
    """Test accuracy against time and traffic of a run; methods that no other beats in accuracy and cost are ringed.

    Two panels a setting, without traffic where all methods send about the same. What no federation can have (told
    the noise rate, trained in one place) is drawn, and is no member of the front. One run's wall time has no front.
    """


def _draw_pareto(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: ParetoSettings) -> Drawn:
    shown, _ = split_clean_settings(runs)
    table, costs, fair = _cost_table(runs, shown, settings)
    time = next(iter(costs))
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), legend_labels(runs)
    places = [(setting, cost) for setting in shown for cost in costs]
    two = len(costs) == 2
    columns = 2 if two else min(2, len(shown))
    high = max(LEAST, min(HIGH, TALL / -(-len(places) // columns)))
    figure, axes = make_panels(len(places), settings, high, columns=columns, sharex="col" if two else True)
    styles = {method: one.line_style(linestyle="none", markersize=6) for method, one in looks.items()}
    ends = []
    for axis, (setting, cost) in zip(axes, places, strict=True):
        here = of_setting(table, setting).dropna(subset=["mean"])
        _draw_methods(axis, here, cost, labels, styles)
        spread_x_axis([axis], table[cost])
        ends.append([LineEnd(row["mean"], labels[row["method"]], {}) for _, row in here.iterrows()])
    words = {time: "time" if two else "", TRAFFIC: "traffic"}
    set_titles(axes, [" · ".join(filter(None, (words[cost], names.title(setting)))) for setting, cost in places])
    label_outer_axes(axes, costs[time], "test accuracy, %")
    if two:
        axes[-1].set_xlabel(wrap_to_width(costs[TRAFFIC], width_inches(settings) / columns - 0.5))
    starts = set_y_ranges(axes, [" ".join(setting) for setting, _ in places], ends, settings.y)
    handles = [Line2D([], [], label=labels[method], **styles[method]) for method in table["method"].unique()]
    handles += [Line2D([], [], label="not dominated", linestyle="none", **RING)] if fair else []
    add_legend_below(figure, handles)
    low = {setting: axis.get_ylim()[0] for axis, (setting, _) in zip(axes, places, strict=True)}
    below = _below_words(table, starts, low, labels)
    caption = _describe_costs(runs, table, costs, settings) + below + _front_words(runs, table, time, fair)
    title, shape = "Accuracy and cost", "points over cost"
    return finish_figure(figure, table, settings, title, caption, table, runs, names, {}, shape=shape)


def _draw_methods(
    axis: Axes, here: pd.DataFrame, cost: str, labels: Mapping[str, str], styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """Draw the methods of a setting, and the front through those that no other dominates."""
    for _, row in here.iterrows():
        axis.plot([row[cost]], [row["mean"]], label=labels[row["method"]], **styles[row["method"]])
    front = here[here[f"front_{cost}"]].sort_values(cost, kind="stable")
    axis.plot(front[cost], front["mean"], **FRONT, **RING)
    axis.margins(0.1)
    axis.xaxis.set_major_locator(MaxNLocator(5))


def _describe_costs(
    runs: Sequence[RecordedRun], table: pd.DataFrame, costs: Mapping[str, str], settings: ParetoSettings
) -> str:
    device, sent = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs})), table[TRAFFIC]
    against = f"{next(iter(costs.values()))} (device: {device})" + (" and traffic" if TRAFFIC in costs else "")
    caption = f"Test accuracy ({metric_words(settings)}) against {against}; mean of {count_words(table['n'])}."
    if TRAFFIC not in costs:
        caption += f" No traffic: all send about the same, {sent.min():.4g} to {sent.max():.4g} MB a run."
    return caption


def _below_words(
    table: pd.DataFrame, starts: Sequence[float], low: Mapping[Setting, float], labels: Mapping[str, str]
) -> str:
    """Which methods are below the axes, if these leave something out. low: where a setting's axes start."""
    if not starts:
        return ""
    under = table[[row["mean"] < low[Setting(*row[frames.IDS[:3]])] for _, row in table.iterrows()]]
    begin = " or ".join(f"{start:g}" for start in sorted(set(starts)))
    below = ", ".join(f"{labels[row['method']]} {row['mean']:.1f}" for _, row in under.iterrows())
    return f" The axes start at {begin} %; below is {below}."


def _front_words(runs: Sequence[RecordedRun], table: pd.DataFrame, time: str, fair: Sequence[str]) -> str:
    words = " Ringed, and joined by a line: no other method is as accurate for as little." if fair else ""
    words += "" if time in fair else " No front over time: the wall time of one run says too little."
    if fair and _methods_apart(runs) & {*table["method"]}:
        words += " Those that were told the noise rate or trained in one place are no part of it."
    return words


def _cost_table(
    runs: Sequence[RecordedRun], shown: Sequence[Setting], settings: ParetoSettings
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """A row a method and setting, with a column `front_…` for each cost; shown costs in words; those with a front."""
    time, unit = find_common_time(runs)
    table = in_settings(_mean_costs(runs, settings, time), shown)
    alike = table[TRAFFIC].max() <= ALIKE * table[TRAFFIC].min()
    units = {time: unit} | ({} if alike else {TRAFFIC: "MB a run, both ways"})
    fair = [cost for cost in units if cost != "seconds" or table["n"].max() > 1]
    for cost in (time, TRAFFIC):
        table[f"front_{cost}"] = _on_front(table, cost, _methods_apart(runs)) if cost in fair else False
    return table, units, fair


def _methods_apart(runs: Sequence[RecordedRun]) -> set[str]:
    """The methods that no federation can have, which are no member of a front."""
    return {run.listed.method for run in runs if set(marks_of(run.summary)) & set(NO_MEMBERS)}


def _mean_costs(runs: Sequence[RecordedRun], settings: ParetoSettings, time: str) -> pd.DataFrame:
    """A row a method and setting: accuracy (`score_methods`), mean `time` (its key) and `megabytes` of a run."""
    rows = [
        {
            **dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)),
            time: float(run.cost[time]),
            TRAFFIC: (run.summary.get("bytes_up", 0) + run.summary.get("bytes_down", 0)) / 1e6,
        }
        for run in runs
    ]
    cost = pd.DataFrame(rows).groupby(frames.IDS, sort=False)[[time, TRAFFIC]].mean().reset_index()
    return score_methods(runs, settings).merge(cost, on=frames.IDS)


def _on_front(table: pd.DataFrame, cost: str, apart: Collection[str]) -> pd.Series:
    """Whether no other member of the same setting is as accurate for as little; a row of `table` each."""
    members = table[~table["method"].isin(apart)]
    front = [
        flag
        for _, here in members.groupby(frames.IDS[:3], sort=False)
        for flag in zip(here.index, non_dominated(here[cost].tolist(), here["mean"].tolist()), strict=True)
    ]
    return pd.Series(dict(front), dtype=bool).reindex(table.index, fill_value=False)


KIND = FigureKind(settings=ParetoSettings, draw=_draw_pareto, example={"noises": ["sym40"]})

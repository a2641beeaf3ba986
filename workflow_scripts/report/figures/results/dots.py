"""Test accuracy of every method in every setting. Each dot is a mean, and each tick a seed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from workflow_scripts.report.figures.axis_minimum import find_axis_minimum
from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.results.common import (
    annotate_point,
    find_best,
    finish_figure,
    in_settings,
    legend_labels,
    metric_words,
    name_rows,
    not_compared,
    of_setting,
    rank_methods,
    score_methods,
    sign_handles,
    split_clean_settings,
)
from workflow_scripts.report.figures.style import (
    BASELINE,
    CEILING,
    DOT,
    QUIET,
    SIZE,
    Look,
    add_legend_below,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
)
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.ranking import find_baseline
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import count_words, format_number
from workflow_scripts.report.text.escape import wrap_text

TICK: dict[str, Any] = {"marker": "|", "linestyle": "none", "markersize": 7, "markeredgewidth": 1.1}
LEAST = 0.4  # inches: smallest height of a panel, since the axis of one short row needs room


class DotsSettings(AccuracySettings):
    """Test accuracy of every method. Each row is a method, each dot a mean, each tick a seed, FedAvg a line.

    Runs on clean labels are lines, too. There is one panel per setting. The method with the highest mean over the
    settings is at the top. The highest mean of a panel has its number. Methods that no federation can have are hollow
    dots.
    """


def _draw_dots(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: DotsSettings) -> Drawn:
    table, (panels, clean) = score_methods(runs, settings.metric), split_clean_settings(runs, several_apart=True)
    scores, base = in_settings(table, panels), find_baseline(runs)
    order, names = rank_methods(scores), Names.of_runs(run for run in runs if run.listed.setting in panels)
    apart, why = not_compared([run for run in runs if run.listed.method in order])
    figure, axes, places = _place_rows(runs, order, [names.title(setting) for setting in panels], apart, settings)
    seeds = frames.tabulate_results(runs).set_index([*frames.IDS])[settings.metric]
    dotted, several, best = None, table["n"].max() > 1, find_best(scores, apart)
    low = _set_x_range(axes, scores, panels, top=np.nanmax([-np.inf, *table["high"]]))
    for axis, setting in zip(axes, panels, strict=True):
        dotted = _draw_ceilings(axis, table, clean, setting) or dotted
        for _, row in of_setting(scores, setting).dropna(subset=["mean"]).iterrows():
            method, values = row["method"], list(seeds.loc[[(*setting, row["method"])]])
            point, colour = (row["mean"], places[method]), looks[method].colour
            _draw_method(axis, point, values, colour, (setting, method) in apart, low)
            if method == best.get(setting) and row["mean"] >= low:  # the axis may start after it
                annotate_point(axis, format_number(row["mean"], 1), (min(values), point[1]), -5, ha="right")
            if method == base:
                axis.axvline(row["mean"], **BASELINE)
    labels = {run.listed.method: run.label for run in runs}
    lines = [Line2D([], [], color=QUIET, label="mean" if several else "one seed", **DOT)]
    lines += [Line2D([], [], color=QUIET, label="one seed", **TICK)] if several else []
    lines += [Line2D([], [], label=labels[base], **BASELINE)] if base else []
    lines += [Line2D([], [], label=dotted, **CEILING)] if dotted else []
    label_outer_axes(axes, "test accuracy, %", "")
    add_legend_below(figure, [*lines, *sign_handles(why)])
    caption = f"Test accuracy ({metric_words(settings)}), {count_words(scores['n'])}. "
    caption += "Sorted by the mean over the settings." if len(panels) > 1 else "Sorted by the mean."
    caption += f" The axes start at {low:.3g}; ◂ marks a mean below it." if np.isfinite(low) else ""
    caption += " No dot: no accuracy." if scores["mean"].isna().any() else ""
    title, shape = "Accuracy of every method", "dots, one row per method"
    return finish_figure(figure, scores, settings, title, caption, scores, runs, names, clean, shape=shape)


def _place_rows(
    runs: Sequence[RecordedRun],
    order: Sequence[str],
    heads: Sequence[str],
    apart: Collection[tuple[Setting, str]],
    settings: DotsSettings,
) -> tuple[Figure, list[Axes], dict[str, float]]:
    """Make the panels, with one row per method from the top. Returns also the position of each row."""
    width, labels = width_inches(settings), legend_labels(runs)
    method_labels = [wrap_text(labels[m], 26 if width > 5 else 17) for m in order]
    sizes = np.array([0.05 + (word.count("\n") + 1) * SIZE * 1.3 / 72 for word in method_labels])  # inches
    columns = min(4 if width > 5 else 2, len(heads))
    height = max(sizes.sum(), LEAST) + 0.45 + 0.12 * max(1, max(map(len, heads)) // 14)
    figure, axes = make_panels(len(heads), settings, height, columns, sharex=True, sharey=True)
    places = (np.cumsum(sizes) - sizes / 2).tolist()
    set_titles(axes, heads)
    for axis in axes:
        axis.set_ylim(sizes.sum() + 0.02, -0.02)
        name_rows(axis, method_labels, order, runs, apart, places)
        axis.tick_params(axis="x", labelbottom=True)
        axis.xaxis.set_major_locator(MaxNLocator(6 if columns == 1 else 4 if width > 5 else 3))
        axis.grid(axis="y", linewidth=0.4)
    return figure, axes, dict(zip(order, places, strict=True))


def _set_x_range(axes: Sequence[Axes], table: pd.DataFrame, panels: Sequence[Setting], top: float) -> float:
    """Start the x axes so that most means can be distinguished and none of their seeds is cut off. End them at `top`.

    They end later if a value is above `top`. Returns the start, or -inf if nothing is left out.
    """
    if not table["mean"].notna().any():
        return -np.inf
    least, most = table["low"].min(), max(table["high"].max(), top)
    start = find_axis_minimum(*(list(of_setting(table, setting)["mean"]) for setting in panels))
    low = -np.inf if start is None else min([start, *table["low"][table["mean"] >= start]])
    cut = low > least
    start = low if cut else least - 0.05 * (most - least) - 0.5
    for axis in axes:
        axis.set_xlim(start, most + 0.05 * (most - start) + 0.5)
    return low if cut else -np.inf


def _draw_method(
    axis: Axes, point: tuple[float, float], ticks: Sequence[float], colour: str, hollow: bool, low: float
) -> None:
    """Draw a method's mean as a dot, and several values as ticks. A mean below the axis's start `low` is a number."""
    mean, y = point
    if mean < low:
        text = f"◂\u202f{mean:.0f}"
        axis.annotate(text, (low, y), (2, 0), textcoords="offset points", fontsize=SIZE - 0.5, va="center")
        return
    if len(ticks) > 1:
        axis.plot(ticks, [y] * len(ticks), color=colour, zorder=2.5, **TICK)
    axis.plot([mean], [y], color=colour, markerfacecolor="white" if hollow else colour, zorder=3, **DOT)


def _draw_ceilings(axis: Axes, table: pd.DataFrame, clean: Mapping[Setting, None], setting: Setting) -> str | None:
    """Draw a dotted line at the accuracies on clean labels of the same data set and partition; returns its name."""
    name = None
    for key in clean:
        if (key.dataset, key.partition) == (setting.dataset, setting.partition):
            for _, row in of_setting(table, key).dropna(subset=["mean"]).iterrows():
                axis.axvline(row["mean"], zorder=1, **CEILING)
                name = f"{row['method_label']}, no noise"
    return name


KIND = FigureKind(settings=DotsSettings, draw=_draw_dots, example={"metric": "last"})

"""Test accuracy of every method in every setting: a dot a mean, a tick a seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
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
LEAST = 0.4  # inches: what one short row leaves for its axis is else nothing


class Rows:
    """A figure whose rows are methods and whose panels are settings.

    Args:
        runs: The runs of the figure.
        shown: Settings with a panel.
        order: The methods, the highest at the top.
        looks: The look of each method.
        settings: The figure's settings.
    """

    def __init__(
        self,
        runs: Sequence[RecordedRun],
        panels: Sequence[Setting],
        order: Sequence[str],
        looks: Mapping[str, Look],
        settings: Any,
    ) -> None:
        self.runs, self.looks = [run for run in runs if run.listed.method in order], looks
        width = width_inches(settings)
        self.names, labels = Names.of_runs(run for run in runs if run.listed.setting in panels), legend_labels(runs)
        self.hollow, self.why = not_compared(self.runs)
        method_labels = [wrap_text(labels[m], 26 if width > 5 else 17) for m in order]
        sizes = np.array([0.05 + (word.count("\n") + 1) * SIZE * 1.3 / 72 for word in method_labels])  # inches
        columns = min(4 if width > 5 else 2, len(panels))
        heads = [self.names.title(setting) for setting in panels]
        height = max(sizes.sum(), LEAST) + 0.45 + 0.12 * max(1, max(map(len, heads)) // 14)
        self.figure, self.axes = make_panels(len(panels), settings, height, columns, sharex=True, sharey=True)
        places = np.cumsum(sizes) - sizes / 2
        self.place = dict(zip(order, places.tolist(), strict=True))
        self.low: float | None = None
        set_titles(self.axes, heads)
        for axis in self.axes:
            axis.set_ylim(sizes.sum() + 0.02, -0.02)
            name_rows(axis, method_labels, order, runs, self.hollow, places.tolist())
            axis.tick_params(axis="x", labelbottom=True)
            axis.xaxis.set_major_locator(MaxNLocator(6 if columns == 1 else 4 if width > 5 else 3))
            axis.grid(axis="y", linewidth=0.4)

    def set_x_range(self, table: pd.DataFrame, panels: Sequence[Setting], top: float) -> str:
        """Start the x axis where most means stand apart, and cut off no seed of these.

        Args:
            table: Columns `mean`, `low` and `high`, a row a method and setting.
            panels: Settings with a panel.
            top: The axis ends there or later.

        Returns:
            The caption's sentence about what is left out.
        """
        if not table["mean"].notna().any():
            return ""
        least, most = table["low"].min(), max(table["high"].max(), top)
        start = find_axis_minimum(*(list(of_setting(table, setting)["mean"]) for setting in panels))
        if start is not None:
            start = min([start, *table["low"][table["mean"] >= start]])
            self.low = start if start > least else None
        start = least - 0.05 * (most - least) - 0.5 if self.low is None else self.low
        for axis in self.axes:
            axis.set_xlim(start, most + 0.05 * (most - start) + 0.5)
        if self.low is None:
            return ""
        return f" The axes start at {self.low:.3g}; ◂ marks a mean below it."

    def draw_method(
        self, axis: Axes, setting: Setting, method: str, mean: float, ticks: Sequence[float], best: bool
    ) -> None:
        """Draw a method's mean as a dot, hollow if the method is not compared, and its values as ticks.

        Args:
            axis: The setting's panel.
            setting: The setting.
            method: The method.
            mean: Place of the dot.
            ticks: Several values, or one, which has no tick.
            best: Whether the mean is written beside the dot.
        """
        y, apart = self.place[method], (setting, method) in self.hollow
        if self.low is not None and mean < self.low:
            text = f"◂\u202f{mean:.0f}"
            axis.annotate(text, (self.low, y), (2, 0), textcoords="offset points", fontsize=SIZE - 0.5, va="center")
            return
        colour = self.looks[method].colour
        if len(ticks) > 1:
            axis.plot(ticks, [y] * len(ticks), color=colour, zorder=2.5, **TICK)
        axis.plot([mean], [y], color=colour, markerfacecolor="white" if apart else colour, zorder=3, **DOT)
        if best:
            annotate_point(axis, format_number(mean, 1), (min(ticks), y), -5, ha="right")  # the axis may end behind it

    def add_legend(self, x: str, dot: str, tick: str, signs: Sequence[Line2D]) -> None:
        """Say under the panels what the signs mean, and what x is.

        Args:
            x: What the x axis shows.
            dot: What a dot is.
            tick: What a tick is; "" if there is none.
            signs: Further signs.
        """
        handles = [Line2D([], [], color=QUIET, label=dot, **DOT)]
        handles += [Line2D([], [], color=QUIET, label=tick, **TICK)] if tick else []
        label_outer_axes(self.axes, x, "")
        add_legend_below(self.figure, [*handles, *signs, *sign_handles(self.why)])


def draw_ceilings(axis: Axes, table: pd.DataFrame, clean: Mapping[Setting, None], setting: Setting) -> str | None:
    """Draw a dotted line at the accuracy of the runs on clean labels of the same data set and partition.

    Args:
        axis: The setting's panel.
        table: Of `score_methods`.
        clean: Settings on clean labels.
        setting: The setting.

    Returns:
        The line's name, or None if there is none.
    """
    name = None
    for key in clean:
        if (key.dataset, key.partition) == (setting.dataset, setting.partition):
            for _, row in of_setting(table, key).dropna(subset=["mean"]).iterrows():
                axis.axvline(row["mean"], zorder=1, **CEILING)
                name = f"{row['method_label']}, no noise"
    return name


class DotsSettings(AccuracySettings):
    """Test accuracy of every method, a row a method, a dot the mean, a tick a seed; FedAvg and clean runs are lines.

    One panel a setting. The highest mean over the settings is at the top. The highest of a panel has its number. What
    no federation can have is a hollow dot.
    """


def _draw_dots(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: DotsSettings) -> Drawn:
    table, (panels, clean) = score_methods(runs, settings.metric), split_clean_settings(runs, several_apart=True)
    scores = in_settings(table, panels)
    rows, base = Rows(runs, panels, rank_methods(scores), looks, settings), find_baseline(runs)
    seeds = frames.tabulate_results(runs).set_index([*frames.IDS])[settings.metric]
    dotted, several, best = None, table["n"].max() > 1, find_best(scores, rows.hollow)
    cut = rows.set_x_range(scores, panels, top=np.nanmax([-np.inf, *table["high"]]))
    for axis, setting in zip(rows.axes, panels, strict=True):
        dotted = draw_ceilings(axis, table, clean, setting) or dotted
        for _, row in of_setting(scores, setting).dropna(subset=["mean"]).iterrows():
            method, values = row["method"], list(seeds.loc[[(*setting, row["method"])]])
            rows.draw_method(axis, setting, method, row["mean"], values, method == best.get(setting))
            if method == base:
                axis.axvline(row["mean"], **BASELINE)
    labels = {run.listed.method: run.label for run in runs}
    lines = [Line2D([], [], label=labels[base], **BASELINE)] if base else []
    lines += [Line2D([], [], label=dotted, **CEILING)] if dotted else []
    rows.add_legend("test accuracy, %", "mean" if several else "one seed", "one seed" if several else "", lines)
    caption = f"Test accuracy ({metric_words(settings)}), {count_words(scores['n'])}. "
    caption += "Sorted by the mean over the settings." if len(panels) > 1 else "Sorted by the mean."
    caption += cut
    caption += " No dot: no accuracy." if scores["mean"].isna().any() else ""
    title, shape = "Accuracy of every method", "dots, a row a method"
    return finish_figure(rows.figure, scores, settings, title, caption, scores, runs, rows.names, clean, shape=shape)


KIND = FigureKind(settings=DotsSettings, draw=_draw_dots, example={"metric": "last"})

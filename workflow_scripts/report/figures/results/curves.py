"""Test accuracy over rounds or work."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pydantic import Field

from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.line_labels import LineEnd, fit_panels
from workflow_scripts.report.figures.results.common import (
    find_best,
    finish_figure,
    finish_panels,
    in_settings,
    legend_labels,
    metric_words,
    not_compared,
    of_setting,
    rank_methods,
    score_methods,
    sign_handles,
    smooth_accuracies,
    split_clean_settings,
)
from workflow_scripts.report.figures.style import (
    CEILING,
    Look,
    add_legend_below,
    make_panels,
    style_dense_lines,
    width_inches,
)
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.ranking import find_baseline
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import count_words, format_number

FEW = 5  # most lines of a panel that all have bands, colours and names; more would be confusing
BEST = 3  # if there are more methods, so many of the best have a colour
FULL, OWN = 1.3, 2.2  # points: the width of the lines of FedAvg and of the best, and of the study's own methods
THIN: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.6}  # neither own, nor best, nor FedAvg
PALE: dict[str, Any] = {"color": "#949494", "linestyle": "-", "linewidth": 0.8}
Looks = Mapping[str, Mapping[str, Any]]


class CurvesSettings(AccuracySettings):
    """Test accuracy over rounds or work, with values and names beside each panel; clean runs are dotted.

    There is one panel per setting. The value is the `metric` of the tables. A line shows the mean of the last ten
    evaluations, or of a quarter of all evaluations if these are fewer than 40. With the metric last it shows single
    evaluations. Up to five methods of a panel have bands from the lowest to the highest seed. With more methods, only
    the three best over the settings, FedAvg and the study's own have a colour and a name, and the others are grey. The
    study's own methods are thick lines. All others except FedAvg and the best of a panel are thin. A line stops at a
    cross before the first evaluation for which a seed has no finite number. What no federation can have is
    last and has hollow markers, except the study's own.
    """

    x: Annotated[Literal["round", "work"], Field(description="work: passes over samples, in rounds of FedAvg.")] = (
        "round"
    )
    metric: Annotated[
        Literal["last", "last10_mean"],
        Field(description="The value beside the panel: last round, or mean of the last ten evaluations."),
    ] = "last10_mean"


def _draw_curves(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: CurvesSettings) -> Drawn:
    x = settings.x
    over, axis_label = ("rounds", "round") if x == "round" else (x, "work (rounds of FedAvg)")
    table, window = _mean_curves(runs, settings)
    at_end, (panels, ceiling) = score_methods(runs, settings.metric), split_clean_settings(runs, several_apart=True)
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in panels), legend_labels(runs)
    apart, why = not_compared(runs)
    best = find_best(at_end, apart)
    # of the methods whose lines are thin in no panel
    widths = {find_baseline(runs): FULL} | {run.listed.method: OWN for run in runs if run.listed.own}
    pale = _pale_methods(at_end, panels, [*widths, *best.values()])
    own = {run.listed.method for run in runs if run.listed.own}
    above = {setting: _clean_runs(at_end, ceiling, setting) for setting in panels}
    listed = [
        [*(labels[m] for m in of_setting(table, key)["method"].unique() if m not in pale), *above[key].values()]
        for key in panels
    ]
    columns, height = fit_panels(listed, width_inches(settings))
    single = len({key.dataset for key in panels}) == 1
    figure, axes = make_panels(len(panels), settings, height, columns, sharex=True, sharey=single)
    few = max(of_setting(table, setting)["method"].nunique() for setting in panels) <= FEW
    band, ends = few and table["n"].max() > 1, []
    for axis, setting in zip(axes, panels, strict=True):
        values = {row["method"]: row["mean"] for _, row in of_setting(at_end, setting).iterrows()}
        clean = _draw_ceilings(axis, table, at_end, above[setting])
        first, hollow = best.get(setting), [method for method in values if (setting, method) in apart]
        styles = _style_lines(looks, at_end["method"].unique(), pale, hollow, {first: FULL} | widths)
        lines = _draw_lines(axis, of_setting(table, setting), styles, labels, band, values, first, {*hollow} - own)
        ends.append([*lines, *clean])
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=x == "round"))
        axis.set_xlim(0, 1.01 * float(table["x"].max() or 1))
    heads = [names.title(key) for key in panels]
    cut = finish_panels(axes, heads, [key.dataset for key in panels], axis_label, ends, window)
    add_legend_below(figure, sign_handles(why))
    caption = _describe_curves(runs, table, settings, window, band) + cut
    if pale:
        caption += f" Named: the {BEST} best over the settings, the best of each, FedAvg. Grey: {len(pale)} others."
    table = table.rename(columns={"x": x} if x != "round" else {})
    title = f"Accuracy over {over}"
    look: dict[str, Any] = {"dotted": bool(ceiling), "shape": f"lines over {over}"}
    return finish_figure(figure, table, settings, title, caption, at_end, runs, names, ceiling, **look)


def _style_lines(
    looks: Mapping[str, Look],
    methods: Iterable[str],
    pale: Collection[str],
    hollow: Collection[str],
    widths: Mapping[str | None, float],
) -> dict[str, Any]:
    """Choose the style of each method's line in a panel: grey, as wide as `widths` says, or thin."""
    styles: dict[str, Any] = dict.fromkeys(pale, PALE)
    for method, style in style_dense_lines(looks, [name for name in methods if name not in pale], hollow).items():
        styles[method] = style | ({"linewidth": widths[method]} if method in widths else THIN)
    return styles


def _mean_curves(runs: Sequence[RecordedRun], settings: CurvesSettings) -> tuple[pd.DataFrame, str]:
    """Make one row per method, setting and evaluated round. Also returns the window of the mean `drawn` in words.

    Columns over the `n` seeds, in %: `x`; mean and std of the evaluation; mean (`drawn`), spread, low and high of the
    trailing mean.
    """
    each, window = smooth_accuracies(runs, settings)
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
    return table if settings.x == "work" else table.assign(x=table["round"].astype(float)), window


def _pale_methods(at_end: pd.DataFrame, panels: Sequence[Setting], highlighted: Collection[str | None]) -> list[str]:
    """List the methods that are neither `highlighted` nor among the best in the mean over the settings, if many."""
    order = rank_methods(in_settings(at_end, panels))
    return [method for method in order[BEST:] if method not in highlighted] if len(order) > FEW else []


def _draw_lines(
    axis: Axes,
    table: pd.DataFrame,
    styles: Looks,
    labels: Mapping[str, str],
    band: bool,
    values: Mapping[str, float],
    best: str | None,
    apart: Collection[str],
) -> list[LineEnd]:
    """Draw the methods of one panel. Returns the ends of named lines. A diverged method has no value at its end."""
    ends = []
    for method, points in table.groupby("method", sort=False):
        style, line = styles[str(method)], points.dropna(subset=["drawn"])
        grey = style is PALE
        axis.plot(line["x"], line["drawn"], label=labels[str(method)], zorder=2.2 if grey else 3, **style)
        if len(line) < len(points):
            cross: dict[str, Any] = {"marker": "x", "markersize": 6, "markeredgewidth": 1.4, "zorder": 4.5}
            axis.plot(line["x"][-1:], line["drawn"][-1:], color=style["color"], **cross)  # a run diverged
        if band and not grey:
            axis.fill_between(
                line["x"], line["low"], line["high"], color=style["color"], alpha=0.13, linewidth=0, zorder=2
            )
        if grey:
            continue
        end = _line_end(line, labels[str(method)], style, values[str(method)])
        ends.append(replace(end, bold=method == best, apart=method in apart))
    return ends


def _line_end(line: pd.DataFrame, name: str, style: Mapping[str, Any], value: float) -> LineEnd:
    """Return the end of a line, at the value of the tables.

    Without a value (the method diverged) the end is the last point of the line.
    """
    if line.empty:
        return LineEnd(math.nan, name, dict(style))
    finite = math.isfinite(value)
    y = value if finite else float(line["drawn"].iloc[-1])
    return LineEnd(y, name, dict(style), format_number(value, 1) if finite else "")


def _clean_runs(
    at_end: pd.DataFrame, ceiling: Mapping[Setting, None], setting: Setting
) -> dict[tuple[Setting, str], str]:
    """The method on clean labels of a setting's data set and partition, with its name."""
    labels = {}
    for clean in ceiling:
        if (clean.dataset, clean.partition) == (setting.dataset, setting.partition):
            for _, row in of_setting(at_end, clean).iterrows():
                labels[clean, str(row["method"])] = f"{row['method_label']}, no noise"
    return labels


def _draw_ceilings(
    axis: Axes,
    table: pd.DataFrame,
    at_end: pd.DataFrame,
    above: Mapping[tuple[Setting, str], str],
) -> list[LineEnd]:
    """Draw the runs on clean labels, dotted; their ends."""
    ends = []
    for (clean, method), name in above.items():
        line = of_setting(table, clean)
        line = line[line["method"] == method].dropna(subset=["drawn"])
        value = of_setting(at_end, clean).set_index("method")["mean"][method]
        axis.plot(line["x"], line["drawn"], label="_", zorder=1.5, **CEILING)
        ends.append(replace(_line_end(line, name, CEILING, float(value)), apart=True))
    return ends


def _describe_curves(
    runs: Sequence[RecordedRun], table: pd.DataFrame, settings: CurvesSettings, window: str, band: bool
) -> str:
    text = f"Test accuracy {_rounds_words(runs)}"
    text += f", the mean of the last {window}" if window else ""
    text += f", {count_words(table['n'])}" if table["n"].max() > 1 else ", one seed"
    text += ", bands from the lowest to the highest." if band else "."
    text += f" Numbers: {metric_words(settings)}."
    text += " Work counts passes over samples." if settings.x == "work" else ""
    return text


def _rounds_words(runs: Sequence[RecordedRun]) -> str:
    """Which rounds were evaluated, in words."""
    intervals = {int(run.spec.get("train", {}).get("eval_every", 1)) for run in runs}
    if intervals == {1}:
        return "after every round"
    if len(intervals) > 1 or any("eval_last" in run.spec.get("train", {}) for run in runs):
        return "after the rounds that were evaluated"
    return f"after every {intervals.pop()} rounds"


KIND = FigureKind(settings=CurvesSettings, draw=_draw_curves, example={"partitions": ["iid"], "x": "work"}, live=True)

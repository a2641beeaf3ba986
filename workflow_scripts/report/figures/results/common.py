"""Parts that the figures of results share: scores, panels' selections, error bars, captions."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from workflow_scripts.report.figures.kind import AccuracySettings, Drawn
from workflow_scripts.report.figures.line_labels import LineEnd, cut_axis_words, label_line_ends, set_y_ranges
from workflow_scripts.report.figures.style import HOLLOW, SIZE, label_outer_axes, set_titles
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.ranking import is_compared, leading_methods
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import METRIC_WORDS, format_number, format_signed, in_setting
from workflow_scripts.report.text.footnotes import (
    NO_MEMBERS,
    WORDS,
    append_words,
    explain_marks,
    explain_true_rates,
    marks_of,
    merge_marks,
)

WIDE = 10  # smallest ratio of largest to smallest value for a logarithmic axis


def score_methods(runs: Sequence[RecordedRun], metric: str) -> pd.DataFrame:
    """Compute the accuracy of every method in every setting.

    Args:
        runs: The runs of the figure.
        metric: One of `run.METRICS`.

    Returns:
        One row per method and setting, in percent: `mean`, `std` (sample standard deviation), `low` and `high` over `n`
        runs. All are NaN if a run diverged.
    """
    grouped = frames.tabulate_results(runs).groupby([*frames.IDS, "method_label"], sort=False)
    values = grouped[metric]
    table = values.agg(n="size", mean="mean", std="std", low="min", high="max")
    table.loc[grouped["diverged"].any(), ["mean", "std", "low", "high"]] = np.nan
    return table.reset_index()


def smooth_accuracies(runs: Sequence[RecordedRun], settings: AccuracySettings) -> tuple[pd.DataFrame, str]:
    """Compute the trailing mean of every run's accuracies.

    Args:
        runs: The runs of the figure.
        settings: `metric` says which accuracy it is.

    Returns:
        The frame of `frames.by_round`, and how many evaluations the mean is over, in words. They are "" if it is over
        one, as for the accuracy of the last round.
    """
    frame = frames.by_round(runs, 1 if settings.metric == "last" else None)
    least, most = int(frame["window"].min()), int(frame["window"].max())
    if most == 1:
        return frame, ""
    return frame, f"{most} evaluations" if least == most else f"{least} to {most} evaluations, a quarter of a run's"


def metric_words(settings: AccuracySettings) -> str:
    """Say in words which accuracy a figure shows.

    Args:
        settings: Its `metric`, such as "last", stands for "last round".
    """
    return METRIC_WORDS[settings.metric]


def find_common_time(runs: Sequence[RecordedRun]) -> tuple[str, str]:
    """Choose the kind of time by which runs are compared.

    It is CPU seconds if every run was on a CPU and recorded them, because other processes lengthen the wall time.
    Otherwise it is the wall time.

    Args:
        runs: The runs, of `list_timed`.

    Returns:
        Its key in cost.json, and words with the unit.
    """
    cpu = all(run.on_cpu and run.cost.get("cpu_seconds") is not None for run in runs)
    return ("cpu_seconds", "CPU seconds a run") if cpu else ("seconds", "seconds a run (wall time)")


def split_clean_settings(
    runs: Sequence[RecordedRun], several_apart: bool = False
) -> tuple[list[Setting], dict[Setting, None]]:
    """Split the settings of runs by whether their labels are clean.

    Args:
        runs: The runs.
        several_apart: If several methods ran on clean labels, give these settings panels, since several dotted lines
            could not be distinguished.

    Returns:
        The settings with a panel, and the settings on clean labels, which are drawn into the panels of the others.
    """
    unspoilt = [run for run in runs if is_noiseless(run.spec.get("noise", {}))]
    several = several_apart and len({run.listed.method for run in unspoilt}) > 1
    clean = {} if several else {run.listed.setting: None for run in unspoilt}
    settings = dict.fromkeys(run.listed.setting for run in runs)
    noisy = [key for key in settings if key not in clean]
    return (noisy, clean) if noisy else (list(settings), {})


def of_setting(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Select the rows of one setting.

    Args:
        table: Columns `dataset`, `noise` and `partition`.
        setting: Their ids.
    """
    return table[in_setting(table, setting)]


def in_settings(table: pd.DataFrame, panels: Collection[Setting]) -> pd.DataFrame:
    """Select the rows of several settings, with an index from 0.

    Args:
        table: Columns `dataset`, `noise` and `partition`.
        panels: Their ids.
    """
    return table[[tuple(key) in panels for key in table[frames.IDS[:3]].to_numpy()]].reset_index(drop=True)


def rank_methods(table: pd.DataFrame, apart: Collection[tuple[Setting, str]] = ()) -> list[str]:
    """Sort the methods by their mean over the settings, the highest first.

    Args:
        table: Of `score_methods`.
        apart: Result of `not_compared`. Methods that are compared in none of the table's settings come last.

    Returns:
        Ids of the methods.
    """
    fair = list_compared(table, apart)
    means = table.groupby("method", sort=False)["mean"].mean().sort_values(ascending=False, kind="stable")
    return sorted(means.index, key=lambda method: method not in fair)


def find_best(table: pd.DataFrame, apart: Collection[tuple[Setting, str]]) -> dict[Setting, str]:
    """Find the method with the highest mean among those that are compared.

    Args:
        table: Of `score_methods`.
        apart: Of `not_compared`.

    Returns:
        The method of each setting in which a method has a mean.
    """
    fair = table[[ids not in apart for ids in list_ids(table)]].dropna(subset=["mean"])
    return dict(reversed(list_ids(fair.sort_values("mean", ascending=False, kind="stable"))))


def list_compared(table: pd.DataFrame, apart: Collection[tuple[Setting, str]]) -> set[str]:
    """The methods that are compared in some setting of a table. `apart`: of `not_compared`."""
    return {ids[1] for ids in list_ids(table) if ids not in apart}


def list_ids(table: pd.DataFrame) -> list[tuple[Setting, str]]:
    """The setting and the method of each row of a table."""
    return [(Setting(*ids[:3]), ids[3]) for ids in table[frames.IDS].itertuples(index=False, name=None)]


def legend_labels(runs: Sequence[RecordedRun]) -> dict[str, str]:
    """Name the methods in the legend.

    Returns:
        Id of a method → its label with the meaning of its marks and its number of diverged runs.
    """
    labels = {run.listed.method: append_words(run.label, marks_of(run.summary)) for run in runs}
    for method in labels:
        lost = [run.diverged for run in runs if run.listed.method == method]
        labels[method] += f", diverged ({sum(lost)} of {len(lost)})" if any(lost) else ""
    return labels


def not_compared(runs: Sequence[RecordedRun]) -> tuple[set[tuple[Setting, str]], str]:
    """Find the methods that are not compared with the others in a setting.

    Returns:
        Pairs of setting and method, and words for the legend ("" without such pairs). A method is not compared if no
        federation can have it, or if its own noise rate is that of the setting.
    """
    frame = frames.tabulate_results(runs)
    unfair = {
        (run.listed.setting, run.listed.method)
        for run, assumes_rate, mark in zip(runs, frame["as_told"], frame["marks"], strict=True)
        if assumes_rate or not is_compared([mark])
    }
    why = "not a fair comparison"
    if frame["as_told"].any():  # labels do not show it
        marked = [WORDS[mark] for mark in NO_MEMBERS if mark in merge_marks(frame["marks"])]
        why += f": {' or '.join([*marked, 'assumes the true noise rate'])}"
    return unfair, why if unfair else ""


def sign_handles(why: str, **sign: Any) -> list[Line2D]:
    """Make the legend's entry for methods that are not compared.

    Args:
        why: The words from `not_compared`.
        sign: Keyword arguments of the entry's line, if not a hollow dot.
    """
    return [Line2D([], [], label=why, **(sign or HOLLOW))] if why else []


def annotate_point(axis: Axes, text: str, point: tuple[float, float], shift: float, **look: Any) -> None:
    """Write a number beside a point, on a white background that hides lines.

    Args:
        axis: The panel.
        text: The number.
        point: The point in data units.
        shift: Distance to the right in typographic points.
        look: Keyword arguments of the text.
    """
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
    where: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SIZE - 0.5, "bbox": ground}
    axis.annotate(text, point, (shift, 0), **where, **look)


def name_rows(
    axis: Axes,
    names: Sequence[str],
    order: Sequence[str],
    runs: Sequence[RecordedRun],
    apart: Collection[tuple[Setting, str]] = (),
    places: Sequence[float] | None = None,
) -> None:
    """Write the methods' names beside the rows of a panel instead of an axis. The study's own methods are bold.

    Args:
        axis: The panel.
        names: The name of each row.
        order: The method of each row.
        runs: The runs of the figure.
        apart: Result of `not_compared`: pairs of setting and method that are not compared.
        places: The positions of the rows. Default: 0, 1, ….
    """
    axis.set_yticks(range(len(names)) if places is None else places, names)
    own_methods = {
        run.listed.method for run in runs if run.listed.own and (run.listed.setting, run.listed.method) not in apart
    }
    for label, method in zip(axis.get_yticklabels(), order, strict=False):  # a panel beside another has no names
        label.set_fontweight("bold" if method in own_methods else "normal")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)


def spread_x_axis(axes: Sequence[Axes], values: Iterable[float]) -> None:
    """Make the x axis logarithmic if values are far apart. A value of 0 still has a place on the axis.

    Args:
        axes: The panels.
        values: The values along x.
    """
    ordered = sorted(values)
    above = [value for value in ordered if value > 0]
    if not above or ordered[0] < 0 or above[-1] < WIDE * above[0]:
        return
    for axis in axes:
        if ordered[0] > 0:
            axis.set_xscale("log")
        else:
            axis.set_xscale("symlog", linthresh=10.0 ** math.ceil(math.log10(above[0])), linscale=0.5)
        axis.xaxis.get_major_locator().set_params(subs=(1, 3))  # type: ignore[call-arg]
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.minorticks_off()


def finish_panels(
    axes: Sequence[Axes],
    heads: Sequence[str],
    datasets: Sequence[str],
    x: str,
    ends: Sequence[Sequence[LineEnd]],
    window: str = "",
) -> str:
    """Set titles, ranges of y (equal for panels of a data set) and words at the axes, and name the lines.

    Args:
        axes: The panels.
        heads: Title of each panel.
        datasets: Data set of each panel.
        x: What the x axis shows.
        ends: Line ends of each panel.
        window: How many evaluations the lines are means of, in words, of `smooth_accuracies`.

    Returns:
        The caption's sentence about lines that the axes leave out.
    """
    set_titles(axes, heads)
    starts = set_y_ranges(axes, datasets, ends)
    mean = f",\nmean of {window.partition(',')[0]}" if window else ""  # no longer than a panel is high
    label_outer_axes(axes, x, f"test accuracy, %{mean}")
    label_line_ends(axes, ends)
    below = any(end.y < axis.get_ylim()[0] for axis, panel_ends in zip(axes, ends, strict=True) for end in panel_ends)
    return cut_axis_words(starts, below)


def finish_figure(
    figure: Figure,
    table: pd.DataFrame,
    settings: Any,
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
    """Finish a figure: add its footnotes, and write its alternative text.

    Args:
        figure: The figure.
        table: The drawn data.
        settings: The figure's settings, with `metric` if `which` is not given.
        title: Title on the page.
        caption: What the figure shows.
        end: A frame whose column `mean` ranks the methods in each setting.
        runs: The runs that are shown.
        names: Words of the settings.
        ceiling: Settings on clean labels, for which no best method is named.
        dotted: Whether dotted lines show the same method on clean labels.
        shape: What is drawn, in words.
        which: Which accuracy `mean` is, in words.
        unit: The unit of `mean`. Numbers other than percentages have a sign.
    """
    results = frames.tabulate_results(runs)
    common = names.common(runs[0].listed.setting)
    caption += f" All on {common}." if common else ""
    caption += " Dotted: the same method trained on clean labels." if dotted else ""
    titles = [names.title(run.listed.setting) for run in runs]
    signs = {mark: f"{words.capitalize()}:" for mark, words in WORDS.items()}
    notes = [*explain_marks(results, signs), *explain_true_rates(results.assign(setting=titles))]
    lost = frames.count_diverged(results)
    if lost:
        caption += " A run diverged: its outputs were not finite, so it has no accuracy, nor has a mean with it."
        table = table.assign(diverged=[lost.get(ids, (0, 0))[0] for ids in table[frames.IDS].itertuples(False, None)])
    groups = {
        Setting(*map(str, ids)): group for ids, group in end.dropna(subset=["mean"]).groupby(frames.IDS[:3], sort=False)
    }
    metric = "" if which else settings.metric
    orders = [
        f"{names.title(setting)}: {_order_words(group, of_setting(results, setting), unit, metric)}"
        for setting, group in groups.items()
        if setting not in ceiling
    ]
    methods = int(end["method"].nunique())
    alt = f"{shape}, {methods} method{'s' * (methods != 1)}. "
    alt += (
        f"Highest {which or metric_words(settings)}: {'; '.join(orders)}."
        if orders
        else "None has an accuracy at the end."
    )
    alt += f" Diverged: {'; '.join(frames.diverged_words(runs))}." if lost else ""
    return Drawn(figure, table, settings, title, caption, alt, notes)


def _order_words(group: pd.DataFrame, results: pd.DataFrame, unit: str, metric: str) -> str:
    """Name the highest and the lowest method of a setting. If `metric` is shown, the rule of the tables decides.

    Methods that are not compared are named separately. group: the drawn data of the setting, one row per method.
    results: `tabulate_results` of its runs.
    """
    marks, assumes_rate = (dict(zip(results["method"], results[key], strict=True)) for key in ("marks", "as_told"))
    group = group.sort_values("mean", ascending=False, kind="stable").drop_duplicates("method").set_index("method")
    texts = {
        str(method): f"{append_words(row['method_label'], marks[str(method)])} "
        + (f"{format_number(row['mean'], 1)} {unit}" if unit == "%" else f"{format_signed(row['mean'], 1)} {unit}")
        for method, row in group.iterrows()
    }
    fair = [method for method in texts if is_compared([marks[method]]) and not assumes_rate[method]] or list(texts)
    compared = results[results["method"].isin(fair)]
    best = (leading_methods(compared, metric) if metric and "std" in group else []) or fair[:1]
    rows = list(texts)
    text = texts[best[0]] + (
        f" (not told apart from it: {'; '.join(texts[one] for one in best[1:])})" if best[1:] else ""
    )
    text += f" (not compared: {texts[rows[0]]})" if rows[0] not in fair else ""
    return f"{text}, lowest {texts[rows[-1]]}" if len(rows) > 1 else text

"""Cost of a run of every method, beside its accuracy."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.results.common import (
    annotate_point,
    find_common_time,
    finish_figure,
    in_settings,
    legend_labels,
    list_compared,
    list_ids,
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
    HOLLOW,
    SIZE,
    Look,
    add_legend_below,
    make_panels,
    width_inches,
    wrap_to_width,
)
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.ranking import find_baseline
from workflow_scripts.report.runs.run import RecordedRun, Setting, list_timed
from workflow_scripts.report.text.cells import count_words, format_number
from workflow_scripts.report.text.escape import wrap_text

TRAFFIC = "megabytes"
ALIKE = 1.1  # ratio to the least traffic up to which all traffic counts as equal, and is not drawn
ROOM = 1.22  # ratio of the axis's end to the longest bar, which leaves room for its number
BOX: dict[str, Any] = {**HOLLOW, "marker": "s"}  # of a hollow bar


class CostSettings(AccuracySettings):
    """Accuracy, time and traffic of every method, one row per method, means over the settings shown.

    Only the settings in which the most methods have runs count. The method with the highest accuracy is at the top.
    Methods that no federation can have are at the bottom, with hollow bars. Traffic is left out if all methods send
    about the same. Times are those of the runs on CPUs or of the runs on GPUs, whichever are more.
    """


def _draw_cost(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: CostSettings) -> Drawn:
    panels, _ = split_clean_settings(runs)
    timed = list_timed(runs)
    time, unit = find_common_time(timed)
    table, panels = _keep_common(_mean_costs(runs, timed, settings, time), panels)
    lost = table.loc[table["mean"].isna(), "method"]  # diverged in a setting
    finite, (apart, why) = table.assign(mean=table["mean"].mask(table["method"].isin(lost))), not_compared(runs)
    # a mean over settings is compared if the method is compared in all of them
    unfair = {method for _, method in apart & set(list_ids(table))}
    apart = {ids for ids in list_ids(table) if ids[1] in unfair}
    means = finite.groupby("method")[["mean", time, TRAFFIC]].mean().loc[rank_methods(finite, apart)]
    fair = list_compared(table, apart)
    alike = means[TRAFFIC].max() <= ALIKE * means[TRAFFIC].min()
    heads = {"mean": "test accuracy, %\nbetter ▸", time: f"{unit}\n◂ cheaper"}
    heads |= {} if alike else {TRAFFIC: "MB a run, both ways\n◂ cheaper"}
    labels, width = legend_labels(runs), width_inches(settings)
    method_labels = [wrap_text(labels[method], 26 if width > 5 else 14) for method in means.index]
    row = 0.06 + (1 + max(word.count("\n") for word in method_labels)) * SIZE * 1.3 / 72  # inches
    figure, axes = make_panels(len(heads), settings, row * len(method_labels) + 0.55, len(heads), sharey=True)
    figure.set_figwidth(width)
    for axis, (key, head) in zip(axes, heads.items(), strict=True):
        _draw_bars(axis, means[key], [looks[method].colour for method in means.index], means.index.isin(fair))
        axis.set_title("\n".join(wrap_to_width(line, (width - 1.8) / len(heads)) for line in head.split("\n")))
    base, handles = str(find_baseline(runs)), sign_handles(why if apart else "", **BOX)
    if base in means.index:
        handles.insert(0, Line2D([], [], label=labels[base], **BASELINE))
        for axis, key in zip(axes, heads, strict=True):
            axis.axvline(float(means[key][base]), **BASELINE)
    name_rows(axes[0], method_labels, list(means.index), runs, apart)
    axes[0].set_ylim(len(method_labels) - 0.4, -0.6)
    add_legend_below(figure, handles)
    names = Names.of_runs(run for run in runs if run.listed.setting in panels)
    caption = f"Test accuracy ({metric_words(settings)}) and cost of a run, {count_words(table['n'])}"
    caption += f", means over {len(panels)} settings." if len(panels) > 1 else "."
    caption += f" All send about the same, {means[TRAFFIC].mean():,.1f} MB a run." if alike else ""
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in timed}))
    caption += f" Device: {device}."
    caption += " Times are without runs on another kind of device." if len(timed) < len(runs) else ""
    shape = "bars of accuracy and cost, one row per method"
    return finish_figure(figure, table, settings, "Accuracy and cost", caption, table, runs, names, {}, shape=shape)


def _keep_common(table: pd.DataFrame, panels: Sequence[Setting]) -> tuple[pd.DataFrame, list[Setting]]:
    """Keep the settings with the most methods, so that means are over equal settings. Returns their rows, and them."""
    methods = {setting: set(of_setting(table, setting)["method"]) for setting in panels}
    most = max(methods.values(), key=len)
    common = [setting for setting in panels if methods[setting] == most]
    return in_settings(table, common), common


def _draw_bars(axis: Axes, values: pd.Series, colours: Sequence[str], fair: Iterable[bool]) -> None:
    """Draw one bar per row with its number behind it. A method that diverged has no bar."""
    lengths = values.fillna(0)
    faces = [colour if full else "white" for colour, full in zip(colours, fair, strict=True)]
    axis.barh(range(len(values)), lengths, color=faces, edgecolor=colours, height=0.62, zorder=2)
    for place, value in enumerate(values):
        annotate_point(axis, format_number(value, int(value < 1000)), (lengths.iloc[place], place), 3)
    axis.set_xlim(0, ROOM * max(lengths.max(), 1e-9))
    axis.set_xticks([])
    axis.grid(False)
    axis.tick_params(axis="y", length=0)
    axis.spines[["left", "bottom"]].set_visible(False)


def _mean_costs(
    runs: Sequence[RecordedRun], timed: Sequence[RecordedRun], settings: CostSettings, time: str
) -> pd.DataFrame:
    """Make one row per method and setting: accuracy (`score_methods`), and a run's mean `time` and `megabytes`."""
    timed_runs = {run.listed for run in timed}
    rows: list[dict[str, Any]] = [
        {
            **dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)),
            time: float(run.cost[time]) if run.listed in timed_runs else np.nan,
            TRAFFIC: (run.summary.get("bytes_up", 0) + run.summary.get("bytes_down", 0)) / 1e6,
        }
        for run in runs
    ]
    cost = pd.DataFrame(rows).groupby(frames.IDS, sort=False)[[time, TRAFFIC]].mean().reset_index()
    return score_methods(runs, settings.metric).merge(cost, on=frames.IDS)


KIND = FigureKind(settings=CostSettings, draw=_draw_cost, example={"noises": ["sym40"]})

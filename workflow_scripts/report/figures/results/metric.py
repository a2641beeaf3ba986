"""Any metric that methods report by round, such as the accuracy that they monitor."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from pydantic import Field

from fednoise_core.io import SpecError
from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.line_labels import LineEnd, fit_panels, label_line_ends
from workflow_scripts.report.figures.results.common import (
    legend_labels,
    list_ids,
    of_setting,
)
from workflow_scripts.report.figures.style import (
    QUIET,
    Look,
    add_legend_below,
    label_outer_axes,
    make_panels,
    set_titles,
    style_dense_lines,
    width_inches,
    wrap_to_width,
)
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import count_words

MEANINGS = {
    "T_cosine": "cosine with the true noise matrix T (1 = right)",
    "watched_accuracy": "accuracy that the stopping rule watches",
}
TURN: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (1.2, 1.6))}


class MetricSettings(FigureSettings):
    """Any metric that methods report by round (metrics.parquet, diagnostics.parquet), and where their phases start.

    One panel per setting, mean of the seeds.
    """

    metric: Annotated[
        str,
        Field(
            min_length=1,
            description="Its name, such as watched_accuracy, T_cosine, noisy_client_auroc; methods without it are left "
            "out.",
        ),
    ] = "accuracy"


def _draw_metric(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: MetricSettings) -> Drawn:
    labels, table = legend_labels(runs), _mean_by_round(runs, settings.metric)
    panels = [key for key in dict.fromkeys(run.listed.setting for run in runs) if len(of_setting(table, key))]
    reporting = list_ids(table.drop_duplicates(frames.IDS))
    reporting_runs = [run for run in runs if (run.listed.setting, run.listed.method) in reporting]
    names = Names.of_runs(reporting_runs)
    share = "accuracy" in settings.metric
    metric_name = MEANINGS.get(settings.metric, settings.metric.replace("_", " "))
    scaled = table.assign(mean=table["mean"] * (100 if share else 1))
    listed = [[labels[m] for m in of_setting(table, key)["method"].unique()] for key in panels]
    columns, height = fit_panels(listed, width_inches(settings))
    figure, axes = make_panels(len(panels), settings, height, columns, sharex=True, sharey=True)
    ends, turns = [], dict[tuple[str, str], None]()
    for axis, setting in zip(axes, panels, strict=True):
        lines = of_setting(scaled, setting)
        ends.append(_draw_lines(axis, lines, style_dense_lines(looks, table["method"].unique()), labels))
        turns |= _draw_phases(axis, [run for run in reporting_runs if run.listed.setting == setting], looks, labels)
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes[0].set_xlim(0, 1.02 * max(axis.dataLim.xmax for axis in axes))  # of all panels
    set_titles(axes, [names.title(setting) for setting in panels])
    label_outer_axes(axes, "round", wrap_to_width(metric_name + ", %" * share, height - 0.3))
    label_line_ends(axes, ends)
    once = len({label for label, _ in turns}) == len(turns)
    event = Line2D([], [], color=QUIET, label="first phase stops" if once else "a phase stops", **TURN)
    add_legend_below(figure, [event] * bool(turns))
    caption = f"{metric_name[0].upper()}{metric_name[1:]}, by round, mean over seeds: {count_words(table['n'])}."
    caption += f" Vertical lines, in the methods' colours: {'; '.join(map(': '.join, turns))}." if turns else ""
    common = names.common(panels[0])
    caption += f" All on {common}." if common else ""
    last = scaled.groupby(frames.IDS, sort=False).tail(1)
    at_end = [f"{row['method_label']} {row['mean']:.3g}" for _, row in last.iterrows()]
    alt = f"lines by round. At the end: {'; '.join(at_end)}."
    return Drawn(figure, table, settings, f"{metric_name} by round", caption, alt)


def _mean_by_round(runs: Sequence[RecordedRun], name: str) -> pd.DataFrame:
    """One row per method, setting and round: the `mean` of the metric over `n` seeds."""
    each = pd.concat([_run_values(run, name) for run in runs], ignore_index=True)
    if each.empty:
        raise SpecError(f"metric: none of the runs reports {name!r} by round; {_reported_words(runs)}")
    means = each.groupby([*frames.IDS, "method_label", "round"], sort=False)["value"].agg(n="size", mean="mean")
    return means.reset_index().sort_values([*frames.IDS, "round"], kind="stable", key=_in_order(each))


def _draw_lines(
    axis: Axes, table: pd.DataFrame, styles: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]
) -> list[LineEnd]:
    """Draw the methods of one panel, and return the ends. Methods with equal values share a line with several names."""
    alike: dict[tuple[float, ...], list[str]] = {}
    for method, line in table.groupby("method", sort=False):
        alike.setdefault((*line["round"], *line["mean"]), []).append(str(method))
    ends = []
    for sharing in alike.values():
        line, style = table[table["method"] == sharing[0]], styles[sharing[0]]
        axis.plot(line["round"], line["mean"], label=labels[sharing[0]], **style)
        y = float(line["mean"].iloc[-1])
        ends += [LineEnd(y, labels[method], style, f"{y:.3g}") for method in sharing]
    return ends


def _run_values(run: RecordedRun, name: str) -> pd.DataFrame:
    """Return a run's values by round: those of all clients together, or the mean over the reporting clients."""
    means = []
    for frame in (run.metrics, run.diagnostics):
        rows = frame[frame["metric"] == name]
        if "view" in rows:
            rows = rows[rows["view"].isin(["", run.summary["headline_view"]])]
        rows = rows[rows["client"] == -1] if (rows["client"] == -1).any() else rows
        means.append(rows.groupby("round")["value"].mean().dropna().reset_index())
    values = means[0] if len(means[0]) else means[1]
    values = values if values["round"].nunique() > 1 else values.iloc[:0]
    ids = dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True))
    return values.assign(**ids, method_label=run.label)


def _in_order(each: pd.DataFrame) -> Any:
    """A sort key: ids in the order in which the runs came."""
    return lambda column: column if column.name == "round" else pd.Categorical(column, each[column.name].unique()).codes


def _draw_phases(
    axis: Axes, runs: Sequence[RecordedRun], looks: Mapping[str, Look], labels: Mapping[str, str]
) -> dict[tuple[str, str], None]:
    """Draw the starts of the methods' next phases, as means over seeds. Returns each method's label and phase."""
    rounds_by_phase: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        frame = run.metrics
        starts = frame[frame["round"] > 0].groupby("phase", sort=False)["round"].min().sort_values()
        for phase, first in list(starts.items())[1:]:
            rounds_by_phase.setdefault((run.listed.method, str(phase)), []).append(float(first))
    turns: dict[tuple[str, str], None] = {}
    for (method, phase), rounds in rounds_by_phase.items():
        when = f"round {min(rounds):g}" if min(rounds) == max(rounds) else f"rounds {min(rounds):g} to {max(rounds):g}"
        colour = looks[method].colour
        axis.axvline(float(np.mean(rounds)), color=colour, zorder=1.5, **TURN)
        turns[labels[method], f"{phase} from {when}"] = None
    return turns


def _reported_words(runs: Sequence[RecordedRun]) -> str:
    """List the metrics that the runs report, for an error."""
    names: dict[str, None] = {}
    for run in runs:
        for frame in (run.metrics, run.diagnostics):
            rounds = frame.groupby("metric")["round"].nunique()
            names |= dict.fromkeys(name for name in rounds[rounds > 1].index if not name.startswith("accuracy_class"))
    return f"they report {', '.join(sorted(names))}" if names else "they report none"


KIND = FigureKind(settings=MetricSettings, draw=_draw_metric, example={"metric": "clients"})

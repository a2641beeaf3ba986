"""Test accuracy against the values of a setting that methods `sweep`, or against the noise rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.settings.variants import (
    NOISE_RATE,
    base_method,
    format_settings,
    parse_settings,
    strip_settings,
    swept_field,
)
from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.line_labels import LineEnd, fit_panels
from workflow_scripts.report.figures.results.common import (
    finish_figure,
    finish_panels,
    in_settings,
    legend_labels,
    list_ids,
    metric_words,
    not_compared,
    score_methods,
    sign_handles,
    split_clean_settings,
    spread_x_axis,
)
from workflow_scripts.report.figures.style import Look, add_legend_below, make_panels, width_inches
from workflow_scripts.report.runs.names import Names, field_words, label_without_rate
from workflow_scripts.report.runs.noise_rate import noise_rate
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import count_words, format_number
from workflow_scripts.report.text.footnotes import append_words, marks_of

AXIS_WORDS = {"epsilon": "privacy budget ε (the smaller, the more private)", NOISE_RATE: "wrong labels, %"}
FEW = 5  # most lines of a panel that have bars; more could not be distinguished
PANEL = ["dataset", "panel", "partition"]  # columns that name a panel


class SweepSettings(AccuracySettings):
    """Test accuracy against the values of a field that methods `sweep`, or against the noise rate.

    There is one panel per setting. A line is a method with fixed values of its other swept fields. Methods without the
    field are horizontal lines. Up to five lines have bars from the lowest to the highest seed. With the field
    `noise.rate` a panel is a data set, a kind of noise and a partition, and clean runs are at 0. Hollow markers
    are for methods that no federation can have.
    """

    field: Annotated[
        str | None,
        Field(description="The field; noise.rate: the share of wrong labels; null: the only one that is swept."),
    ] = None


def _draw_sweep(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: SweepSettings) -> Drawn:
    field = swept_field([run.listed.method for run in runs], settings.field)
    scores, names, labels = score_methods(runs, settings.metric), Names.of_runs(runs), legend_labels(runs)
    if field == NOISE_RATE:
        table, panel_names = _rate_frame(scores, runs, labels)
        words, ceiling, (apart, why) = "the share of wrong labels", split_clean_settings(runs)[1], not_compared(runs)
    else:
        table, panel_names = _line_frame(scores, field, runs), names
        words, ceiling, (apart, why) = field_words(field), {}, (set(), "")
    order = [text for text in dict.fromkeys(table["value"]) if text]
    numbers = pd.to_numeric(pd.Series(order, order), errors="coerce")  # words are placed in their order
    places = numbers if numbers.notna().all() else pd.Series(np.arange(len(order), dtype=float), order)
    table["x"] = table["value"].map(places)
    panels = [Setting(*ids) for ids in table[PANEL].drop_duplicates().itertuples(index=False, name=None)]
    single = len({key.dataset for key in panels}) == 1
    columns, height = fit_panels([list(dict.fromkeys(table["line"]))], width_inches(settings))
    figure, axes = make_panels(len(panels), settings, height, min(columns, len(panels)), sharex=True, sharey=single)
    ends, few = [], table.groupby(PANEL)["line"].nunique().max() <= FEW
    for axis, panel in zip(axes, panels, strict=True):
        rows, line_ends = table[(table[PANEL] == list(panel)).all(axis=1)].sort_values("x", kind="stable"), []
        for line, points in rows.groupby("line", sort=False):
            last, name, look = points.iloc[-1], str(line), looks[points.iloc[0]["method"]]
            hollow = [ids in apart for ids in list_ids(points)]
            style = look.line_style(hollow[-1])
            if last["value"]:
                spread = [
                    (points["mean"] - points["low"]).clip(lower=0),
                    (points["high"] - points["mean"]).clip(lower=0),
                ]
                bars: dict[str, Any] = {"capsize": 2, "elinewidth": 0.8, "capthick": 0.8, **look.line_style()}
                axis.errorbar(points["x"], points["mean"], spread if few else None, label=name, **bars)
                dots = look.line_style(True, linestyle="none", markevery=hollow, zorder=3)
                axis.plot(points["x"], points["mean"], **dots)
            else:
                name = labels[last["method"]]
                style = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.1}
                axis.axhline(last["mean"], label=name, **style)
            finite = points["mean"].dropna()
            value = format_number(finite.iloc[-1], 1) if len(finite) else ""
            line_ends.append(LineEnd(finite.iloc[-1] if value else math.nan, name, style, value, apart=hollow[-1]))
        ends.append(line_ends)
        axis.update_datalim([(x, 0) for x in table["x"].dropna()], updatey=False)  # even for diverged runs
        axis.margins(x=0.06)
    if numbers.notna().all() and field != NOISE_RATE:
        spread_x_axis(axes, numbers)
    for axis in axes:
        axis.set_xticks(table["x"].dropna().unique(), order)
    heads, datasets = [panel_names.title(panel) for panel in panels], [panel.dataset for panel in panels]
    cut = finish_panels(axes, heads, datasets, AXIS_WORDS.get(field, words), ends)
    add_legend_below(figure, sign_handles(why))
    seeds = "n = 1 seed" if table["n"].max() == 1 else f"means of {count_words(table['n'])}"
    seeds += ", bars from the lowest to the highest" if few and table["n"].max() > 1 else ""
    caption = f"Test accuracy ({metric_words(settings)}) against {words}; {seeds}.{cut}"
    caption += " A level line is a method without this setting." if (table["value"] == "").any() else ""
    title, shape = f"Accuracy against {words}", f"lines over {words}"
    return finish_figure(figure, table, settings, title, caption, table, runs, names, ceiling, shape=shape)


def _line_frame(table: pd.DataFrame, field: str, runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """The scores with the `value` of the field as a text ("": the method does not have it) and the `line` it is on."""
    parts, marks = [], {run.listed.method: marks_of(run.summary) for run in runs}
    for method, label in zip(table["method"], table["method_label"], strict=True):
        settings = dict(parse_settings(method))
        value = settings.pop(field, "")
        name = append_words(strip_settings(label, method), marks[method])
        parts.append((value, ", ".join(filter(None, [name, format_settings(settings)])), base_method(method)))
    values, lines, families = zip(*parts, strict=True)
    table = table.assign(field=field, value=values, line=lines, panel=table["noise"])
    twice = table.assign(family=families).groupby("line")["family"].transform("nunique") > 1
    told_apart = [
        f"{line} ({name})" if ambiguous else line for line, name, ambiguous in zip(lines, families, twice, strict=True)
    ]
    return table.assign(line=told_apart)


def _rate_frame(
    scores: pd.DataFrame, runs: Sequence[RecordedRun], labels: Mapping[str, str]
) -> tuple[pd.DataFrame, Names]:
    """Make the same frame with the noise rate in %, and clean runs in all matching panels. Also names the panels."""
    kinds = label_without_rate({run.listed.noise: run.spec.get("noise", {}) for run in runs})
    rates: dict[Setting, list[float]] = {}
    for run in runs:
        if (rate := noise_rate(run)) is None:
            raise SpecError(f"noise {run.listed.noise} has no known rate: leave it out of this figure (`noises`)")
        rates.setdefault(run.listed.setting, []).append(rate)
    values = [f"{100 * np.mean(rates[setting]):.4g}" for setting, _ in list_ids(scores)]
    lines, panels = scores["method"].map(labels), scores["noise"].map(kinds)
    table = scores.assign(field=NOISE_RATE, value=values, line=lines, panel=panels)
    noisy, clean = (in_settings(table, settings) for settings in split_clean_settings(runs))
    shared = ["dataset", "partition", "method"]
    starts = noisy[[*shared, "panel"]].drop_duplicates().merge(clean.drop(columns="panel"), on=shared)
    names = Names(
        (run.listed.setting._replace(noise=kinds[run.listed.noise]), {**run.spec, "noise": {}})
        for run in runs
        if run.listed.noise not in set(clean["noise"])
    )
    return pd.concat([starts, noisy], ignore_index=True), names


KIND = FigureKind(settings=SweepSettings, draw=_draw_sweep, example={"methods": ["fedprox"], "metric": "last"})

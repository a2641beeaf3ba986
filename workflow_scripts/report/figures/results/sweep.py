"""Test accuracy against the values of a setting that methods `sweep`."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from fednoise_core.settings.variants import base_method, format_settings, parse_settings, strip_settings, swept_field
from workflow_scripts.report.figures.kind import Drawn, FigureKind, LineSettings
from workflow_scripts.report.figures.line_labels import LineEnd, fit_panels
from workflow_scripts.report.figures.results.common import (
    draw_error_line,
    finish_figure,
    finish_panels,
    legend_labels,
    metric_words,
    of_setting,
    score_methods,
    seeds_sentence,
    spread_x_axis,
)
from workflow_scripts.report.figures.style import Look, make_panels, width_inches
from workflow_scripts.report.runs.names import Names, field_words
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import format_number
from workflow_scripts.report.text.footnotes import append_words, marks_of

AXIS_WORDS = {"epsilon": "privacy budget ε (the smaller, the more private)"}


class SweepSettings(LineSettings):
    """Test accuracy against the values of a field that methods `sweep`; methods without the field are level lines.

    One panel a setting. A line is a method with its other swept fields at one value each.
    """

    field: Annotated[str | None, Field(description="The field; null: the only one that is swept.")] = None


def _draw_sweep(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: SweepSettings) -> Drawn:
    field = swept_field([run.listed.method for run in runs], settings.field)
    table, names, labels = (
        _line_frame(score_methods(runs, settings), field, runs),
        Names.of_runs(runs),
        legend_labels(runs),
    )
    order = [text for text in dict.fromkeys(table["value"]) if text]
    numbers = pd.to_numeric(pd.Series(order, order), errors="coerce")  # words are no numbers: they stand in their order
    places = numbers if numbers.notna().all() else pd.Series(np.arange(len(order), dtype=float), order)
    table["x"] = table["value"].map(places)
    panels = list(dict.fromkeys(run.listed.setting for run in runs))
    single = len({key[0] for key in panels}) == 1
    columns, height = fit_panels([list(dict.fromkeys(table["line"]))], width_inches(settings))
    figure, axes = make_panels(len(panels), settings, height, min(columns, len(panels)), sharex=True, sharey=single)
    ends = []
    for axis, setting in zip(axes, panels, strict=True):
        line_ends = []
        for line, points in of_setting(table, setting).sort_values("x", kind="stable").groupby("line", sort=False):
            last = points.iloc[-1]
            style = looks[points.iloc[0]["method"]].line_style()
            name = str(line)
            if last["value"]:
                draw_error_line(axis, points["x"], points, style, name)
            else:
                name = labels[last["method"]]
                style = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.1}
                axis.axhline(last["mean"], label=name, **style)
            finite = points["mean"].dropna()
            value = format_number(finite.iloc[-1], 1) if len(finite) else ""
            line_ends.append(LineEnd(finite.iloc[-1] if value else math.nan, name, style, value))
        ends.append(line_ends)
        axis.update_datalim([(x, 0) for x in table["x"].dropna()], updatey=False)  # also of what diverged
        axis.margins(x=0.06)
    if numbers.notna().all():
        spread_x_axis(axes, numbers)
    for axis in axes:
        axis.set_xticks(table["x"].dropna().unique(), order)
    heads, datasets = [names.title(setting) for setting in panels], [setting.dataset for setting in panels]
    axis_words = AXIS_WORDS.get(field.split(".")[-1], field_words(field))
    cut = finish_panels(axes, heads, datasets, axis_words, ends, settings.y)
    caption = f"Test accuracy ({metric_words(settings)}) against {field_words(field)}; {seeds_sentence(table)}{cut}"
    caption += " A level line is a method without this setting." if (table["value"] == "").any() else ""
    title, shape = f"Accuracy against {field_words(field)}", f"lines over {field_words(field)}"
    return finish_figure(figure, table, settings, title, caption, table, runs, names, {}, shape=shape)


def _line_frame(table: pd.DataFrame, field: str, runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """The scores with the `value` of the field as a text ("": the method does not have it) and the `line` it is on."""
    parts, marks = [], {run.listed.method: marks_of(run.summary) for run in runs}
    for method, label in zip(table["method"], table["method_label"], strict=True):
        settings = dict(parse_settings(method))
        value = settings.pop(field, "")
        name = append_words(strip_settings(label, method), marks[method])
        parts.append((value, ", ".join(filter(None, [name, format_settings(settings)])), base_method(method)))
    values, lines, families = zip(*parts, strict=True)
    table = table.assign(field=field, value=values, line=lines)
    twice = table.assign(family=families).groupby("line")["family"].transform("nunique") > 1
    told_apart = [
        f"{line} ({name})" if ambiguous else line for line, name, ambiguous in zip(lines, families, twice, strict=True)
    ]
    return table.assign(line=told_apart)


KIND = FigureKind(settings=SweepSettings, draw=_draw_sweep, example={"methods": ["fedprox"], "metric": "last"})

"""Test accuracy against the values of a setting that methods `sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fednoise_core.report.marks import marked, marks_of
from fednoise_core.report.names import Names, field_words
from fednoise_core.report.result_figures.common import (
    bars,
    drawn,
    finish,
    labels_of,
    metric_words,
    n_words,
    of_setting,
    scores,
)
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import Drawn, Look, look, panels
from fednoise_core.variants import family, settings, swept_field, told, without

__all__ = ["sweep"]

WIDE = 10  # largest over smallest value from which on the axis is logarithmic


def sweep(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against a swept field, one panel a setting; a line is a method with its other swept fields at one value
    each. Methods without the field are dashed lines from side to side.
    """
    field = swept_field([run.listed.method for run in runs], spec.get("field"))
    table, names, labels = _lines(scores(runs, spec), field, runs), Names.of_runs(runs), labels_of(runs)
    order = [text for text in dict.fromkeys(table["value"]) if text]
    numbers = _numbers(order)
    table["x"] = table["value"].map(numbers or {text: float(place) for place, text in enumerate(order)})
    shown = list(dict.fromkeys(run.listed.setting for run in runs))
    looks = look(list(table["line"]))  # by line: variants of one method would each have a colour of their own
    one = len({key[0] for key in shown}) == 1
    figure, axes = panels(len(shown), spec, columns=spec.get("columns"), sharex=True, sharey=one)
    for axis, setting in zip(axes, shown, strict=True):
        here = of_setting(table, setting)
        for line, points in here[here["value"] != ""].groupby("line", sort=False):
            points, style = points.sort_values("x", kind="stable"), looks[str(line)].line()
            axis.plot(points["x"], points["mean"], label=str(line), **style)
            bars(
                axis,
                points["x"],
                points["mean"],
                style["color"],
                yerr=[points["mean"] - points["low"], points["high"] - points["mean"]],
            )
        for _, row in here[here["value"] == ""].iterrows():
            colour = looks[row["line"]].colour
            axis.axhline(row["mean"], color=colour, linestyle="--", linewidth=1.1, label=labels[row["method"]])
    _scale(axes, order, numbers)
    finish(figure, axes, [names.title(setting) for setting in shown], field_words(field), spec)
    caption = f"Test accuracy ({metric_words(spec)}) against {field_words(field)}; {n_words(table)}"
    caption += " Dashed: a method without this setting." if (table["value"] == "").any() else ""
    title, shape = f"Accuracy against {field_words(field)}", f"lines over {field_words(field)}"
    return drawn(figure, table, spec, title, caption, table, runs, names, {}, shape=shape)


def _lines(table: pd.DataFrame, field: str, runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """The scores with the `value` of the field as a text ("": the method does not have it) and the `line` it is on."""
    found, marks = [], {run.listed.method: marks_of(run.summary) for run in runs}
    for method, label in zip(table["method"], table["method_label"], strict=True):
        rest = dict(settings(method))
        value = rest.pop(field, "")
        name = marked(without(label, method), marks[method])
        found.append(
            (
                value,
                ", ".join(filter(None, [name, told(rest)])),
                family(method),
            )
        )
    values, lines, families = zip(*found, strict=True)
    table = table.assign(field=field, value=values, line=lines)
    twice = table.assign(family=families).groupby("line")["family"].transform("nunique") > 1
    told_apart = [f"{line} ({name})" if two else line for line, name, two in zip(lines, families, twice, strict=True)]
    return table.assign(line=told_apart)


def _numbers(texts: Sequence[str]) -> dict[str, float]:
    """The values as numbers; none if any is a word."""
    try:
        return {text: float(text) for text in texts}
    except ValueError:
        return {}


def _scale(axes: Sequence[Axes], texts: Sequence[str], numbers: Mapping[str, float]) -> None:
    """A logarithmic axis where the values span much, with a place for 0, and a tick at every value."""
    places = np.array([numbers[text] for text in texts] if numbers else range(len(texts)), float)
    above = places[places > 0]
    if numbers and len(above) > 1 and above.max() / above.min() >= WIDE and (places >= 0).all():
        for axis in axes:
            if len(above) == len(places):
                axis.set_xscale("log")
            else:
                axis.set_xscale("symlog", linthresh=float(above.min()), linscale=0.5)
    for axis in axes:
        axis.set_xticks(places, texts)
        axis.minorticks_off()
        axis.margins(x=0.06)

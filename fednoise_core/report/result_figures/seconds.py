"""Test accuracy against the time a run took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fednoise_core.report import frames
from fednoise_core.report.names import Names
from fednoise_core.report.result_figures.common import (
    bars,
    drawn,
    finish,
    labels_of,
    metric_words,
    n_words,
    of_setting,
    scores,
    split_clean,
    time_of,
)
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import Drawn, Look, panels

__all__ = ["seconds"]


def seconds(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against the time of a run (`time_of`), one marker a method, with the spread over seeds both ways."""
    key, unit = time_of(runs)
    rows = [
        {**dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)), key: float(run.cost[key])}
        for run in runs
    ]
    time = pd.DataFrame(rows).groupby(frames.IDS, sort=False)[key].agg(["mean", "min", "max"])
    time = time.set_axis([key, f"{key}_low", f"{key}_high"], axis="columns").reset_index()
    table = scores(runs, spec).merge(time, on=frames.IDS)
    shown, _ = split_clean(runs)
    table = table[[tuple(key) in shown for key in table[frames.IDS[:3]].to_numpy()]]
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    one = len({key[0] for key in shown}) == 1
    figure, axes = panels(len(shown), spec, columns=spec.get("columns"), sharex=True, sharey=one)
    wide = table[key].max() > 12 * max(table[key].min(), 1e-9)
    for axis, setting in zip(axes, shown, strict=True):
        for _, row in of_setting(table, setting).iterrows():
            style = {**looks[str(row["method"])].line(), "linestyle": "none", "markersize": 6.5}
            axis.plot([row[key]], [row["mean"]], label=labels[str(row["method"])], **style)
            wide_of, tall_of = ([[row[value] - row[f"{name}low"]], [row[f"{name}high"] - row[value]]]
                                for value, name in ((key, f"{key}_"), ("mean", "")))  # fmt: skip
            bars(axis, [row[key]], [row["mean"]], style["color"], xerr=wide_of, yerr=tall_of)
        axis.margins(0.08)
        if wide:
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        else:
            axis.xaxis.set_major_locator(MaxNLocator(6))
    finish(figure, axes, [names.title(setting) for setting in shown], unit, spec)
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs}))
    caption = f"Test accuracy ({metric_words(spec)}) against {unit} (device: {device}); {n_words(table)}"
    return drawn(
        figure, table, spec, "Accuracy against time", caption, table, runs, names, {}, shape="points over seconds"
    )

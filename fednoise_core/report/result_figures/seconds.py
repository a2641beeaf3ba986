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
)
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import Drawn, Look, panels

__all__ = ["seconds"]


def seconds(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against the time a run took, one marker a method, with the spread over seeds both ways."""
    frame = scores(runs, spec)
    rows = [
        {**dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)), "seconds": run.cost["seconds"]}
        for run in runs
    ]
    time = (
        pd.DataFrame(rows)
        .groupby(frames.IDS, sort=False)["seconds"]
        .agg(seconds="mean", seconds_low="min", seconds_high="max")
        .reset_index()
    )
    table = frame.merge(time, on=frames.IDS)
    shown, _ = split_clean(runs)
    table = table[[tuple(key) in shown for key in table[frames.IDS[:3]].to_numpy()]]
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    one = len({key[0] for key in shown}) == 1
    figure, axes = panels(len(shown), spec, columns=spec.get("columns"), sharex=True, sharey=one)
    wide = table["seconds"].max() > 12 * max(table["seconds"].min(), 1e-9)
    for axis, setting in zip(axes, shown, strict=True):
        for _, row in of_setting(table, setting).iterrows():
            style = {**looks[str(row["method"])].line(), "linestyle": "none", "markersize": 6.5}
            axis.plot([row["seconds"]], [row["mean"]], label=labels[str(row["method"])], **style)
            wide_of, tall_of = ([[row[key] - row[f"{name}low"]], [row[f"{name}high"] - row[key]]]
                                for key, name in (("seconds", "seconds_"), ("mean", "")))  # fmt: skip
            bars(axis, [row["seconds"]], [row["mean"]], style["color"], xerr=wide_of, yerr=tall_of)
        axis.margins(0.08)
        if wide:
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        else:
            axis.xaxis.set_major_locator(MaxNLocator(6))
    finish(figure, axes, [names.title(setting) for setting in shown], "seconds a run", spec)
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs}))
    caption = f"Test accuracy ({metric_words(spec)}) against the time of a run (device: {device}); {n_words(table)}"
    return drawn(
        figure, table, spec, "Accuracy against time", caption, table, runs, names, {}, shape="points over seconds"
    )

"""Test accuracy of every method in every setting: a dot a mean, a tick a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from fednoise_core.report.figures.results.common import (
    METRIC,
    drawn,
    in_settings,
    metric_words,
    of_setting,
    ranked,
    scores,
    split_clean,
)
from fednoise_core.report.figures.results.rows import BASELINE, Rows, baseline_of, ceilings
from fednoise_core.report.figures.style import CEILING, Drawn, Look
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.text.cells import count_words

__all__ = ["dots"]


def dots(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Methods × settings: mean and seeds of each, the highest mean over the settings at the top; FedAvg and the same
    method on clean labels are lines. What no federation can have is a hollow dot.
    """
    table, (shown, clean) = scores(runs, spec), split_clean(runs)
    here = in_settings(table, shown)
    rows, base = Rows(runs, shown, ranked(here), spec), baseline_of(runs)
    results = frames.tabulate_results(runs, spec.get("view", "headline")).set_index([*frames.IDS])
    seeds = results[spec.get("metric", METRIC)]
    dotted, several = None, table["n"].max() > 1
    cut = rows.cut(here, shown, top=np.nanmax([-np.inf, *table["high"]]))
    for axis, setting in zip(rows.axes, shown, strict=True):
        dotted = ceilings(axis, table, clean, setting) or dotted
        for _, row in of_setting(here, setting).dropna(subset=["mean"]).iterrows():
            rows.draw(axis, setting, row["method"], row["mean"], list(seeds.loc[[(*setting, row["method"])]]))
            if row["method"] == base:
                axis.axvline(row["mean"], **BASELINE)
    labels = {run.listed.method: run.label for run in runs}
    lines = [Line2D([], [], label=labels[base], **BASELINE)] if base else []
    lines += [Line2D([], [], label=dotted, **CEILING)] if dotted else []
    rows.legend("test accuracy, %", "mean" if several else "one seed", "a seed" if several else "", lines)
    caption = f"Test accuracy ({metric_words(spec)}), {count_words(here['n'])}. "
    caption += "Rows: the highest mean over the settings first." if len(shown) > 1 else "Rows: the highest mean first."
    caption += cut
    caption += " No dot: no accuracy." if here["mean"].isna().any() else ""
    title, shape = "Accuracy of every method", "dots, a row a method"
    return drawn(rows.figure, here, spec, title, caption, here, runs, rows.names, clean, shape=shape)

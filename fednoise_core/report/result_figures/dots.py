"""Test accuracy of every method in every setting: a dot a mean, a tick a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from fednoise_core.report import frames
from fednoise_core.report.cells import count_words
from fednoise_core.report.result_figures.common import (
    METRIC,
    drawn,
    metric_words,
    not_compared,
    of_setting,
    scores,
    split_clean,
)
from fednoise_core.report.result_figures.rows import BASELINE, Rows, baseline_of, ceilings
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import CEILING, FILL, WRONG, Drawn, Look

__all__ = ["dots"]


def dots(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Methods × settings: mean and seeds of each, the highest mean over the settings at the top; FedAvg and the same
    method on clean labels are lines. What no federation can have is a hollow dot.
    """
    table, (shown, clean) = scores(runs, spec), split_clean(runs)
    here = table[[tuple(key) in shown for key in table[frames.IDS[:3]].to_numpy()]]
    order = list(here.groupby("method", sort=False)["mean"].mean().sort_values(ascending=False, kind="stable").index)
    rows, base = Rows(runs, shown, order, spec), baseline_of(runs)
    hollow, why = not_compared(runs)
    seeds = frames.results(runs, spec.get("view", "headline"))
    metric, dotted = spec.get("metric", METRIC), None
    means = [list(of_setting(here, setting)["mean"].dropna()) for setting in shown]
    low = rows.cut(means, (here["low"].min(), table["high"].max()))
    for axis, setting in zip(rows.axes, shown, strict=True):
        dotted = ceilings(axis, table, clean, setting) or dotted
        one = of_setting(here, setting).dropna(subset=["mean"])
        for _, row in one.iterrows():
            if rows.beside(axis, row["method"], row["mean"], low):
                continue
            y, colour = rows.place[row["method"]], WRONG if (setting, row["method"]) in hollow else FILL
            each = of_setting(seeds, setting)
            values = each[each["method"] == row["method"]][metric]
            if len(values) > 1:
                axis.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=1.0, zorder=2)
                axis.plot(values, [y] * len(values), "|", color=colour, markersize=7, markeredgewidth=1.1, zorder=2.5)
            inside = "white" if (setting, row["method"]) in hollow else colour
            axis.plot([row["mean"]], [y], "o", color=colour, markerfacecolor=inside, markersize=4.5, zorder=3)
            if row["method"] == base:
                axis.axvline(row["mean"], **BASELINE)
    rows.legend(_legend(table, base, dotted, why if hollow else "", runs), "test accuracy, %")
    caption = f"Test accuracy ({metric_words(spec)}), {count_words(here['n'])}. "
    caption += "Rows: the highest mean over the settings first." if len(shown) > 1 else "Rows: the highest mean first."
    caption += f" The axes start at {low:g} %: what is lower stands there as a number (◂)." if low is not None else ""
    caption += " No dot: no accuracy." if here["mean"].isna().any() else ""
    title, shape = "Accuracy of every method", "dots, a row a method"
    return drawn(rows.figure, here, spec, title, caption, here, runs, rows.names, clean, shape=shape)


def _legend(
    table: pd.DataFrame, base: str | None, dotted: str | None, hollow: str, runs: Sequence[RecordedRun]
) -> list[Line2D]:
    dot: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5}
    found = [Line2D([], [], color=FILL, label="mean" if table["n"].max() > 1 else "one seed", **dot)]
    if table["n"].max() > 1:
        tick: dict[str, Any] = {"marker": "|", "markersize": 7, "markeredgewidth": 1.1, "linestyle": "none"}
        found.append(Line2D([], [], color=FILL, label="a seed", **tick))
    if hollow:
        found.append(Line2D([], [], color=WRONG, markerfacecolor="white", label=hollow, **dot))
    if base:
        label = next(run.label for run in runs if run.listed.method == base)
        found.append(Line2D([], [], label=label, **{k: v for k, v in BASELINE.items() if k != "zorder"}))
    if dotted:
        found.append(Line2D([], [], label=dotted, **CEILING))
    return found

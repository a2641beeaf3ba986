"""Accuracy of every method less the baseline's, seed by seed: what they have in common falls out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from fednoise_core.io import SpecError
from fednoise_core.report import frames
from fednoise_core.report.cells import count_words
from fednoise_core.report.result_figures.common import (
    METRIC,
    drawn,
    metric_words,
    not_compared,
    of_setting,
    split_clean,
)
from fednoise_core.report.result_figures.rows import BASELINE, Rows, baseline_of
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.statistics import LEAST, paired, spread
from fednoise_core.report.style import FILL, WRONG, Drawn, Look

__all__ = ["differences"]


def differences(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Methods × settings: the mean difference to the baseline in points of %, a tick a seed, and from three seeds on
    the 95 % bootstrap interval of the mean. Raises SpecError if the baseline has no run, or nothing is beside it.
    """
    base = spec.get("baseline") or baseline_of(runs)
    label = next((run.label for run in runs if run.listed.method == base), None)
    if label is None:
        asked = f"{base!r} has no run" if base else "no plain FedAvg among the runs; name another method"
        raise SpecError(f"baseline: {asked}")
    shown, _ = split_clean(runs)
    table, each = _differences(runs, str(base), spec)
    shown = [setting for setting in shown if len(of_setting(table, setting))]
    if not shown:
        raise SpecError(f"baseline: no setting has {base!r} and another method with a seed in common")
    table = table[[tuple(key) in shown for key in table[frames.IDS[:3]].to_numpy()]].reset_index(drop=True)
    order = list(table.groupby("method", sort=False)["mean"].mean().sort_values(ascending=False, kind="stable").index)
    rows = Rows(runs, shown, order, spec)
    means = [[0.0, *of_setting(table, one)["mean"].dropna()] for one in shown]
    low = rows.cut(means, _span(table, each), negative=True)
    hollow, why = not_compared(runs)
    for axis, setting in zip(rows.axes, shown, strict=True):
        axis.axvline(0, **BASELINE)
        for _, row in of_setting(table, setting).dropna(subset=["mean"]).iterrows():
            if rows.beside(axis, row["method"], row["mean"], low):
                continue
            y, colour = rows.place[row["method"]], WRONG if (setting, row["method"]) in hollow else FILL
            if np.isfinite(row["low"]):
                axis.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2)
            values = each[(*setting, row["method"])]
            if len(values) > 1:
                axis.plot(values, [y] * len(values), "|", color=colour, markersize=7, markeredgewidth=1.1, zorder=2.5)
            inside = "white" if (setting, row["method"]) in hollow else colour
            axis.plot([row["mean"]], [y], "o", color=colour, markerfacecolor=inside, markersize=4.5, zorder=3)
    rows.legend(
        _legend(table, label, why if {method for _, method in hollow} & {*table["method"]} else ""),
        f"test accuracy less that of {label}, points",
    )
    return _told(rows, table, runs, spec, label, low)


def _differences(
    runs: Sequence[RecordedRun], base: str, spec: Mapping[str, Any]
) -> tuple[pd.DataFrame, dict[tuple[str, ...], list[float]]]:
    """A row a method and setting, with n, mean, std, low, high of the paired differences; and these by seed."""
    frame, metric = frames.results(runs, spec.get("view", "headline")), spec.get("metric", METRIC)
    rows, each = [], {}
    for place, group in frame.groupby(frames.IDS[:3], sort=False):
        by_method = {
            str(method): dict(zip(part["seed"], part[metric].astype(float), strict=True))
            for method, part in group.groupby("method", sort=False)
        }
        labels = dict(zip(group["method"], group["method_label"], strict=True))
        for method, ours in by_method.items():
            found = paired(ours, by_method.get(base, {}))
            if method == base or not found:
                continue
            ids = tuple(map(str, (*place, method)))
            each[ids] = list(found.values())
            told = dict(zip(frames.IDS, ids, strict=True))
            rows.append({**told, "method_label": labels[method], "baseline": base, **spread(each[ids])._asdict()})
    columns = [*frames.IDS, "method_label", "baseline", "n", "mean", "std", "low", "high"]
    return pd.DataFrame(rows, columns=columns), each


def _span(table: pd.DataFrame, each: Mapping[tuple[str, ...], list[float]]) -> tuple[float, float]:
    """The least and the most that is drawn; the baseline's 0 is."""
    values = [value for ids in table[frames.IDS].itertuples(index=False, name=None) for value in each[ids]]
    known = [0.0, *(value for value in values if np.isfinite(value))]
    return min(known), max(known)


def _legend(table: pd.DataFrame, label: str, hollow: str) -> list[Line2D]:
    dot: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5}
    several = table["n"].max() > 1
    found = [Line2D([], [], color=FILL, label="mean" if several else "one seed", **dot)]
    if several:
        tick: dict[str, Any] = {"marker": "|", "markersize": 7, "markeredgewidth": 1.1, "linestyle": "none"}
        found.append(Line2D([], [], color=FILL, label="a seed", **tick))
    if table["low"].notna().any():
        found.append(Line2D([], [], color=FILL, linewidth=2.2, alpha=0.45, label="95 % interval of the mean"))
    if hollow:
        found.append(Line2D([], [], color=WRONG, markerfacecolor="white", label=hollow, **dot))
    found.append(Line2D([], [], label=label, **{k: v for k, v in BASELINE.items() if k != "zorder"}))
    return found


def _told(
    rows: Rows,
    table: pd.DataFrame,
    runs: Sequence[RecordedRun],
    spec: Mapping[str, Any],
    label: str,
    low: float | None,
) -> Drawn:
    caption = f"Test accuracy ({metric_words(spec)}) less that of {label} with the same seed, {count_words(table['n'])}"
    caption += "; rows: the highest mean difference first."
    if table["n"].max() < LEAST:
        caption += f" No interval: it takes {LEAST} seeds."
    elif table["n"].min() < LEAST:
        caption += f" No interval where there are fewer than {LEAST} seeds."
    caption += f" The axes start at {low:g}: what is lower stands there as a number (◂)." if low is not None else ""
    title, shape, which = f"Differences to {label}", "dots, a row a method", f"difference to {label}"
    return drawn(
        rows.figure, table, spec, title, caption, table, runs, rows.names, {}, shape=shape, which=which, unit="points"
    )

"""Accuracy of every method less the baseline's, seed by seed: what they have in common falls out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from matplotlib.lines import Line2D
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.report.figures.kind import AccuracySettings, Drawn, FigureKind
from fednoise_core.report.figures.results.common import (
    finish_figure,
    in_settings,
    metric_words,
    of_setting,
    rank_methods,
    split_clean_settings,
)
from fednoise_core.report.figures.results.rows import BASELINE, Rows
from fednoise_core.report.figures.style import FILL, Look
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.ranking import find_baseline
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.runs.statistics import LEAST, paired_differences, summarize_seeds
from fednoise_core.report.text.cells import count_words

INTERVAL: dict[str, Any] = {"linewidth": 2.2, "alpha": 0.45}


class DifferencesSettings(AccuracySettings):
    """Test accuracy of every method less that of a baseline with the same seed, a row a method, a tick a seed.

    From three seeds on with the 95 % bootstrap interval of the mean. One panel a setting.
    """

    baseline: Annotated[
        str | None, Field(description="The method that the others are held against; null: plain FedAvg.")
    ] = None


def _draw_differences(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: DifferencesSettings) -> Drawn:
    base = settings.baseline or find_baseline(runs)
    label = next((run.label for run in runs if run.listed.method == base), None)
    if label is None:
        asked = f"{base!r} has no run" if base else "no plain FedAvg among the runs; name another method"
        raise SpecError(f"baseline: {asked}")
    table, each = _paired_differences(runs, str(base), settings)
    shown = [setting for setting in split_clean_settings(runs)[0] if len(of_setting(table, setting))]
    if not shown:
        raise SpecError(f"baseline: no setting has {base!r} and another method with a seed in common")
    table = in_settings(table, shown)
    rows = Rows(runs, shown, rank_methods(table), settings)
    ids = [tuple(key) for key in table[frames.IDS].to_numpy()]
    span = table.assign(low=[min(each[key]) for key in ids], high=[max(each[key]) for key in ids])
    cut = rows.set_x_range(span, shown, more=[0.0], lift=1000.0)
    for axis, setting in zip(rows.axes, shown, strict=True):
        axis.axvline(0, **BASELINE)
        for _, row in of_setting(table, setting).dropna(subset=["mean"]).iterrows():
            interval = {**INTERVAL, "x": (row["low"], row["high"])}  # NaN of few seeds: no line
            rows.draw_method(axis, setting, row["method"], row["mean"], each[(*setting, row["method"])], **interval)
    several, wide = table["n"].max() > 1, table["low"].notna().any()
    lines = [Line2D([], [], color=FILL, label="95 % interval of the mean", **INTERVAL)] if wide else []
    lines.append(Line2D([], [], label=label, **BASELINE))
    x = f"test accuracy less that of {label}, points"
    rows.add_legend(x, "mean" if several else "one seed", "a seed" if several else "", lines)
    caption = (
        f"Test accuracy ({metric_words(settings)}) less that of {label} with the same seed, {count_words(table['n'])}"
    )
    caption += "; rows: the highest mean difference first."
    if table["n"].min() < LEAST:
        caption += f" No interval where there are fewer than {LEAST} seeds."
    told: dict[str, Any] = {"shape": "dots, a row a method", "which": f"difference to {label}", "unit": "points"}
    title = f"Differences to {label}"
    return finish_figure(rows.figure, table, settings, title, caption + cut, table, runs, rows.names, {}, **told)


def _paired_differences(
    runs: Sequence[RecordedRun], base: str, settings: Any
) -> tuple[pd.DataFrame, dict[tuple[str, ...], list[float]]]:
    """A row a method and setting, with n, mean, std, low, high of the paired differences; and these by seed."""
    frame, metric = frames.tabulate_results(runs, settings.view), settings.metric
    rows, each = [], {}
    for place, group in frame.groupby(frames.IDS[:3], sort=False):
        by_method = {
            str(method): dict(zip(part["seed"], part[metric].astype(float), strict=True))
            for method, part in group.groupby("method", sort=False)
        }
        labels = dict(zip(group["method"], group["method_label"], strict=True))
        for method, ours in by_method.items():
            found = paired_differences(ours, by_method.get(base, {}))
            if method == base or not found:
                continue
            ids = tuple(map(str, (*place, method)))
            each[ids] = list(found.values())
            told = dict(zip(frames.IDS, ids, strict=True))
            told |= {"method_label": labels[method], "baseline": base}
            rows.append(told | summarize_seeds(each[ids])._asdict())
    columns = [*frames.IDS, "method_label", "baseline", "n", "mean", "std", "low", "high"]
    return pd.DataFrame(rows, columns=columns), each


KIND = FigureKind(settings=DifferencesSettings, draw=_draw_differences, example={"noises": ["sym40"]})

"""Test accuracy against the noise rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.io import SpecError
from fednoise_core.report import frames
from fednoise_core.report.ends import End, cut_words, focus, name_ends
from fednoise_core.report.names import Names, apart_from_rate
from fednoise_core.report.rates import noise_rate, stated_rate
from fednoise_core.report.result_figures.common import (
    bars,
    drawn,
    finish,
    labels_of,
    metric_words,
    n_words,
    scores,
    split_clean,
)
from fednoise_core.report.runs import RecordedRun, Setting
from fednoise_core.report.style import Drawn, Look, inches, panels

__all__ = ["rate"]


def rate(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against the noise rate; one panel a (data set, kind of noise, partition). Clean runs stand at 0."""
    frame, letters = scores(runs, spec), 24
    kinds = apart_from_rate({run.listed.noise: run.spec.get("noise", {}) for run in runs})
    shown, ceiling = split_clean(runs)
    clean = {key[1] for key in ceiling}
    rates = _rates(runs)
    frame["rate"] = [rates[Setting(*ids)] for ids in frame[frames.IDS[:3]].itertuples(index=False, name=None)]
    frame["noise_kind"] = frame["noise"].map(kinds)
    groups = list(dict.fromkeys((key[0], kinds[key[1]], key[2]) for key in shown))
    names, labels = Names.of_runs(runs), labels_of(runs)
    columns = spec.get("columns") or (2 if inches(spec) > 5 else 1)
    lines_of_text = sum(1 + (len(label) + 5) // letters for label in labels.values())
    height = max(2.3, 0.137 * lines_of_text + 0.6)
    figure, axes = panels(len(groups), spec, height, columns, sharex=True, sharey=len({g[0] for g in groups}) == 1)
    parts, heads, ends = [], [], []
    step = 0.008 * (frame["rate"].max() - frame["rate"].min())  # side by side, or equal points would hide one another
    for axis, (dataset, kind, partition) in zip(axes, groups, strict=True):
        here = frame[(frame["dataset"] == dataset) & (frame["partition"] == partition)]
        found = []
        lines = list(here[(here["noise_kind"] == kind) & ~here["noise"].isin(clean)].groupby("method", sort=False))
        for place, (method, line) in enumerate(lines):
            start = here[here["noise"].isin(clean) & (here["method"] == method)]
            points = pd.concat([start, line]).sort_values("rate", kind="stable").assign(noise_kind=kind)
            style = looks[str(method)].line()
            half = step * (len(lines) - 1) / 2
            x = points["rate"] + step * place - np.minimum(half, points["rate"])  # no marker stands below 0
            axis.plot(x, points["mean"], label=labels[str(method)], **style)
            spread = [points["mean"] - points["low"], points["high"] - points["mean"]]
            bars(axis, x, points["mean"], style["color"], yerr=spread)
            parts.append(points)
            look = {key: style[key] for key in ("color", "linestyle", "marker")}
            y = float(points["mean"].iloc[-1])
            found.append(End(float(x.iloc[-1]), y, labels[str(method)], look, "" if np.isnan(y) else f"{y:.1f}"))
        ends.append(found)
        varies = [len({g[place] for g in groups}) > 1 for place in range(3)]
        words = (names.parts[0][dataset], kind, names.parts[2][partition])
        heads.append(" · ".join(word for word, use in zip(words, varies, strict=True) if use or not any(varies)))
        axis.margins(x=0.06)
    low = focus(axes, [group[0] for group in groups], ends, spec)
    finish(figure, axes, heads, "nominal noise rate", spec, legend=False)
    name_ends(figure, axes, ends, letters)
    table = pd.concat(parts, ignore_index=True)
    caption = f"Test accuracy ({metric_words(spec)}) against the nominal noise rate, methods a little apart; "
    caption += n_words(table)
    caption += f" Beside each line its value at its highest rate.{cut_words(low)}"
    came_out = {run.listed.noise: names.parts[1][run.listed.noise] for run in runs if stated_rate(run) is None}
    caption += (
        f" Of {', '.join(came_out.values())} nobody states a rate: it is the one that came out." if came_out else ""
    )
    shape = "lines over the noise rate"
    return drawn(figure, table, spec, "Accuracy against noise rate", caption, table, runs, names, ceiling, shape=shape)


def _rates(runs: Sequence[RecordedRun]) -> dict[Setting, float]:
    """Noise rate of every setting, mean over its runs: one number, unless nobody states it and every seed came out
    otherwise. Not by noise alone, since a rate may depend on the number of classes.
    """
    found: dict[Setting, list[float]] = {}
    unknown = set()
    for run in runs:
        value = noise_rate(run)
        if value is None:
            unknown.add(run.listed.noise)
        else:
            found.setdefault(run.listed.setting, []).append(value)
    if unknown:
        raise SpecError(
            f"noise {', '.join(sorted(unknown))} has no known rate: leave it out of a rate figure (`noises`)"
        )
    return {setting: float(np.mean(values)) for setting, values in found.items()}

"""Test accuracy against the noise rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fednoise_core.io import SpecError
from fednoise_core.report import frames
from fednoise_core.report.ends import BELOW, End, cut_words, focus, name_ends, room
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
from fednoise_core.report.style import SIZE, Drawn, Look, panels

__all__ = ["rate"]


def rate(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against the noise rate; one panel a (data set, kind of noise, partition). Clean runs stand at 0."""
    frame = scores(runs, spec)
    kinds = apart_from_rate({run.listed.noise: run.spec.get("noise", {}) for run in runs})
    shown, ceiling = split_clean(runs)
    clean = {key[1] for key in ceiling}
    rates = _rates(runs)
    frame["rate"] = [rates[Setting(*ids)] for ids in frame[frames.IDS[:3]].itertuples(index=False, name=None)]
    frame["noise_kind"] = frame["noise"].map(kinds)
    groups = list(dict.fromkeys((key[0], kinds[key[1]], key[2]) for key in shown))
    names, labels = Names.of_runs(runs), labels_of(runs)
    columns, height = room(spec, [list(labels.values())] * len(groups))
    figure, axes = panels(len(groups), spec, height, columns, sharex=True, sharey=len({g[0] for g in groups}) == 1)
    parts, heads, ends = [], [], []
    spreads: list[list[tuple[pd.Series, pd.DataFrame, str]]] = [[] for _ in groups]
    step = 0.008 * (frame["rate"].max() - frame["rate"].min())  # side by side, or equal points would hide one another
    for axis, (dataset, kind, partition), bars_of in zip(axes, groups, spreads, strict=True):
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
            bars_of.append((x, points, style["color"]))
            parts.append(points)
            look = {key: style[key] for key in ("color", "linestyle", "marker")}
            y = float(points["mean"].iloc[-1])
            found.append(End(float(x.iloc[-1]), y, labels[str(method)], look, "" if np.isnan(y) else f"{y:.1f}"))
        ends.append(found)
        varies = [len({g[place] for g in groups}) > 1 for place in range(3)]
        words = (names.parts[0][dataset], kind, names.parts[2][partition])
        heads.append(" · ".join(word for word, use in zip(words, varies, strict=True) if use or not any(varies)))
        first, last = axis.dataLim.intervalx
        if np.isfinite(first):  # else every run diverged, and nothing is drawn
            axis.set_xlim(first - 0.06 * (last - first or 1), last + 0.02 * (last - first or 1))
    low = focus(axes, [group[0] for group in groups], ends, spec)
    cut = [_cut(axis, bars_of) for axis, bars_of in zip(axes, spreads, strict=True)]
    finish(figure, axes, heads, "nominal noise rate", spec, legend=False)
    name_ends(figure, axes, ends, spec)
    table = pd.concat(parts, ignore_index=True)
    caption = f"Test accuracy ({metric_words(spec)}) against the nominal noise rate, methods a little apart; "
    caption += n_words(table)
    caption += f" Beside each line its value at its highest rate.{cut_words(low)}"
    caption += f" At the foot of a bar that is cut off {BELOW} and its lowest seed." if any(cut) else ""
    came_out = {run.listed.noise: names.parts[1][run.listed.noise] for run in runs if stated_rate(run) is None}
    caption += (
        f" Of {', '.join(came_out.values())} nobody states a rate: it is the one that came out." if came_out else ""
    )
    shape = "lines over the noise rate"
    return drawn(figure, table, spec, "Accuracy against noise rate", caption, table, runs, names, ceiling, shape=shape)


def _cut(axis: Axes, spreads: Sequence[tuple[pd.Series, pd.DataFrame, str]]) -> bool:
    """Put the lowest seed as a number where a bar leaves the axis; whether any does."""
    low = axis.get_ylim()[0]
    feet: list[float] = []
    for xs, points, colour in spreads:
        for x, rate, mean, least in zip(xs, points["rate"], points["mean"], points["low"], strict=True):
            if least < low <= mean:
                place = (2.0, 2.0 + (SIZE + 1) * feet.count(rate))  # points; of one rate one above the other
                axis.annotate(f"{BELOW}\u202f{least:.0f}", (x, low), place, textcoords="offset points", color=colour,
                              fontsize=SIZE - 0.5)  # fmt: skip
                feet.append(rate)
    return bool(feet)


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

"""Who holds how many samples of which class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from fednoise_core.io import SpecError
from fednoise_core.report.figures.settings.common import NUMBERS, class_axis, drawn, varying, whose
from fednoise_core.report.figures.style import FAINT, FILL, QUIET, WRONG, Drawn, legend_below, outer, panels, titles
from fednoise_core.report.runs.settings import SettingArtifacts

__all__ = ["histogram"]

CLIENTS, DOTS = 100, 4000  # clients and dots of a panel at most: of more, none can be told from the next
DUST = 1.2  # square points: a smaller dot could not be seen


def histogram(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Samples per client and class, by clean and given labels, as dots sized by count (FedDPCont, figures 3 and 4); the
    dot inside is the share of them that is mislabelled.
    """
    show = spec.get("show") or ["clean", "given"]
    shown = [(one, kind) for one in found for kind in show if kind == "given" or one.labels.clean is not None]
    if not shown:
        raise SpecError("show: the clean labels are unknown, and nothing else is asked for")
    frames = [_frame(one, kind) for one, kind in shown]
    held = pd.concat(frames)["samples"]
    classes, most = max(one.classes for one in found), max(one.split.clients for one in found)
    tall = 0.6 + (0.135 if len(shown) > 4 else 0.19) * classes if classes <= 2 * NUMBERS else 3.2
    figure, axes = panels(len(shown), spec, tall, 1 if most > 30 and len(shown) <= 4 else None)
    wide = figure.get_figwidth() / axes[0].get_subplotspec().get_gridspec().ncols - 0.75  # type: ignore[union-attr]
    most = min(most, CLIENTS, DOTS // classes)
    cell = 72 * np.array([wide / most, (tall - 0.55) / classes])  # width and height in points
    scale = 0.95 * min(*cell, 16) / np.sqrt(held.quantile(0.9))  # one for all panels; few dots outgrow their cell
    for axis, (one, kind), frame in zip(axes, shown, frames, strict=True):
        who = np.unique(np.linspace(0, one.split.clients - 1, min(one.split.clients, most)).round().astype(int))
        frame = frame[frame["client"].isin(who)]
        x, bad = np.searchsorted(who, frame["client"]), frame["mislabelled"]
        for count, colour, faint in ((frame["samples"], FILL if kind == "given" else QUIET, 0.75), (bad, WRONG, 1)):
            sizes = np.maximum(scale**2 * count, DUST) * (count > 0)
            axis.scatter(x, frame["class"], s=sizes, linewidths=0, color=colour, alpha=faint)
        edge = np.maximum(0.7, 0.1 + scale * np.sqrt(frame["samples"].max()) / 2 / cell)  # the greatest are not cut
        axis.set_xlim(-edge[0], len(who) - 1 + edge[0])
        axis.set_ylim(one.classes - 1 + edge[1], -edge[1])  # class 0 at the top, as in a transition matrix
        class_axis(axis.yaxis, one)
        ticks = np.arange(0, len(who), -(-len(who) // 6))
        axis.set_xticks(ticks, who[ticks])
    words = [" · ".join(varying(found, one)) for one, _ in shown]
    kinds = [kind if len(show) > 1 or not word else "" for word, (_, kind) in zip(words, shown, strict=True)]
    heads = [f"{kind} labels" if kind else "" for kind in kinds]
    titles(axes, [" · ".join(filter(None, pair)) for pair in zip(words, heads, strict=True)])
    outer(axes, "client", "class")
    wrong = any(frame["mislabelled"].any() for frame in frames)
    legend_below(figure, _sizes(held, scale, wrong))
    meaning = "the area of a dot is the count"
    meaning += ", that of the dot inside how many of them are mislabelled" if wrong else ""
    cut = " Evenly chosen clients are shown." if any(one.split.clients > most for one in found) else ""
    total = " or ".join(str(n) for n in sorted({len(one.split.index) for one in found}))
    of = f", {show[0]} labels" if len(show) == 1 else ""
    caption = f"Samples (n = {total}) per client and class{of}: {meaning}.{cut} {whose(found)}"
    alt = f"Dots of {most} clients and {classes} classes, of {held.min()} to {held.max()} samples."
    rates = [
        f"{' · '.join(varying(found, one) or one.words)}: {100 * one.labels.rate:.0f} %"
        for one in found
        if one.labels.clean is not None
    ]
    alt += f" Mislabelled: {'; '.join(rates)}." if rates else ""
    return drawn(figure, frames, spec, "Who holds which class", caption, alt)


def _sizes(held: pd.Series, scale: float, wrong: bool) -> list[Line2D]:
    """What the sizes of dots mean, for the legend."""
    style: dict[str, Any] = {"marker": "o", "linestyle": "", "color": FAINT, "markeredgewidth": 0}
    found = []
    for mark in sorted({max(1, round(held.quantile(share))) for share in (0.1, 0.5, 0.9, 1)}):
        size = max(scale * np.sqrt(mark), np.sqrt(DUST))
        found.append(Line2D([], [], markersize=size, label=f"{mark} samples" if mark > 1 else "1 sample", **style))
    return [
        *found,
        *([Line2D([], [], markersize=4.5, label="mislabelled", **{**style, "color": WRONG})] if wrong else []),
    ]


def _frame(one: SettingArtifacts, kind: str) -> pd.DataFrame:
    """A row a client and class that it has samples of, by the labels of that kind."""
    y = one.labels.noisy if kind == "given" else one.labels.clean
    assert y is not None  # else it has no panel
    counts, wrong = one.split.histogram(y, one.classes), np.zeros((one.split.clients, one.classes), int)
    if one.labels.wrong is not None:
        bad = one.labels.wrong[one.split.index]
        owner = np.repeat(np.arange(one.split.clients), one.split.sizes)
        np.add.at(wrong, (owner[bad], y[one.split.index][bad]), 1)
    client, label = np.nonzero(counts)
    ids = {"dataset": one.dataset, "noise": one.noise, "partition": one.partition, "labels": kind}
    found = {"samples": counts[client, label], "mislabelled": wrong[client, label]}
    return pd.DataFrame({**ids, "client": client, "class": label, **found})

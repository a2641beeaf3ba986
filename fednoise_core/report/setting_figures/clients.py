"""How many samples each client holds, and how noisy they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.artifacts import SettingArtifacts
from fednoise_core.report.setting_figures.common import drawn, varying, whose
from fednoise_core.report.setting_figures.histogram import CLIENTS
from fednoise_core.report.style import FAINT, FILL, WRONG, Drawn, canvas, inches, wrap

__all__ = ["clients"]

CHANCE = "#dcdcdc"  # where a client's rate may lie by chance alone


def clients(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Samples and noise rate of every client; sorted by size where there are too many to name. Of many settings small
    multiples whose axes are the same; sizes that several noises share are drawn once.
    """
    sized = list({one.partition_file: one for one in reversed(found)}.values())[::-1]
    known = [one for one in found if one.client_rate is not None]  # of the others there is nothing to draw
    kinds = {"samples": sized, "noise rate": known}
    panels = [(one, kind) for one in found for kind, shown in kinds.items() if one in shown]
    width, small = inches(spec), len(found) > 2
    columns = (3 if len(panels) > 12 else 2) if small and width > 5 else 1
    if small:  # sizes and rates of a setting stay together, one above the other
        panels = [pair for one in found for pair in [(one, kind) for each, kind in panels if each is one]]
    rows = -(-len(panels) // columns)
    rows += rows % 2 if len(panels) == 2 * len(found) and columns > 1 else 0  # no pair goes over two columns
    figure = canvas(width, rows * (1.15 if small else 1.45) + 0.2)
    grid = list(figure.subplots(rows, columns, squeeze=False).T.flat)  # down the columns
    for spare in grid[len(panels) :]:
        spare.remove()
    frames = [_frame(one) for one in found]
    axes = list(zip(grid, panels, strict=False))
    for axis, (one, kind) in axes:
        (_samples if kind == "samples" else _rates)(axis, one)
        words = " · ".join(varying(found, one))
        axis.set(title=f"{words}: {kind}" if small else words if kind == "samples" else "", ylabel=kind)
        axis.grid(axis="x", visible=False)
        axis.set_xlim(-0.7, len(one.split.sizes) - 0.3)
        axis.xaxis.set_major_locator(MaxNLocator(12 if width / columns > 5 else 6, integer=True))
        if small:
            axis.set_ylabel("")
            axis.set_title(wrap(axis.get_title("left"), width / columns - 0.5))
    for kind in ("samples", "noise rate"):
        same = [axis for axis, (_, each) in axes if each == kind]
        top = max((axis.get_ylim()[1] for axis in same), default=1.0)
        for axis in same:
            axis.set_ylim(0, top)
    for place, (axis, (one, _)) in enumerate(axes):
        if (place + 1) % rows and place + 1 < len(axes) and not (small and axes[place + 1][1][0] is not one):
            axis.tick_params(labelbottom=False)
        elif (place + 1) % rows == 0 or place + 1 == len(axes):
            axis.set_xlabel("client, sorted by samples" if len(one.split.sizes) > CLIENTS else "client")
    wrong = (
        " and share of wrong labels of every client; dotted: over all clients; grey: where 95 % of equally noisy "
        "clients of that size would lie."
        if known
        else " of every client. How many of the labels are wrong, nobody knows."
    )
    wrong += " Where no share stands, nobody knows it." if known and len(known) < len(found) else ""
    total = " or ".join(str(n) for n in sorted({int(one.split.sizes.sum()) for one in found}))
    caption = f"Samples (n = {total}){wrong} {whose(found)}"
    alt = " ".join(_said(one, " · ".join(varying(found, one))) for one in found)
    return drawn(figure, frames, spec, "How much and how noisy" if known else "How much", caption, alt)


def _frame(one: SettingArtifacts) -> pd.DataFrame:
    sizes, rate = one.split.sizes, one.client_rate
    ids = {"dataset": one.dataset, "noise": one.noise, "partition": one.partition, "client": np.arange(len(sizes))}
    return pd.DataFrame({**ids, "samples": sizes, "noise_rate": np.nan if rate is None else rate})


def _order(one: SettingArtifacts) -> np.ndarray:
    """The clients from left to right."""
    sizes = one.split.sizes
    return np.argsort(sizes, kind="stable")[::-1] if len(sizes) > CLIENTS else np.arange(len(sizes))


def _samples(axis: Axes, one: SettingArtifacts) -> None:
    sizes = one.split.sizes[_order(one)]
    if len(sizes) > CLIENTS:
        axis.fill_between(np.arange(len(sizes)), sizes, color=FILL, linewidth=0)
    else:
        axis.bar(np.arange(len(sizes)), sizes, width=0.75, color=FILL)


def _rates(axis: Axes, one: SettingArtifacts) -> None:
    """The rates, their mean, and where equal clients' rates would lie by chance."""
    sizes, rate = one.split.sizes[_order(one)], one.client_rate
    assert rate is not None  # else it has no panel
    x, mean = np.arange(len(sizes)), one.labels.rate
    axis.axhline(mean, color=FAINT, linewidth=1.0, linestyle=(0, (1.2, 1.6)), zorder=1)
    spread = 1.96 * np.sqrt(mean * (1 - mean) / np.maximum(sizes, 1))
    bottom = np.maximum(mean - spread, 0)
    axis.bar(x, mean + spread - bottom, 0.75, bottom, color=CHANCE, zorder=0.5)
    big = 2 if len(sizes) > CLIENTS else 4
    axis.plot(x, rate[_order(one)], linestyle="", marker="o", markersize=big, color=WRONG, clip_on=False)
    axis.set_ylim(0, max(0.05, 1.12 * float(np.nanmax(rate)), 1.05 * mean))


def _said(one: SettingArtifacts, words: str) -> str:
    """A setting's clients in a sentence."""
    sizes, rate = one.split.sizes, one.client_rate
    noise = "are unknown" if rate is None else f"{np.nanmin(rate):.2f} to {np.nanmax(rate):.2f}"
    head = f"{words}: " if words else ""
    return f"{head}{len(sizes)} clients of {sizes.min()} to {sizes.max()} samples, noise rates {noise}."

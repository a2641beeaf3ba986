"""How many samples each client holds, and how noisy they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.figures.settings.common import drawn, varying, whose
from fednoise_core.report.figures.style import FAINT, FILL, WRONG, Drawn, inches, outer, panels, titles
from fednoise_core.report.runs.settings import SettingArtifacts

__all__ = ["clients"]

CHANCE = "#dcdcdc"  # where a client's rate may lie by chance alone
NAMED = 150  # clients up to which they stand in their own order


def clients(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Samples of every client, and beside them the share that is mislabelled; sorted by size where there are too many
    to name. The axes of all settings are the same.
    """
    known = [one for one in found if one.client_rate is not None]  # of the others there are no rates to draw
    wide = 2 if known else 1  # panels of a setting
    columns = wide * (2 if inches(spec) > 5 and len(found) > 4 else 1)
    figure, axes = panels(wide * len(found), spec, 1.45, columns)
    heads, frames = [], [_frame(one) for one in found]
    many = max(len(frame) for frame in frames) > NAMED
    for row, (one, frame) in enumerate(zip(found, frames, strict=True)):
        frame = frame.sort_values("samples", ascending=False, kind="stable") if len(frame) > NAMED else frame
        width = 0.75 if len(frame) <= NAMED else 1.0
        here = axes[wide * row : wide * (row + 1)]
        here[0].bar(np.arange(len(frame)), frame["samples"], width, color=FILL)
        if one in known:
            _rates(here[1], one, frame, width)
        elif known:
            here[1].text(0.5, 0.5, "unknown", ha="center", va="center", transform=here[1].transAxes)
        for axis, kind in zip(here, ("samples", "noise rate"), strict=False):
            heads.append(" · ".join([*varying(found, one), kind]))
            axis.grid(axis="x", visible=False)
            axis.set_xlim(-0.7, len(frame) - 0.3)
            axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for same in (axes[place::wide] for place in range(wide)):
        top = max(axis.get_ylim()[1] for axis in same)
        for axis in same:
            axis.set_ylim(0, top)
    titles(axes, heads)
    outer(axes, "client, sorted by samples" if many else "client", "")
    wrong = (
        " and share of wrong labels of every client; dotted: over all clients; grey: where 95 % of equally noisy "
        "clients of that size would lie."
        if known
        else " of every client. How many of the labels are wrong, nobody knows."
    )
    total = " or ".join(str(n) for n in sorted({int(one.split.sizes.sum()) for one in found}))
    caption = f"Samples (n = {total}){wrong} {whose(found)}"
    alt = " ".join(_said(one, " · ".join(varying(found, one))) for one in found)
    return drawn(figure, frames, spec, "How much and how noisy" if known else "How much", caption, alt)


def _frame(one: SettingArtifacts) -> pd.DataFrame:
    sizes, rate = one.split.sizes, one.client_rate
    ids = {"dataset": one.dataset, "noise": one.noise, "partition": one.partition, "client": np.arange(len(sizes))}
    return pd.DataFrame({**ids, "samples": sizes, "noise_rate": np.nan if rate is None else rate})


def _rates(axis: Axes, one: SettingArtifacts, frame: pd.DataFrame, width: float) -> None:
    """The rates, their mean, and where equal clients' rates would lie by chance."""
    x, mean = np.arange(len(frame)), one.labels.rate
    axis.axhline(mean, color=FAINT, linewidth=1.0, linestyle=(0, (1.2, 1.6)), zorder=1)
    spread = 1.96 * np.sqrt(mean * (1 - mean) / np.maximum(frame["samples"], 1))
    bottom = np.maximum(mean - spread, 0)
    axis.bar(x, mean + spread - bottom, width, bottom, color=CHANCE, zorder=0.5)
    size = 4 if len(frame) <= NAMED else 2
    axis.plot(x, frame["noise_rate"], linestyle="", marker="o", markersize=size, color=WRONG, clip_on=False)


def _said(one: SettingArtifacts, words: str) -> str:
    """A setting's clients in a sentence."""
    sizes, rate = one.split.sizes, one.client_rate
    noise = "are unknown" if rate is None else f"{np.nanmin(rate):.2f} to {np.nanmax(rate):.2f}"
    head = f"{words}: " if words else ""
    return f"{head}{len(sizes)} clients of {sizes.min()} to {sizes.max()} samples, noise rates {noise}."

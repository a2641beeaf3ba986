"""How many samples each client holds, and how noisy they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.artifacts import SettingArtifacts
from fednoise_core.report.setting_figures.common import drawn, varying, whose
from fednoise_core.report.setting_figures.histogram import CLIENTS
from fednoise_core.report.style import FAINT, FILL, WRONG, Drawn, canvas, inches

__all__ = ["clients"]

CHANCE = "#dcdcdc"  # where a client's rate may lie by chance alone


def clients(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Samples and noise rate of every client; sorted by size where there are too many to name."""
    figure = canvas(inches(spec), 2.9 * len(found))
    grid = figure.subplots(2 * len(found), 1, squeeze=False)[:, 0]
    frames = []
    for place, one in enumerate(found):
        top, low = grid[2 * place], grid[2 * place + 1]
        low.sharex(top)
        top.tick_params(labelbottom=False)
        sizes, rate = one.split.sizes, one.client_rate
        frames.append(
            pd.DataFrame(
                {
                    "dataset": one.dataset,
                    "noise": one.noise,
                    "partition": one.partition,
                    "client": np.arange(len(sizes)),
                    "samples": sizes,
                    "noise_rate": np.nan if rate is None else rate,
                }
            )
        )
        many = len(sizes) > CLIENTS
        order = np.argsort(sizes, kind="stable")[::-1] if many else np.arange(len(sizes))
        x = np.arange(len(sizes))
        if many:
            top.fill_between(x, sizes[order], color=FILL, linewidth=0)
        else:
            top.bar(x, sizes, width=0.75, color=FILL)
        top.set(ylabel="samples", title=" · ".join(varying(found, one)))
        top.set_ylim(0)
        top.grid(axis="x", visible=False)
        low.grid(axis="x", visible=False)
        if rate is None:
            low.text(0.5, 0.5, "unknown: no clean labels", ha="center", va="center", transform=low.transAxes)
            low.set_yticks([])
        else:
            low.axhline(one.labels.rate, color=FAINT, linewidth=1.0, linestyle=(0, (1.2, 1.6)), zorder=1)
            spread = 1.96 * np.sqrt(one.labels.rate * (1 - one.labels.rate) / np.maximum(sizes[order], 1))
            bottom = np.maximum(one.labels.rate - spread, 0)
            low.bar(x, one.labels.rate + spread - bottom, 0.75, bottom, color=CHANCE, zorder=0.5)
            low.plot(x, rate[order], linestyle="", marker="o", markersize=2 if many else 4, color=WRONG, clip_on=False)
            low.set_ylim(0, max(0.05, 1.12 * float(np.nanmax(rate)), 1.05 * one.labels.rate))
        low.set(ylabel="noise rate", xlabel="client, sorted by samples" if many else "client")
        top.set_xlim(-0.7, len(sizes) - 0.3)
        low.xaxis.set_major_locator(MaxNLocator(12 if inches(spec) > 5 else 6, integer=True))
    known = any(one.client_rate is not None for one in found)
    dotted = (
        "; dotted: over all clients; grey: where 95 % of equally noisy clients of that size would lie" if known else ""
    )
    total = " or ".join(str(n) for n in sorted({int(one.split.sizes.sum()) for one in found}))
    caption = f"Samples (n = {total}) and share of wrong labels of every client{dotted}. {whose(found)}"
    alt = " ".join(_said(one, " · ".join(varying(found, one))) for one in found)
    return drawn(figure, frames, spec, "How much and how noisy", caption, alt)


def _said(one: SettingArtifacts, words: str) -> str:
    """A setting's clients in a sentence."""
    sizes, rate = one.split.sizes, one.client_rate
    noise = "are unknown" if rate is None else f"{np.nanmin(rate):.2f} to {np.nanmax(rate):.2f}"
    head = f"{words}: " if words else ""
    return f"{head}{len(sizes)} clients of {sizes.min()} to {sizes.max()} samples, noise rates {noise}."

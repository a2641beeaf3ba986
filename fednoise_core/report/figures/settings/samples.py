"""Training images with their given and true labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.report.figures.settings.common import drawn, short, whose
from fednoise_core.report.figures.style import WRONG, Drawn, canvas, inches
from fednoise_core.report.runs.settings import SettingArtifacts
from fednoise_core.rng import stream

__all__ = ["samples"]


def samples(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Training images with the given label and, where it is wrong, the clean one; half of them wrong, if possible."""
    one, count, across = found[0], int(spec.get("count", 16)), 8 if inches(spec) > 5 else 4
    index = _pick(one, count)
    wrong = one.labels.wrong
    foreign = set() if one.labels.replaced is None else set(one.labels.replaced.tolist())
    rows = -(-len(index) // across)
    figure = canvas(inches(spec), rows * 1.25)
    axes = figure.subplots(rows, across, squeeze=False).flat
    table = []
    for axis in axes:
        axis.set_axis_off()
    for axis, i in zip(figure.axes, index, strict=False):
        given, bad = int(one.labels.noisy[i]), wrong is not None and bool(wrong[i])
        axis.imshow(one.image(int(i)), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axis.text(
            0.5, 1.06, _said("given", short(one.names[given])), ha="center", va="bottom", transform=axis.transAxes
        )
        clean = None if one.labels.clean is None else int(one.labels.clean[i])
        if bad:
            truth = "foreign" if int(i) in foreign else short(one.names[clean or 0])
            axis.text(0.5, -0.06, _said("is", truth), ha="center", va="top", transform=axis.transAxes, color=WRONG)
        table.append(
            {
                "sample": int(i),
                "given": given,
                "clean": "" if clean is None else clean,
                "wrong": "" if wrong is None else int(bad),
            }
        )
    text = f"Training images (n = {len(index)}). Above: the given label" + (
        "; the clean labels are unknown." if wrong is None else "; below, where that is wrong: what it is."
    )
    alt = f"{len(index)} training images of {one.dataset} with their given labels"
    mistaken = 0 if wrong is None else int(wrong[index].sum())
    alt += f", {mistaken} of them wrong, with the right label below." if wrong is not None else "."
    return drawn(figure, [pd.DataFrame(table)], spec, "Samples", f"{text} {whose([one])}", alt)


def _said(word: str, name: str) -> str:
    """A label with the word before it, where an image's width has room for both."""
    return f"{word} {name}" if len(name) <= 5 else name


def _pick(one: SettingArtifacts, count: int) -> np.ndarray:
    """Sample numbers to show, the wrong ones first; the choice is drawn once per seed."""
    order = stream(one.seed, "report", "samples").permutation(np.unique(one.split.index))
    wrong = one.labels.wrong
    if wrong is None:
        return order[:count]
    bad = order[wrong[order]]
    half = min(len(bad), count // 2)
    return np.concatenate([bad[:half], order[~wrong[order]][: count - half]])

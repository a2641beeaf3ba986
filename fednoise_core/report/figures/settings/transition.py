"""How labels were flipped: the transition matrix as asked for, and how what came out differs from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize, PowerNorm

from fednoise_core.report.figures.settings.common import class_axis, drawn, short, varying, whose
from fednoise_core.report.figures.style import HEAT, Drawn, heat, inches, outer, panels, titles, wrap
from fednoise_core.report.runs.settings import SettingArtifacts

__all__ = ["transition"]

MINUS = "realised minus nominal"
DIFFERENCE = "PuOr_r"  # orange: more than asked for; for red-green blind readers, too
CELL, NAMED = 18, 9  # points: the width of a cell with a number, of one with its class's name
FEW = 2  # noises that stand one above the other; of more, pairs stand side by side
HEADS = {"nominal": "asked for", MINUS: "difference", "realised": "drawn", "": ""}


def transition(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """T[i, j] = P(given = j | clean = i) as asked for, and beside it realised minus asked for; the realised one alone
    where nothing was asked for. Numbers where they fit.
    """
    once = {one.labels_file: one for one in reversed(found)}  # partitions of one noise share their labels
    found = list(reversed(once.values()))
    rows = [_matrices(one) for one in found]
    k, wide = max(one.classes for one in found), max(map(len, rows))
    columns = wide * (1 if len(rows) <= FEW else 3 if inches(spec) > 5 else 2)
    side = (inches(spec) - 0.8) / columns
    shown = [(one, *pair) for one, row in zip(found, rows, strict=True) for pair in [*row, ("", None)][:wide]]
    heads = [
        " · ".join([*(varying(found, one, ("dataset", "noise")) if kind != MINUS else ()), HEADS[kind]])
        for one, kind, _ in shown
    ]
    lines = max(sum(wrap(part, side).count("\n") + 1 for part in head.split(" · ")) for head in heads)
    figure, axes = panels(len(shown), spec, side + 0.14 * lines + 0.4, columns)
    titles(axes, heads, side)
    off = [np.nanmax(np.abs(matrix)) for _, kind, matrix in shown if kind == MINUS and matrix is not None]
    most = max([0.05, *off])  # the end of the differences' colours
    frames, images, cell = [], {}, side * 72 / k
    for axis, (one, kind, matrix) in zip(axes, shown, strict=True):
        if matrix is None:
            axis.set_axis_off()
            axis.text(0.5, 0.5, "unknown" if kind else "", ha="center", va="center", transform=axis.transAxes)
            continue
        norm = Normalize(-most, most) if kind == MINUS else PowerNorm(0.5, 0, 1)
        words = (_signed if kind == MINUS else _share) if cell >= CELL else None
        images[kind == MINUS] = heat(axis, matrix, norm, words, DIFFERENCE if kind == MINUS else HEAT)
        for edge in (axis.xaxis, axis.yaxis):
            if cell >= NAMED:
                class_axis(edge, one)
            else:  # which way it goes, and how many classes there are
                edge.set_ticks([0, one.classes - 1], [short(one.names[end], 6) for end in (0, -1)])
        frames.append(_long(one, kind, matrix))
    outer(axes, "given", "clean")
    for minus, image in images.items():
        label = "drawn − asked for" if minus else "probability (square-root scale)"
        figure.set_figheight(figure.get_figheight() + 0.5)
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, aspect=40, label=label)
    caption = "Probability of the given label (column) for each clean class (row)"
    caption += ", and how far the labels drawn are off it." if off else "."
    if any(one.labels.T_nominal is not None and one.labels.T_nominal.ndim == 3 for one in found):
        caption += " Of noise that depends on the client the mean over clients."
    if any(one.labels.T_nominal is None for one in found):
        caption += " Labels given by people have no nominal matrix."
    rates = [f"{one.words[1]} {one.labels.rate:.3f}" for one in found if one.labels.clean is not None]
    alt = f"Heat maps of label noise. Realised noise rate: {'; '.join(rates) or 'unknown'}."
    if off:
        alt += f" The realised matrix differs from the nominal one by {max(off):.2f} at most."
    sizes = sorted({len(one.labels.noisy) for one in found})
    caption += f" n = {' or '.join(map(str, sizes))} samples. {whose(found)}"
    return drawn(figure, frames, spec, "How labels were flipped", caption, alt)


def _long(one: SettingArtifacts, kind: str, matrix: np.ndarray) -> pd.DataFrame:
    clean, given = np.indices(matrix.shape)
    cells = {"matrix": kind, "clean": clean.ravel(), "given": given.ravel()}
    return pd.DataFrame({"dataset": one.dataset, "noise": one.noise, **cells, "probability": matrix.ravel()})


def _matrices(one: SettingArtifacts) -> list[tuple[str, np.ndarray | None]]:
    """What there is to show of a noise: its name and T; None if nothing is known."""
    nominal, realised = _nominal(one), one.labels.T_realised
    if nominal is None:
        return [("realised", realised)]
    return [("nominal", nominal), *([] if realised is None else [(MINUS, realised - nominal)])]


def _nominal(one: SettingArtifacts) -> np.ndarray | None:
    """T as asked for, [K, K]; of client-level noise the mean, a client's rows weighted by its samples of the class."""
    matrix = one.labels.T_nominal
    if matrix is None or matrix.ndim == 2:
        return matrix
    if one.labels.clean is None:
        return matrix.mean(0)
    weight = one.split.histogram(one.labels.clean, one.classes).astype(float)
    total = weight.sum(0)
    weight = np.divide(weight, total, out=np.full_like(weight, 1 / len(weight)), where=total > 0)
    return np.einsum("ck,ckj->kj", weight, np.nan_to_num(matrix))


def _share(value: float) -> str:
    return "1" if value >= 0.995 else f"{value:.2f}".replace("0.", ".") if value else ""


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("0.", ".").replace("-", "−") if abs(value) >= 0.005 else ""

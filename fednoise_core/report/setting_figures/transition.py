"""How labels were flipped: the transition matrix as asked for, and how what came out differs from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from fednoise_core.report.artifacts import SettingArtifacts
from fednoise_core.report.setting_figures.common import NUMBERS, class_axis, drawn, short, varying, whose
from fednoise_core.report.style import HEAT, SIZE, Drawn, canvas, inches, ink_on, wrap

__all__ = ["transition"]

MINUS = "realised minus nominal"
SCALE = "probability (square-root scale)"
DIFFERENCE = "PuOr_r"  # orange: more than asked for; for red-green blind readers, too
CELL = 18  # points: the width of a cell with a number
FEW = 2  # noises that have room for numbers; more stand as small pairs
HEADS = {"nominal": "asked for", MINUS: "drawn − asked", "realised": "drawn", "": ""}  # above small panels
Panel = tuple[SettingArtifacts, str, np.ndarray | None]


def transition(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """T[i, j] = P(given = j | clean = i) as asked for, and beside it realised minus asked for; the realised one alone
    where nothing was asked for. Numbers where they fit; of many noises small pairs without numbers.
    """
    once = {one.labels_file: one for one in reversed(found)}  # partitions of one noise share their labels
    found = list(reversed(once.values()))
    rows = [_matrices(one) for one in found]
    k, width = max(one.classes for one in found), inches(spec)
    if len(rows) > FEW:
        return _many(rows, found, spec)
    beside = width > 5 and (k <= 10 or k > NUMBERS) and max(map(len, rows)) == 2
    if not beside:
        rows = [[panel] for row in rows for panel in row]
    across = width if beside or 10 < k <= NUMBERS else min(width, 4.4)
    side = across / (2 if beside else 1) - 0.55
    numbers = k <= NUMBERS and side * 72 / k >= CELL
    size = min(side + 0.5 if k > NUMBERS or not numbers else 0.245 * k + 0.9, 5.6)
    figure = canvas(across, len(rows) * max(size, 1.8) + 0.1)
    grid = figure.subplots(len(rows), 2 if beside else 1, squeeze=False)
    most = _most(rows)
    frames, images = [], {}
    for axes, row in zip(grid, rows, strict=True):
        for spare in axes[len(row) :]:
            spare.remove()
        for axis, (one, kind, matrix) in zip(axes, row, strict=False):
            words = " · ".join(varying(found, one, ("dataset", "noise")))
            title = f"{words}: {kind}" if words else kind
            long = words and max(len(words) + len(each) for _, each, _ in row) > 11 * side
            axis.set_title(title.replace(": ", ":\n") if long else title)
            axis.grid(False)
            if matrix is None:
                axis.set_axis_off()
                axis.text(0.5, 0.5, "unknown: no clean labels", ha="center", va="center", transform=axis.transAxes)
                continue
            norm = Normalize(-most, most) if kind == MINUS else PowerNorm(0.5, 0, 1)
            shape = "auto" if 10 < k <= NUMBERS and numbers else "equal"
            colours = DIFFERENCE if kind == MINUS else HEAT
            images[kind == MINUS] = axis.imshow(matrix, cmap=colours, norm=norm, interpolation="none", aspect=shape)
            axis.spines[:].set_visible(False)
            axis.tick_params(length=0)
            class_axis(axis.yaxis, one)
            class_axis(axis.xaxis, one)
            axis.set(ylabel="clean", xlabel="given")
            if numbers:
                _numbers(axis, matrix, kind == MINUS)
            frames.append(_long(one, kind, matrix))
    if not numbers:
        for minus, image in images.items():
            label = MINUS if minus else SCALE
            figure.colorbar(image, ax=list(grid[:, -1 if minus and beside else 0]), shrink=0.8, label=label)
    return _finished(figure, found, frames, spec, most if True in images else None, numbers)


def _most(rows: Sequence[Sequence[Panel]]) -> float:
    """The greatest difference between a realised and a nominal matrix, .05 at least: the end of their colours."""
    off = [float(np.nanmax(np.abs(m))) for row in rows for _, kind, m in row if kind == MINUS and m is not None]
    return max([0.05, *off])


def _many(rows: Sequence[Sequence[Panel]], found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Small pairs without numbers, the patterns to be compared: three pairs across a page, two in a column."""
    width, most = inches(spec), _most(rows)
    pairs = 3 if width > 5 else 2
    lines = -(-len(rows) // pairs)
    side = (width - 0.8) / (2 * pairs)
    heads = [wrap(", ".join(varying(found, row[0][0], ("dataset", "noise"))), side) for row in rows]
    tall = side + 0.14 * (2 + max(map(_breaks, heads))) + 0.25
    figure = canvas(width, lines * tall + 0.75)
    grid = figure.add_gridspec(lines + 1, 2 * pairs, height_ratios=[tall] * lines + [0.5])
    frames, images, small = [], {}, SIZE - 1
    for place, row in enumerate(rows):
        for beside in range(2):
            axis = figure.add_subplot(grid[place // pairs, 2 * (place % pairs) + beside])
            one, kind, matrix = row[beside] if beside < len(row) else (row[0][0], "", None)
            words = "difference" if kind == MINUS and width < 5 else HEADS[kind.split(",")[0]]
            size = small if beside or width < 5 else SIZE
            axis.set_title(words if beside else f"{heads[place]}\n{words}", fontsize=size)
            if matrix is None:
                axis.set_axis_off()
                axis.text(0.5, 0.5, "" if beside else "unknown", ha="center", va="center", transform=axis.transAxes)
                continue
            norm = Normalize(-most, most) if kind == MINUS else PowerNorm(0.5, 0, 1)
            colours = DIFFERENCE if kind == MINUS else HEAT
            images[kind == MINUS] = axis.imshow(matrix, cmap=colours, norm=norm, interpolation="none")
            ends = [0, one.classes - 1]  # which way it goes, and how many classes there are
            axis.set_xticks(ends, [short(one.names[end], 6) for end in ends])
            axis.set_yticks(ends, ["" if beside else short(one.names[end], 6) for end in ends])
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
            axis.grid(False)
            if place + pairs >= len(rows):
                axis.set_xlabel("given", labelpad=0)
            if not beside and place % pairs == 0:
                axis.set_ylabel("clean", labelpad=0)
            frames.append(_long(one, kind, matrix))
    for minus, image in images.items():
        under = figure.add_subplot(grid[lines, pairs:] if minus else grid[lines, :pairs])
        under.set_axis_off()
        bar = figure.colorbar(image, cax=under.inset_axes((0.12, 0.75, 0.76, 0.25)), orientation="horizontal")
        bar.set_label(HEADS[MINUS] if minus else SCALE if width > 5 else SCALE.split(" (")[0])
        steps = [0, 0.1, 0.4, 1] if width > 5 else [0, 0.2, 1]
        bar.locator = MaxNLocator(5 if width > 5 else 2) if minus else FixedLocator(steps)
        bar.update_ticks()
    return _finished(figure, found, frames, spec, most if True in images else None, False)


def _breaks(text: str) -> int:
    return text.count("\n")


def _finished(
    figure: Figure,
    found: Sequence[SettingArtifacts],
    frames: Sequence[pd.DataFrame],
    spec: Mapping[str, Any],
    most: float | None,
    numbers: bool,
) -> Drawn:
    """The words; `most`: the greatest difference, None if none is shown."""
    caption = "Probability of the given label (column) for each clean class (row)"
    caption += ", and how far the labels drawn are off it." if most is not None else "."
    if most is not None and not numbers:
        caption += " Left of each pair what was asked for, right the difference."
    caption += " Empty cells are 0; a class without samples has an empty row." if numbers else ""
    if any(one.labels.T_nominal is None for one in found):
        caption += " Labels given by people have no nominal matrix."
    rates = [f"{one.words[1]} {one.labels.rate:.3f}" for one in found if one.labels.clean is not None]
    alt = f"Heat maps of label noise. Realised noise rate: {'; '.join(rates) or 'unknown'}."
    if most is not None:
        alt += f" The realised matrix differs from the nominal one by {most:.2f} at most."
    sizes = sorted({len(one.labels.noisy) for one in found})
    caption += f" n = {' or '.join(map(str, sizes))} samples. {whose(found)}"
    return drawn(figure, frames, spec, "How labels were flipped", caption, alt)


def _long(one: SettingArtifacts, kind: str, matrix: np.ndarray) -> pd.DataFrame:
    clean, given = np.indices(matrix.shape)
    cells = {"matrix": kind.split(",")[0], "clean": clean.ravel(), "given": given.ravel()}
    return pd.DataFrame({"dataset": one.dataset, "noise": one.noise, **cells, "probability": matrix.ravel()})


def _matrices(one: SettingArtifacts) -> list[tuple[SettingArtifacts, str, np.ndarray | None]]:
    """What there is to show of a noise: (setting, name, T); T is None if nothing is known."""
    client = one.labels.T_nominal is not None and one.labels.T_nominal.ndim == 3
    nominal, realised = _nominal(one), one.labels.T_realised
    if nominal is None or realised is None:
        return [(one, "realised", realised)] if nominal is None else [(one, "nominal", nominal)]
    return [(one, "nominal, mean over clients" if client else "nominal", nominal), (one, MINUS, realised - nominal)]


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


def _numbers(axis: Axes, matrix: np.ndarray, signed: bool) -> None:
    image = axis.images[0]
    for (i, j), value in np.ndenumerate(matrix):
        if np.isnan(value) or value == 0 or (signed and abs(value) < 0.005):
            continue
        text = "1" if value >= 0.995 else f"{value:{'+' if signed else ''}.2f}".replace("0.", ".").replace("-", "−")
        ink = ink_on(image.cmap(image.norm(value)))
        axis.text(j, i, text, ha="center", va="center", fontsize=7 if signed else 7.5, color=ink)

"""Transition matrices of the labels: the requested one, and the difference between the realised and the requested."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.settings.common import (
    finish_figure,
    label_classes,
    panel_title,
    settings_caption,
    shorten_text,
    size_words,
)
from workflow_scripts.report.figures.style import (
    DIFFERENCE,
    HEAT,
    SIZE,
    add_colour_bar,
    draw_heat_map,
    label_outer_axes,
    make_panels,
    width_inches,
    wrap_to_width,
)
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.settings import SettingArtifacts

MINUS = "realised minus nominal"
CELL, NAMED = 18, 9  # points: smallest width of a cell with a number, and with its class's name
FEW = 2  # largest number of noises that are shown below each other; with more, pairs are side by side
HEADS = {"nominal": "requested", MINUS: "realised − requested", "realised": "realised", "": ""}
SHORT = {MINUS: "difference"}  # where a matrix is narrower than LONG inches
LONG = 1.4
HEADED = ("dataset", "noise")  # parts of a setting in the head of its matrix
LEAST = 0.05  # smallest end of the colour scale of differences


class TransitionSettings(FigureSettings):
    """P(given label | clean class), nominal, and realised minus nominal, as heat maps, with numbers where they fit.

    Without a nominal matrix only the realised one is shown. Partitions with the same noise share their labels, which
    are drawn once. Up to FEW noises are below each other. With more, pairs of matrices are side by side.
    """


# setting, key of HEADS, matrix [K, K] (None: it is unknown)
_Panel = tuple[SettingArtifacts, str, np.ndarray | None]


def _draw_transition(panels: Sequence[SettingArtifacts], settings: TransitionSettings) -> Drawn:
    once = {setting.files.get("labels"): setting for setting in reversed(panels)}
    panels = list(reversed(once.values()))
    rows = [_list_matrices(setting) for setting in panels]
    wide = max(map(len, rows))
    columns = wide * (1 if len(rows) <= FEW else 3 if width_inches(settings) > 5 else 2)
    grid = [(setting, *pair) for setting, row in zip(panels, rows, strict=True) for pair in [*row, ("", None)][:wide]]
    figure, axes, side = _place_panels(grid, panels, settings, wide, columns)
    cell = side * 72 / max(setting.classes for setting in panels)
    off = [np.nanmax(np.abs(matrix)) for _, kind, matrix in grid if kind == MINUS and matrix is not None]
    most = max([LEAST, *off])
    images = {
        panel[1] == MINUS: image
        for axis, panel in zip(axes, grid, strict=True)
        if (image := _draw_matrix(axis, panel, most, cell)) is not None
    }
    label_outer_axes(axes, "given", "clean")
    for minus, image in images.items():
        add_colour_bar(axes, image, "difference: realised − requested" if minus else "probability (square-root scale)")
    frames = [_matrix_frame(setting, kind, matrix) for setting, kind, matrix in grid if matrix is not None]
    return finish_figure(figure, frames, settings, "How labels were flipped", _describe_transition(panels, off))


def _place_panels(
    grid: Sequence[_Panel], panels: Sequence[SettingArtifacts], settings: FigureSettings, wide: int, columns: int
) -> tuple[Figure, list[Axes], float]:
    """Figure, axes with their titles, and the side of a matrix in inches.

    If there are several noises, the name of each is above its `wide` matrices.
    """
    side = (width_inches(settings) - 0.8) / columns
    heads = [HEADS[kind] if side > LONG else SHORT.get(kind, HEADS[kind]) for _, kind, _ in grid]
    names = [""] * len(grid)
    names[::wide] = [
        wrap_to_width(panel_title(panels, setting, parts=HEADED), wide * side) for setting, _, _ in grid[::wide]
    ]
    lines = max(name.count("\n") + bool(name) for name in names)
    figure, axes = make_panels(len(grid), settings, side + 0.14 * (lines + 1) + 0.4, columns)
    for axis, name, head in zip(axes, names, heads, strict=True):
        axis.set_title(head)
        axis.set_title("\n" * lines + " ", loc="center")  # space for the name, which may be wider than the matrix
        if name:
            above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
            axis.annotate(name, (0, 1), (0, 6 + 1.2 * SIZE), in_layout=False, **above)
    return figure, axes, side


def _draw_matrix(axis: Axes, panel: _Panel, most: float, cell: float) -> AxesImage | None:
    """Draw a matrix. cell: its cells' width in points, which decides whether numbers and names stand there."""
    setting, kind, matrix = panel
    if matrix is None:
        axis.set_axis_off()
        axis.text(0.5, 0.5, "unknown" if kind else "", ha="center", va="center", transform=axis.transAxes)
        return None
    if kind == MINUS:
        format_cell = _signed_cell if cell >= CELL else None
        image = draw_heat_map(axis, matrix, Normalize(-most, most), format_cell, DIFFERENCE)
    else:
        image = draw_heat_map(axis, matrix, PowerNorm(0.5, 0, 1), _share_cell if cell >= CELL else None, HEAT)
    for edge in (axis.xaxis, axis.yaxis):
        if cell >= NAMED:
            label_classes(edge, setting)
        else:  # shows the direction and the number of classes
            edge.set_ticks([0, setting.classes - 1], [shorten_text(setting.names[end], 6) for end in (0, -1)])
    return image


def _describe_transition(panels: Sequence[SettingArtifacts], off: Sequence[float]) -> dict[str, str]:
    """off: largest difference of each pair of matrices."""
    nominal = [setting.labels.T_nominal for setting in panels]
    caption = "Probability of the given label (column) for each clean class (row)"
    caption += ", and the difference between the realised and the requested one." if off else "."
    if any(matrix is not None and matrix.ndim == 3 for matrix in nominal):
        caption += " Of noise that depends on the client the mean over clients."
    if any(matrix is None for matrix in nominal):
        caption += " Labels given by people have no nominal matrix."
    caption += f" n = {size_words(len(setting.labels.noisy) for setting in panels)} samples. {settings_caption(panels)}"
    rates = [f"{setting.words[1]} {setting.labels.rate:.3f}" for setting in panels if setting.labels.clean is not None]
    alt = f"Heat maps of label noise. Realised noise rate: {'; '.join(rates) or 'unknown'}."
    alt += f" The realised matrix differs from the nominal one by {max(off):.2f} at most." if off else ""
    return {"caption": caption, "alt": alt}


def _matrix_frame(setting: SettingArtifacts, kind: str, matrix: np.ndarray) -> pd.DataFrame:
    clean, noisy = np.indices(matrix.shape)
    cells = {"matrix": kind, "clean": clean.ravel(), "given": noisy.ravel()}
    return pd.DataFrame(
        {"dataset": setting.setting.dataset, "noise": setting.setting.noise, **cells, "probability": matrix.ravel()}
    )


def _list_matrices(setting: SettingArtifacts) -> list[tuple[str, np.ndarray | None]]:
    """List the matrices of a noise, each with its name; None if nothing is known."""
    nominal, realised = _nominal_matrix(setting), setting.labels.T_realised
    if nominal is None:
        return [("realised", realised)]
    return [("nominal", nominal), *([] if realised is None else [(MINUS, realised - nominal)])]


def _nominal_matrix(setting: SettingArtifacts) -> np.ndarray | None:
    """The nominal T [K, K]. For client-level noise the mean, with a client's rows weighted by its samples per class."""
    matrix = setting.labels.T_nominal
    if matrix is None or matrix.ndim == 2:
        return matrix
    if setting.labels.clean is None:
        return matrix.mean(0)
    weight = setting.split.histogram(setting.labels.clean, setting.classes).astype(float)
    total = weight.sum(0)
    weight = np.divide(weight, total, out=np.full_like(weight, 1 / len(weight)), where=total > 0)
    return np.einsum("ck,ckj->kj", weight, np.nan_to_num(matrix))


def _share_cell(value: float) -> str:
    return "1" if value >= 0.995 else f"{value:.2f}".replace("0.", ".") if value else ""


def _signed_cell(value: float) -> str:
    return f"{value:+.2f}".replace("0.", ".").replace("-", "−") if abs(value) >= 0.005 else ""


def _has_flips(setting: SettingArtifacts) -> bool:
    """Return True if labels were flipped and a matrix is known."""
    has_matrix = setting.labels.T_nominal is not None or setting.labels.T_realised is not None
    return has_matrix and not is_noiseless(setting.labels.spec.get("noise", {}))


KIND = FigureKind(
    settings=TransitionSettings, draw=_draw_transition, example={"noises": ["random40"]}, applies=_has_flips
)

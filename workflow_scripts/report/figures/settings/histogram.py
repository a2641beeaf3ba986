"""Samples of each class at each client."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import Distinct
from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.settings.common import (
    NUMBERS,
    finish_figure,
    label_classes,
    panel_title,
    settings_caption,
    size_words,
)
from workflow_scripts.report.figures.style import (
    FAINT,
    FILL,
    QUIET,
    WRONG,
    add_legend_below,
    count_title_lines,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
)
from workflow_scripts.report.runs.settings import SettingArtifacts

CLIENTS, DOTS = 100, 4000  # most clients and dots in a panel; more could not be distinguished
DUST = {"samples": 4, "mislabelled": 1.2}  # square points: smallest visible dots
COLOURS = {"given": FILL, "clean": QUIET}


class HistogramSettings(FigureSettings):
    """Samples per client and class by given or clean labels, as dots sized by count (FedDPCont, figures 3 and 4).

    The inner dot shows the mislabelled share of them.
    """

    show: Annotated[
        Distinct[Literal["clean", "given"]], Field(min_length=1, description="Whose labels are counted.")
    ] = ["given"]  # noqa: RUF012 - pydantic copies it


_Panel = tuple[SettingArtifacts, str, pd.DataFrame]  # setting, clean or given, its counts


class _Dots(NamedTuple):
    """Sizes of the dots of all panels."""

    clients: int  # shown of each setting
    cell: np.ndarray  # width and height of a dot's place in points
    scale: float  # diameter of the dot of one sample in points
    held: pd.Series  # samples of all dots


def _draw_histogram(panels_shown: Sequence[SettingArtifacts], settings: HistogramSettings) -> Drawn:
    panels = [
        (setting, labels, _count_samples(setting, labels))
        for setting in panels_shown
        for labels in settings.show
        if labels == "given" or setting.labels.clean is not None
    ]
    if not panels:
        raise SpecError("show: the clean labels are unknown, and nothing else is asked for")
    titles = [panel_title(panels_shown, setting) for setting, _, _ in panels]
    show_both = len(settings.show) > 1
    kinds = [f"{labels} labels" if show_both else "" for _, labels, _ in panels]
    heads = [" · ".join(filter(None, pair)) for pair in zip(titles, kinds, strict=True)]
    figure, axes, dots = _place_panels(panels, heads, settings)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel, dots)
    set_titles(axes, heads)
    label_outer_axes(axes, "client", "class" if show_both else f"{settings.show[0]} label")
    wrong = any(frame["mislabelled"].any() for _, _, frame in panels)
    add_legend_below(figure, _legend_handles(dots, wrong, settings.show))
    texts = _describe_histogram(panels_shown, dots, settings.show, wrong)
    return finish_figure(figure, [frame for _, _, frame in panels], settings, "Who holds which class", texts)


def _place_panels(
    panels: Sequence[_Panel], heads: Sequence[str], settings: FigureSettings
) -> tuple[Figure, list[Axes], _Dots]:
    classes = max(setting.classes for setting, _, _ in panels)
    clients = max(setting.split.clients for setting, _, _ in panels)
    row = 0.135 if len(panels) > 4 else 0.19
    tall = 0.6 + row * classes if classes <= 2 * NUMBERS else 3.2
    columns = 1 if clients > (30 if len(panels) > 2 else 15) and len(panels) <= 4 else None
    extra_height = 0.14 * (count_title_lines(heads, width_inches(settings) / (columns or 3) - 0.35) - 1)
    figure, axes = make_panels(len(panels), settings, tall + extra_height, columns)
    wide = figure.get_figwidth() / axes[0].get_subplotspec().get_gridspec().ncols - 0.75  # type: ignore[union-attr]
    clients = min(clients, CLIENTS, DOTS // classes)
    cell = 72 * np.array([wide / clients, (tall - 0.55) / classes])
    samples = pd.concat([frame for _, _, frame in panels])["samples"]
    scale = 0.95 * min(*cell, 16) / np.sqrt(samples.quantile(0.9))  # for all panels; few dots exceed their cell
    return figure, axes, _Dots(clients, cell, scale, samples)


def _draw_panel(axis: Axes, panel: _Panel, dots: _Dots) -> None:
    setting, labels, frame = panel
    count = setting.split.clients
    chosen = np.unique(np.linspace(0, count - 1, min(count, dots.clients)).round().astype(int))  # evenly
    frame = frame[frame["client"].isin(chosen)]
    x = np.searchsorted(chosen, frame["client"])
    for key, colour, alpha in (("samples", COLOURS[labels], 0.75), ("mislabelled", WRONG, 1)):
        areas = np.maximum(dots.scale**2 * frame[key], DUST[key]) * (frame[key] > 0)
        axis.scatter(x, frame["class"], areas, colour, alpha=alpha, linewidths=0)
    greatest = dots.scale * np.sqrt(frame["samples"].max()) / 2
    edge = np.maximum(0.7, 0.1 + greatest / dots.cell)  # room for the largest dots
    axis.set_xlim(-edge[0], len(chosen) - 1 + edge[0])
    axis.set_ylim(setting.classes - 1 + edge[1], -edge[1])  # class 0 at the top, as in a transition matrix
    label_classes(axis.yaxis, setting)
    ticks = np.arange(0, len(chosen), -(-len(chosen) // 6))
    axis.set_xticks(ticks, chosen[ticks])


def _legend_handles(dots: _Dots, wrong: bool, asked: Sequence[str]) -> list[Line2D]:
    """Explain the colours and sizes of dots."""
    style: dict[str, Any] = {"marker": "o", "linestyle": "", "markeredgewidth": 0}
    handles = []
    for labels in asked:
        text = f"area: samples of a class at a client{f', by {labels} label' if len(asked) > 1 else ''}"
        handles.append(Line2D([], [], markersize=8, color=COLOURS[labels], alpha=0.75, label=text, **style))
    if wrong:
        handles.append(Line2D([], [], markersize=4.5, color=WRONG, label="orange area: those labelled wrong", **style))
    for count in sorted({max(1, round(dots.held.quantile(share))) for share in (0.1, 0.5, 1)}):
        size = max(dots.scale * np.sqrt(count), np.sqrt(DUST["samples"]))
        text = f"{count} samples" if count > 1 else "1 sample"
        handles.append(Line2D([], [], markersize=size, color=FAINT, label=text, **style))
    return handles


def _describe_histogram(
    panels: Sequence[SettingArtifacts], dots: _Dots, asked: Sequence[str], wrong: bool
) -> dict[str, str]:
    """wrong: whether any sample is mislabelled."""
    meaning = "How many samples of each class a client holds: the larger the dot, the more. Without a dot it has none."
    meaning += " Orange: those of them whose label is wrong." if wrong else ""
    cut = " Evenly chosen clients are shown." if any(setting.split.clients > dots.clients for setting in panels) else ""
    total = size_words(len(setting.split.index) for setting in panels)
    by = f" Classes are those of the {asked[0]} labels." if len(asked) == 1 else ""
    caption = f"{meaning}{by}{cut} n = {total} samples. {settings_caption(panels)}"
    classes = max(setting.classes for setting in panels)
    alt = f"Dots of {dots.clients} clients and {classes} classes, of {dots.held.min()} to {dots.held.max()} samples."
    rates = [
        f"{panel_title(panels, setting) or ' · '.join(setting.words)}: {100 * setting.labels.rate:.0f} %"
        for setting in panels
        if setting.labels.clean is not None
    ]
    alt += f" Mislabelled: {'; '.join(rates)}." if rates else ""
    return {"caption": caption, "alt": alt}


def _count_samples(setting: SettingArtifacts, labels: str) -> pd.DataFrame:
    """Make one row per client and class with samples, by the clean or given labels."""
    y = setting.labels.noisy if labels == "given" else setting.labels.clean
    assert y is not None  # else it has no panel
    counts, wrong = setting.split.histogram(y, setting.classes), np.zeros((setting.split.clients, setting.classes), int)
    if setting.labels.wrong is not None:
        bad = setting.labels.wrong[setting.split.index]
        owner = np.repeat(np.arange(setting.split.clients), setting.split.sizes)
        np.add.at(wrong, (owner[bad], y[setting.split.index][bad]), 1)
    client, label = np.nonzero(counts)
    columns = {"samples": counts[client, label], "mislabelled": wrong[client, label]}
    return pd.DataFrame({**setting.setting._asdict(), "labels": labels, "client": client, "class": label, **columns})


KIND = FigureKind(
    settings=HistogramSettings, draw=_draw_histogram, example={"noises": ["sym40"], "partitions": ["openset-uniform"]}
)

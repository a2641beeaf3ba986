"""Who holds how many samples of which class."""

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

CLIENTS, DOTS = 100, 4000  # clients and dots of a panel at most: of more, none can be told from the next
DUST = {"samples": 4, "mislabelled": 1.2}  # square points: a smaller dot could not be seen
COLOURS = {"given": FILL, "clean": QUIET}


class HistogramSettings(FigureSettings):
    """Samples per client and class by given or clean labels, as dots sized by count (FedDPCont, figures 3 and 4).

    The dot inside is the share of them that is mislabelled.
    """

    show: Annotated[
        Distinct[Literal["clean", "given"]], Field(min_length=1, description="Whose labels are counted.")
    ] = ["given"]  # noqa: RUF012 - pydantic copies it


_Panel = tuple[SettingArtifacts, str, pd.DataFrame]  # setting, clean or given, its counts


class _Dots(NamedTuple):
    """How the dots of all panels are drawn."""

    clients: int  # shown of each setting
    cell: np.ndarray  # width and height of a dot's place in points
    scale: float  # diameter of the dot of one sample in points
    held: pd.Series  # samples of all dots


def _draw_histogram(shown: Sequence[SettingArtifacts], settings: HistogramSettings) -> Drawn:
    panels = [
        (one, labels, _count_samples(one, labels))
        for one in shown
        for labels in settings.show
        if labels == "given" or one.labels.clean is not None
    ]
    if not panels:
        raise SpecError("show: the clean labels are unknown, and nothing else is asked for")
    titles = [panel_title(shown, one) for one, _, _ in panels]
    both = len(settings.show) > 1
    kinds = [f"{labels} labels" if both else "" for _, labels, _ in panels]
    heads = [" · ".join(filter(None, pair)) for pair in zip(titles, kinds, strict=True)]
    figure, axes, dots = _place_panels(panels, heads, settings)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel, dots)
    set_titles(axes, heads)
    label_outer_axes(axes, "client", "class" if both else f"{settings.show[0]} label")
    wrong = any(frame["mislabelled"].any() for _, _, frame in panels)
    add_legend_below(figure, _legend_handles(dots, wrong, settings.show))
    words = _describe_histogram(shown, dots, settings.show, wrong)
    return finish_figure(figure, [frame for _, _, frame in panels], settings, "Who holds which class", words)


def _place_panels(
    panels: Sequence[_Panel], heads: Sequence[str], settings: FigureSettings
) -> tuple[Figure, list[Axes], _Dots]:
    classes = max(one.classes for one, _, _ in panels)
    clients = max(one.split.clients for one, _, _ in panels)
    row = 0.135 if len(panels) > 4 else 0.19
    tall = 0.6 + row * classes if classes <= 2 * NUMBERS else 3.2
    columns = 1 if clients > (30 if len(panels) > 2 else 15) and len(panels) <= 4 else None
    more = 0.14 * (count_title_lines(heads, width_inches(settings) / (columns or 3) - 0.35) - 1)
    figure, axes = make_panels(len(panels), settings, tall + more, columns)
    wide = figure.get_figwidth() / axes[0].get_subplotspec().get_gridspec().ncols - 0.75  # type: ignore[union-attr]
    clients = min(clients, CLIENTS, DOTS // classes)
    cell = 72 * np.array([wide / clients, (tall - 0.55) / classes])
    held = pd.concat([frame for _, _, frame in panels])["samples"]
    scale = 0.95 * min(*cell, 16) / np.sqrt(held.quantile(0.9))  # one for all panels; few dots outgrow their cell
    return figure, axes, _Dots(clients, cell, scale, held)


def _draw_panel(axis: Axes, panel: _Panel, dots: _Dots) -> None:
    one, labels, frame = panel
    count = one.split.clients
    chosen = np.unique(np.linspace(0, count - 1, min(count, dots.clients)).round().astype(int))  # evenly
    frame = frame[frame["client"].isin(chosen)]
    x = np.searchsorted(chosen, frame["client"])
    for key, colour, alpha in (("samples", COLOURS[labels], 0.75), ("mislabelled", WRONG, 1)):
        areas = np.maximum(dots.scale**2 * frame[key], DUST[key]) * (frame[key] > 0)
        axis.scatter(x, frame["class"], areas, colour, alpha=alpha, linewidths=0)
    greatest = dots.scale * np.sqrt(frame["samples"].max()) / 2
    edge = np.maximum(0.7, 0.1 + greatest / dots.cell)  # the greatest are not cut
    axis.set_xlim(-edge[0], len(chosen) - 1 + edge[0])
    axis.set_ylim(one.classes - 1 + edge[1], -edge[1])  # class 0 at the top, as in a transition matrix
    label_classes(axis.yaxis, one)
    ticks = np.arange(0, len(chosen), -(-len(chosen) // 6))
    axis.set_xticks(ticks, chosen[ticks])


def _legend_handles(dots: _Dots, wrong: bool, asked: Sequence[str]) -> list[Line2D]:
    """What the colours and sizes of dots mean."""
    style: dict[str, Any] = {"marker": "o", "linestyle": "", "markeredgewidth": 0}
    handles = []
    for labels in asked:
        words = f"area: samples of a class at a client{f', by {labels} label' if len(asked) > 1 else ''}"
        handles.append(Line2D([], [], markersize=8, color=COLOURS[labels], alpha=0.75, label=words, **style))
    if wrong:
        handles.append(Line2D([], [], markersize=4.5, color=WRONG, label="orange area: those labelled wrong", **style))
    for count in sorted({max(1, round(dots.held.quantile(share))) for share in (0.1, 0.5, 1)}):
        size = max(dots.scale * np.sqrt(count), np.sqrt(DUST["samples"]))
        words = f"{count} samples" if count > 1 else "1 sample"
        handles.append(Line2D([], [], markersize=size, color=FAINT, label=words, **style))
    return handles


def _describe_histogram(
    shown: Sequence[SettingArtifacts], dots: _Dots, asked: Sequence[str], wrong: bool
) -> dict[str, str]:
    """wrong: whether any sample is mislabelled."""
    meaning = "How many samples of each class a client holds: the larger the dot, the more. Without a dot it has none."
    meaning += " Orange: those of them whose label is wrong." if wrong else ""
    cut = " Evenly chosen clients are shown." if any(one.split.clients > dots.clients for one in shown) else ""
    total = size_words(len(one.split.index) for one in shown)
    by = f" Classes are those of the {asked[0]} labels." if len(asked) == 1 else ""
    caption = f"{meaning}{by}{cut} n = {total} samples. {settings_caption(shown)}"
    classes = max(one.classes for one in shown)
    alt = f"Dots of {dots.clients} clients and {classes} classes, of {dots.held.min()} to {dots.held.max()} samples."
    rates = [
        f"{panel_title(shown, one) or ' · '.join(one.words)}: {100 * one.labels.rate:.0f} %"
        for one in shown
        if one.labels.clean is not None
    ]
    alt += f" Mislabelled: {'; '.join(rates)}." if rates else ""
    return {"caption": caption, "alt": alt}


def _count_samples(one: SettingArtifacts, labels: str) -> pd.DataFrame:
    """A row a client and class that it has samples of, by the clean or given labels."""
    y = one.labels.noisy if labels == "given" else one.labels.clean
    assert y is not None  # else it has no panel
    counts, wrong = one.split.histogram(y, one.classes), np.zeros((one.split.clients, one.classes), int)
    if one.labels.wrong is not None:
        bad = one.labels.wrong[one.split.index]
        owner = np.repeat(np.arange(one.split.clients), one.split.sizes)
        np.add.at(wrong, (owner[bad], y[one.split.index][bad]), 1)
    client, label = np.nonzero(counts)
    found = {"samples": counts[client, label], "mislabelled": wrong[client, label]}
    return pd.DataFrame({**one.setting._asdict(), "labels": labels, "client": client, "class": label, **found})


KIND = FigureKind(
    settings=HistogramSettings, draw=_draw_histogram, example={"noises": ["sym40"], "partitions": ["openset-uniform"]}
)

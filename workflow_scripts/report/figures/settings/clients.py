"""Samples and noise rate of each client."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.settings.common import (
    finish_figure,
    panel_title,
    settings_caption,
    size_words,
)
from workflow_scripts.report.figures.style import (
    FAINT,
    FILL,
    WRONG,
    add_legend_below,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
)
from workflow_scripts.report.runs.settings import SettingArtifacts

CHANCE = "#dcdcdc"  # colour of the range of rates by chance alone
MEAN: dict[str, Any] = {"color": FAINT, "linewidth": 1.0, "linestyle": (0, (1.2, 1.6))}
FEW = 5  # samples below which a client's rate is unreliable
NAMED = 150  # largest number of clients that are shown in the order of their numbers


class ClientsSettings(FigureSettings):
    """Samples and noise rate of every client.

    Clients are sorted by size where there are too many to name. The axes of all settings are the same.
    """


def _draw_clients(panels: Sequence[SettingArtifacts], settings: ClientsSettings) -> Drawn:
    has_rates = any(setting.client_rate is not None for setting in panels)  # else there is no panel of rates
    kinds = ("samples", "noise rate") if has_rates else ("samples",)
    wide = len(kinds)  # panels of a setting
    columns = wide * (2 if width_inches(settings) > 5 and len(panels) > 6 else 1)
    figure, axes = make_panels(wide * len(panels), settings, 1.45, columns)
    frames = [_client_frame(setting) for setting in panels]
    for row, (setting, frame) in enumerate(zip(panels, frames, strict=True)):
        _draw_setting(axes[wide * row : wide * (row + 1)], setting, frame)
    set_titles(axes, [panel_title(panels, setting) if kind == kinds[0] else "" for setting in panels for kind in kinds])
    crowded = max(map(len, frames)) > NAMED
    label_outer_axes(axes, "client, sorted by samples" if crowded else "client", "")
    for place in range(wide):
        top = max(axis.get_ylim()[1] for axis in axes[place::wide])
        for axis in axes[place::wide]:
            axis.set(ylim=(0, top), ylabel=kinds[place])
    few = has_rates and any((frame["samples"] < FEW).any() for frame in frames)
    add_legend_below(figure, _legend_handles(has_rates, few))
    title = "How much and how noisy" if has_rates else "How much"
    return finish_figure(figure, frames, settings, title, _describe_clients(panels, has_rates))


def _client_frame(setting: SettingArtifacts) -> pd.DataFrame:
    sizes, rate = setting.split.sizes, setting.client_rate
    columns = {"client": np.arange(len(sizes)), "samples": sizes, "noise_rate": np.nan if rate is None else rate}
    return pd.DataFrame({**setting.setting._asdict(), **columns})


def _draw_setting(axes: Sequence[Axes], setting: SettingArtifacts, frame: pd.DataFrame) -> None:
    """Draw samples and, where a second panel is for them, noise rates."""
    crowded = len(frame) > NAMED
    frame = frame.sort_values("samples", ascending=False, kind="stable") if crowded else frame
    width = 1.0 if crowded else 0.75
    axes[0].bar(np.arange(len(frame)), frame["samples"], width, color=FILL)
    for axis in axes[1:]:
        if setting.client_rate is None:
            axis.text(0.5, 0.5, "unknown", ha="center", va="center", transform=axis.transAxes)
        else:
            _draw_rates(axis, setting.labels.rate, frame, width)
    for axis in axes:
        axis.grid(axis="x", visible=False)
        axis.set_xlim(-0.7, len(frame) - 0.3)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_rates(axis: Axes, mean: float, frame: pd.DataFrame, width: float) -> None:
    """Draw the rates, their mean, and the range by chance if all clients had equal rates."""
    x = np.arange(len(frame))
    axis.axhline(mean, zorder=1, **MEAN)
    spread = 1.96 * np.sqrt(mean * (1 - mean) / np.maximum(frame["samples"], 1))
    bottom = np.maximum(mean - spread, 0)
    axis.bar(x, np.minimum(mean + spread, 1) - bottom, width, bottom, color=CHANCE, zorder=0.5)
    size = 4 if len(frame) <= NAMED else 2
    inside = np.where(frame["samples"] < FEW, "white", WRONG)
    axis.scatter(x, frame["noise_rate"], size**2, inside, edgecolors=WRONG, clip_on=False, zorder=3)


def _legend_handles(has_rates: bool, few: bool) -> list[Line2D]:
    """has_rates: whether there are rates. few: whether some client has few samples."""
    bar: dict[str, Any] = {"marker": "s", "markersize": 7, "linestyle": ""}
    dot: dict[str, Any] = {"color": WRONG, "marker": "o", "linestyle": ""}
    handles = [Line2D([], [], color=FILL, label="samples of a client", **bar)]
    if has_rates:
        handles.append(Line2D([], [], label="share of its labels that is wrong", **dot))
        if few:
            handles.append(Line2D([], [], label=f"the same, of fewer than {FEW}", markerfacecolor="white", **dot))
        handles.append(Line2D([], [], label="share over all clients", **MEAN))
        handles.append(Line2D([], [], color=CHANCE, label="where chance alone puts 95 % of clients", **bar))
    return handles


def _describe_clients(panels: Sequence[SettingArtifacts], has_rates: bool) -> dict[str, str]:
    wrong = (
        " and share of wrong labels of every client. Grey: where 95 % of equally noisy clients of that size would lie."
        if has_rates
        else " of every client. How many of the labels are wrong, nobody knows."
    )
    total = size_words(int(setting.split.sizes.sum()) for setting in panels)
    caption = f"Samples (n = {total}){wrong} {settings_caption(panels)}"
    return {
        "caption": caption,
        "alt": " ".join(_client_words(setting, panel_title(panels, setting)) for setting in panels),
    }


def _client_words(setting: SettingArtifacts, title: str) -> str:
    sizes, rate = setting.split.sizes, setting.client_rate
    noise = "are unknown" if rate is None else f"{np.nanmin(rate):.2f} to {np.nanmax(rate):.2f}"
    head = f"{title}: " if title else ""
    return f"{head}{len(sizes)} clients of {sizes.min()} to {sizes.max()} samples, noise rates {noise}."


KIND = FigureKind(settings=ClientsSettings, draw=_draw_clients, example={"noises": ["sym40"], "partitions": ["iid"]})

"""Parts that the figures of settings share: class names, titles, captions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workflow_scripts.report.figures.kind import Drawn, FigureSettings
from workflow_scripts.report.runs.settings import SettingArtifacts
from workflow_scripts.report.text.cells import PARTS

NUMBERS = 20  # largest number of classes for which a heat map has room for numbers


def label_classes(axis: Any, setting: SettingArtifacts) -> None:
    """Label an axis of classes with their names if they fit, else with some of the class numbers.

    Args:
        axis: The x or y axis of a panel.
        setting: The panel's setting.
    """
    if setting.classes > 2 * NUMBERS:
        axis.set_major_locator(MaxNLocator(6, integer=True))
        return
    names = [shorten_text(name, 14) for name in setting.names]
    if len(set(names)) < len(names):  # shortened names are equal
        names = [str(k) for k in range(setting.classes)]
    axis.set_ticks(range(setting.classes), names)
    if axis.axis_name == "x" and max(map(len, names)) > 2:
        for tick in axis.get_ticklabels():
            tick.set_rotation(90)


def _varying_parts(panels: Sequence[SettingArtifacts], setting: SettingArtifacts, parts: Sequence[str]) -> list[str]:
    return [
        setting.words[PARTS.index(part)]
        for part in parts
        if len({getattr(panel.setting, part) for panel in panels}) > 1
    ]


def panel_title(
    panels: Sequence[SettingArtifacts], setting: SettingArtifacts, *extra: str, parts: Sequence[str] = PARTS
) -> str:
    """Name a setting's panel by the parts in which the settings of a figure differ.

    Args:
        panels: All settings of the figure.
        setting: The panel's setting.
        extra: Further words of the title; "" is left out.
        parts: Parts of a setting that may be named.
    """
    return " · ".join(filter(None, (*_varying_parts(panels, setting, parts), *extra)))


def settings_caption(panels: Sequence[SettingArtifacts]) -> str:
    """Write the end of a caption: the parts that all settings of a figure share, and the seed.

    Args:
        panels: All settings of the figure.
    """
    first = panels[0]
    varies = _varying_parts(panels, first, PARTS)
    same = " · ".join(word for word in first.words if word not in varies)
    return f"{same}{', ' if same else ''}seed {first.seed}."


def size_words(sizes: Iterable[int]) -> str:
    """Numbers of samples in words: each different one once, as in "900 or 1200"."""
    return " or ".join(map(str, sorted(set(sizes))))


def shorten_text(text: str, most: int = 11) -> str:
    """Cut a text to `most` letters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def finish_figure(
    figure: Figure, frames: Sequence[pd.DataFrame], settings: FigureSettings, title: str, texts: Mapping[str, str]
) -> Drawn:
    """Put a figure together with the frames that were drawn.

    Args:
        figure: The figure.
        frames: The drawn data, one frame per panel. Without frames the figure's CSV says "unknown".
        settings: The figure's settings.
        title: Title on the page.
        texts: `caption` and `alt` (see `Drawn`).
    """
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"note": ["unknown"]})
    return Drawn(figure, frame, settings, title, **texts)

"""What the figures of settings share: class names, titles, captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.figures.style import Drawn
from fednoise_core.report.runs.settings import SettingArtifacts
from fednoise_core.report.text.cells import PARTS

__all__ = ["NUMBERS", "class_axis", "drawn", "short", "varying", "whose"]

NUMBERS = 20  # classes up to which a heat map has room for numbers


def class_axis(axis: Any, one: SettingArtifacts) -> None:
    """Class names where they fit, else every so many numbers."""
    if one.classes > 2 * NUMBERS:
        axis.set_major_locator(MaxNLocator(6, integer=True))
        return
    names = [short(name, 14) for name in one.names]
    if len(set(names)) < len(names):  # cut short, they would all be the same
        names = [str(k) for k in range(one.classes)]
    axis.set_ticks(range(one.classes), names)
    if axis.axis_name == "x" and max(map(len, names)) > 2:
        for tick in axis.get_ticklabels():
            tick.set_rotation(90)


def varying(
    found: Sequence[SettingArtifacts], one: SettingArtifacts, parts: Sequence[str] = ("dataset", "noise", "partition")
) -> list[str]:
    """The words of those parts of a setting in which the settings of a figure differ: its panel's title."""
    return [one.words[PARTS.index(part)] for part in parts if len({getattr(other, part) for other in found}) > 1]


def whose(found: Sequence[SettingArtifacts]) -> str:
    """The end of a caption: what all settings of a figure share, and the seed that is shown."""
    one = found[0]
    varies = varying(found, one)
    same = " · ".join(word for word in one.words if word not in varies)
    return f"{same}{', ' if same else ''}seed {one.seed}."


def short(text: str, most: int = 11) -> str:
    """A text of `most` letters at most."""
    return text if len(text) <= most else text[: most - 1] + "…"


def drawn(
    figure: Figure, frames: Sequence[pd.DataFrame], spec: Mapping[str, Any], title: str, caption: str, alt: str
) -> Drawn:
    """Finish: the frame that was drawn, and the words."""
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"note": ["unknown"]})
    return Drawn(figure, frame, spec, title, caption, alt)

"""The lines' names beside their panel, and the part of the y axis that shows the lines apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fednoise_core.report.figures.axis_minimum import floor
from fednoise_core.report.figures.style import FAINT, INK, SIZE, inches
from fednoise_core.report.text.escape import wrap_text

__all__ = ["BELOW", "End", "cut_words", "focus", "name_ends", "room"]

BELOW = "▾"  # before the value of a line that ends under the axis
NAME = SIZE - 0.5  # points: the letters of a name
LINE = NAME * 1.3 / 72  # inches: the height of a line of them
LETTERS = 21  # at which a name is broken into lines


@dataclass(frozen=True)
class End:
    """Where a line ends (NaN: it has no point), its name, and `style` of its line; `ink` of the letters."""

    y: float
    name: str
    style: dict[str, Any]
    value: str = ""
    ink: str = INK

    def words(self, low: float) -> str:
        """Value and name in lines; an axis that starts at `low` may leave the line's end out."""
        below = BELOW if self.y < low and self.value else ""
        return wrap_text(f"{below} {self.value} {self.name}".strip(), LETTERS, break_long_words=False)


def focus(
    axes: Sequence[Axes], groups: Sequence[str], ends: Sequence[Sequence[End]], spec: Mapping[str, Any]
) -> list[float]:
    """Set the y axes of panels: as `spec` asks for, else by `floor`, equal for all panels of a group (a data set).
    Returns where the axes start that leave something out, which they show by a sign.
    """
    starts = []
    for group in dict.fromkeys(groups):
        here = [place for place, name in enumerate(groups) if name == group]
        floors = [floor([end.y for end in ends[place]]) for place in here]
        least = min(axes[place].dataLim.ymin for place in here)
        most = max(axes[place].dataLim.ymax for place in here)
        low = -math.inf if None in floors else min(value for value in floors if value is not None)
        low, high = spec.get("y") or (low, most + 0.07 * (most - low))
        cut = low > least
        if not cut and not spec.get("y"):
            continue
        starts += [low] if cut else []
        for place in here:
            axes[place].set_ylim(low, high)
            if cut:
                look: dict[str, Any] = {"color": FAINT, "markeredgewidth": 0.9, "clip_on": False, "linestyle": "none"}
                broken: dict[str, Any] = {"marker": [(-1, -0.5), (1, 0.5)], "markersize": 7}
                axes[place].plot([0, 0], [0.012, 0.035], transform=axes[place].transAxes, **broken, **look)
    return starts


def cut_words(starts: Sequence[float]) -> str:
    """A caption's sentence about axes that leave something out."""
    if not starts:
        return ""
    at = " or ".join(f"{value:g}" for value in sorted(set(starts)))
    return f" The axis starts at {at} %: what is lower is cut off, and {BELOW} stands before a value below."


def room(spec: Mapping[str, Any], names: Sequence[Sequence[str]]) -> tuple[int, float]:
    """Panels side by side and inches of height of each, for panels whose lines have these names (a list each)."""
    lines = [sum(End(0, name, {}, "88.8").words(0).count("\n") + 1 for name in each) for each in names]
    columns = min(2, len(names)) if inches(spec) > 5 else 1
    return spec.get("columns") or columns, max(2.0, max(lines) * LINE + 0.6)


def name_ends(axes: Sequence[Axes], ends: Sequence[Sequence[End]]) -> None:
    """Right of each panel a legend of values and names, the highest end first. The limits of the axes must be set."""
    for axis, found in zip(axes, ends, strict=True):
        low = axis.get_ylim()[0]
        order = sorted(found, key=lambda end: math.inf if math.isnan(end.y) else -end.y)
        handles = [Line2D([], [], label=end.words(low), **end.style) for end in order]
        where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1), "borderaxespad": 0, "fontsize": NAME}
        legend = axis.legend(handles=handles, labelspacing=0.25, handletextpad=0.5, **where)
        for end, text in zip(order, legend.get_texts(), strict=True):
            text.set_color(end.ink)

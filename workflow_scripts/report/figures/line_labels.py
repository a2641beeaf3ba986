"""Names of lines beside their panel, and ranges of the y axis in which the lines can be distinguished."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from workflow_scripts.report.figures.axis_minimum import find_axis_minimum
from workflow_scripts.report.figures.style import FAINT, INK, SIZE
from workflow_scripts.report.text.escape import wrap_text

BELOW = "▾"  # before the value of a line that ends below the axis
TOP = 100.5  # %: largest upper end of an axis of accuracies
NAME = SIZE - 0.5  # points: font size of names
LINE = NAME * 1.3 / 72  # inches: line height of names
LETTERS = 21  # characters after which a name is broken into lines


@dataclass(frozen=True)
class LineEnd:
    """End of a line, and its label there.

    Attributes:
        y: Height of the end; NaN if the line has no point.
        name: The line's name.
        style: Keyword arguments of the line in the legend.
        value: The number before the name.
        ink: Text colour.
        bold: Whether value and name are bold, as for the best method.
        apart: Whether the label is below the others and in italics, as for a method that is not compared.
    """

    y: float
    name: str
    style: Mapping[str, Any]
    value: str = ""
    ink: str = INK
    bold: bool = False
    apart: bool = False

    def label_text(self, low: float) -> str:
        """Return value and name in lines, with a sign if the end is below `low`, the start of the axis."""
        below = BELOW if self.y < low and self.value else ""
        return wrap_text(f"{below} {self.value} {self.name}".strip(), LETTERS, break_long_words=False)


def set_y_ranges(axes: Sequence[Axes], groups: Sequence[str], ends: Sequence[Sequence[LineEnd]]) -> list[float]:
    """Set the y axes of panels, equal for all panels of a group.

    Args:
        axes: The panels.
        groups: Group of each panel, such as its data set.
        ends: Line ends of each panel, from which `find_axis_minimum` chooses the start.

    Returns:
        The starts of the axes that leave out lines. These axes have a sign.
    """
    starts = []
    for group in dict.fromkeys(groups):
        members = [place for place, name in enumerate(groups) if name == group]
        minimum = find_axis_minimum(*([end.y for end in ends[place]] for place in members))
        least = min(axes[place].dataLim.ymin for place in members)
        most = max(axes[place].dataLim.ymax for place in members)
        low = -math.inf if minimum is None else minimum
        top = min(most + 0.07 * (most - max(low, least)), TOP)
        cut = low > least
        starts += [low] if cut else []
        for place in members:
            axes[place].set_ylim(low if cut else None, top if math.isfinite(top) else None)
            if cut:
                _mark_cut_axis(axes[place])
    return starts


def _mark_cut_axis(axis: Axes) -> None:
    look: dict[str, Any] = {"color": FAINT, "markeredgewidth": 0.9, "clip_on": False, "linestyle": "none"}
    broken: dict[str, Any] = {"marker": [(-1, -0.5), (1, 0.5)], "markersize": 7}
    axis.plot([0, 0], [0.012, 0.035], transform=axis.transAxes, **broken, **look)


def cut_axis_words(starts: Sequence[float], below: bool) -> str:
    """Write a caption's sentence about axes that leave out lines.

    Args:
        starts: The starts of these axes in percent, from `set_y_ranges`.
        below: Whether a line ends below its axis.

    Returns:
        The sentence, or "" if there is no such axis.
    """
    if not starts:
        return ""
    starts_text = " or ".join(f"{value:g}" for value in sorted(set(starts)))
    note = f"{BELOW} marks a value below it" if below else "what lies below is not shown"
    return f" The axis starts at {starts_text} %; {note}."


def fit_panels(names: Sequence[Sequence[str]], width: float) -> tuple[int, float]:
    """Choose the layout of panels whose lines have names beside them.

    Args:
        names: Names of the lines of each panel.
        width: Width of the figure in inches.

    Returns:
        Panels side by side, and the height of each in inches.
    """
    lines = [sum(LineEnd(0, name, {}, "88.8").label_text(0).count("\n") + 1 for name in each) for each in names]
    return min(2, len(names)) if width > 5 else 1, max(2.0, max(lines) * LINE + 0.6)


def label_line_ends(axes: Sequence[Axes], ends: Sequence[Sequence[LineEnd]]) -> None:
    """Add a legend of values and names on the right of each panel, the highest end first.

    Args:
        axes: The panels. The limits of their axes must be set.
        ends: Line ends of each panel.
    """
    for axis, line_ends in zip(axes, ends, strict=True):
        low = axis.get_ylim()[0]
        order = sorted(line_ends, key=lambda end: (end.apart, math.inf if math.isnan(end.y) else -end.y))
        handles = [Line2D([], [], label=end.label_text(low), **end.style) for end in order]
        where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1), "borderaxespad": 0, "fontsize": NAME}
        legend = axis.legend(handles=handles, labelspacing=0.25, handletextpad=0.5, **where)
        for end, text in zip(order, legend.get_texts(), strict=True):
            text.set(color=end.ink, weight="bold" if end.bold else "normal", style="italic" if end.apart else "normal")

"""Names beside the ends of lines, outside the axes, and the part of the y axis that shows the lines apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from fednoise_core.report.cells import MISSING
from fednoise_core.report.floor import floor
from fednoise_core.report.style import FAINT, INK, SIZE, inches, legend_below
from fednoise_core.report.texts import filled

__all__ = ["BELOW", "End", "beside", "cut_words", "focus", "name_ends", "room"]

BELOW = "▾"  # before the value of a line that ends under the axis
# Points right of the axes: where the leader ends, where the piece of line ends, where the name begins.
LEADER, SAMPLE, TEXT = 8, 25, 28
NAME = SIZE - 0.5  # points: the letters of a name
LINE = NAME * 1.3  # points: the height of a line of them
LETTERS = 21  # at which a name is broken into lines


@dataclass(frozen=True)
class End:
    """Where a line ends (x, y in data; NaN: it has no point), its name, and `style` of its line (color, linestyle);
    `ink` of the letters.
    """

    x: float
    y: float
    name: str
    style: dict[str, Any]
    value: str = ""
    ink: str = INK

    def colour(self, named: bool) -> str:
        """That of the text: a value alone, without a piece of the line, has the line's."""
        return self.ink if named else str(self.style["color"])

    def words(self, below: bool, letters: int) -> str:
        """The text beside the line, broken at so many letters; 0: the value alone."""
        if not letters:
            return f"{BELOW} {self.value}" if below and self.value else self.value or MISSING
        text = f"{BELOW} {self.value} {self.name}" if below and self.value else f"{self.value} {self.name}".strip()
        return filled(text, letters, break_long_words=False)


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
        low = None if None in floors else min(value for value in floors if value is not None)
        low, high = spec.get("y") or (low, None)
        values = [np.asarray(line.get_ydata(), float) for place in here for line in axes[place].get_lines()]
        known = np.concatenate([y[np.isfinite(y)] for y in values] or [np.zeros(0)])
        if low is None or not len(known):
            continue
        cut = low > known.min()
        if not cut and high is None:
            continue
        starts += [low] if cut else []
        for place in here:
            axes[place].set_ylim(low, known.max() + 0.03 * (known.max() - low) if high is None else high)
            if cut:
                _broken(axes[place])
    return starts


def cut_words(starts: Sequence[float]) -> str:
    """A caption's sentence about axes that leave something out."""
    if not starts:
        return ""
    at = " or ".join(f"{value:g}" for value in sorted(set(starts)))
    return f" The axis starts at {at} %: what is lower is cut off, and {BELOW} stands before a value below."


def _broken(axis: Axes) -> None:
    """The sign that an axis does not start where the lines do."""
    look: dict[str, Any] = {"color": FAINT, "markeredgewidth": 0.9, "clip_on": False, "linestyle": "none"}
    axis.plot([0, 0], [0.012, 0.035], transform=axis.transAxes, marker=[(-1, -0.5), (1, 0.5)], markersize=7, **look)


def room(spec: Mapping[str, Any], names: Sequence[Sequence[str]]) -> tuple[int, float]:
    """Panels side by side and inches of height of each, for panels whose lines have these names (a list each)."""
    columns = spec.get("columns") or min(2, len(names))
    if not beside(spec):
        return columns, max(1.7, max(map(len, names)) * LINE / 72 + 0.5)
    broken = [[filled(f"88.8 {name}", LETTERS, break_long_words=False) for name in each] for each in names]
    lines = [sum(text.count("\n") + 1 for text in each) for each in broken]
    return columns, max(2.3, max(lines) * LINE / 72 + 0.6)


def beside(spec: Mapping[str, Any]) -> bool:
    """Whether names have room beside the lines: in a column of two they stand in a legend, the values alone here."""
    return inches(spec) > 5


def name_ends(figure: Figure, axes: Sequence[Axes], ends: Sequence[Sequence[End]], spec: Mapping[str, Any]) -> None:
    """Beside each line's end its value and name with a piece of the line, in the order of the ends and apart, and a
    hairline outside the axes from the end's height to it. The names of lines that end below the axis stand at the
    bottom, marked. In a column the values stand there, and the names in one legend. The limits of the axes must be set,
    and are not changed; the figure grows if a list of names is higher than its panel.
    """
    named, texts = beside(spec), []
    if not named:
        legend_below(figure, axes)
    for axis, found in zip(axes, ends, strict=True):
        low = axis.get_ylim()[0]
        words = [end.words(end.y < low, LETTERS if named else 0) for end in found]
        shift = ScaledTranslation((TEXT if named else LEADER + 2) / 72, 0, figure.dpi_scale_trans)
        places = np.linspace(0, 1, len(found) + 2)[1:-1]
        look: dict[str, Any] = {"va": "center", "clip_on": False, "fontsize": NAME}
        texts.append(
            [
                axis.text(1, y, text, transform=axis.transAxes + shift, color=end.colour(named), **look)
                for end, y, text in zip(found, places, words, strict=True)
            ]
        )
    points = [[LINE * (text.get_text().count("\n") + 1) for text in said] for said in texts]
    figure.draw_without_rendering()  # the layout, now with room for the names, so that sizes in points are known
    scale = 72 / figure.dpi
    lacking = max(sum(each) - axis.get_window_extent().height * scale for axis, each in zip(axes, points, strict=True))
    if lacking > 0:  # or the names would stand over one another
        place = axes[0].get_subplotspec()
        rows = place.get_gridspec().nrows if place is not None else 1
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + rows * (lacking + 2) / 72)
        figure.draw_without_rendering()
    for axis, found, said, each in zip(axes, ends, texts, points, strict=True):
        box = axis.get_window_extent()
        inside = [_fraction(axis, end) for end in found]
        places = _apart([y for _, y in inside], np.array(each) / (box.height * scale))
        edge = LEADER / (box.width * scale)
        for end, text, (_, y), place in zip(found, said, inside, places, strict=True):
            text.set_y(place)
            if named:
                axis.add_artist(_sample(end, figure, ScaledTranslation(1, place, axis.transAxes)))  # type: ignore[arg-type]
            if np.isfinite(end.y) and 0 <= y <= 1:
                join = Line2D([1, 1 + edge], [y, place], color=FAINT, linewidth=0.5)
                join.set(transform=axis.transAxes, clip_on=False, zorder=2.5)
                axis.add_artist(join)


def _sample(end: End, figure: Figure, move: Any) -> Line2D:
    """A piece of an end's line, where `move` says, right of the leader."""
    piece = [(LEADER + 1) / 72, (LEADER + SAMPLE) / 144, SAMPLE / 72]
    look: dict[str, Any] = {"linewidth": 1.3, "clip_on": False, "markevery": [1], **end.style}
    sample = Line2D(piece, [0, 0, 0], **look)
    sample.set_transform(figure.dpi_scale_trans + move)
    return sample


def _fraction(axis: Axes, end: End) -> tuple[float, float]:
    """An end in fractions of the axes; one without a point, or below the axis, is under its bottom."""
    if not (np.isfinite(end.x) and np.isfinite(end.y)):
        return 1.0, -1.0
    x, y = axis.transAxes.inverted().transform(axis.transData.transform((end.x, end.y)))
    return float(x), float(y)


def _apart(wanted: Sequence[float], sizes: np.ndarray) -> np.ndarray:
    """Places as near to the wanted as their sizes allow, in the same order, within 0..1 if there is room."""
    order = np.argsort(wanted, kind="stable")
    half = sizes[order] / 2
    steps = np.cumsum(np.concatenate([[0.0], half[:-1] + half[1:]]))[: len(order)]
    target = np.clip([wanted[i] for i in order], 0, 1)
    first = isotonic_regression(target - steps).x if len(order) else np.zeros(0)
    lowest, highest = half[:1].sum(), 1 - half[-1:].sum() - (steps[-1] if len(order) else 0)
    placed = np.clip(first, lowest, max(highest, lowest)) + steps
    places = np.empty(len(order))
    places[order] = placed
    return places

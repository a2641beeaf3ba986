"""A paper's claims at a glance: a square for each column of the paper's table, ours above the paper's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from fednoise_core.report.cells import count_words, settings_of
from fednoise_core.report.claims import AGREES, DISAGREES, MIXED, NOT_RUN, Claim
from fednoise_core.report.reproduction import reproduction
from fednoise_core.report.runs import RecordedRun, select
from fednoise_core.report.scorecard import score, states_words
from fednoise_core.report.style import FILL, INK, QUIET, SIZE, WRONG, Drawn, Look, canvas, inches
from fednoise_core.report.texts import filled

__all__ = ["HELD", "claims_frame", "scoreboard", "table_frames"]

SMALL = SIZE - 1  # points
LETTER = 0.56 * SIZE / 72  # inches, of a letter
LINE = 1.3 * SIZE / 72  # inches, of a line
SIDE, GAP, AIR = 0.155, 0.025, 0.1  # inches: of a square, between two, and below a claim
INKS = {AGREES: FILL, MIXED: "#8A6D00", DISAGREES: WRONG, NOT_RUN: QUIET}
HELD = {AGREES: True, DISAGREES: False}
"""What the frame says of a column → whether the claim holds there; any other word: nobody knows."""


def table_frames(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], Any]]:
    """Id → settings and frame of each of the paper's tables that the figure is of (`of`)."""
    listed = {run.listed: run for run in runs}
    return {
        name: (table, reproduction([listed[one] for one in select(listed, table, none=True)], table))
        for name, table in spec.get("of", {}).items()
    }


def claims_frame(found: Mapping[str, Iterable[Claim]]) -> pd.DataFrame:
    """Table → its claims, as a row for each claim and column: what our numbers and the paper's own say there."""
    rows = [
        {"table": table, "claim": one.id, "says": one.says, "column": column}
        | {"ours": _word(holds, NOT_RUN), "paper": _word(one.theirs[column], one.missing)}
        for table, claims in found.items()
        for one in claims
        for column, holds in one.ours.items()
    ]
    return pd.DataFrame(rows, columns=["table", "claim", "says", "column", "ours", "paper"])


def _word(holds: bool | None, unknown: str) -> str:
    return unknown if holds is None else AGREES if holds else DISAGREES


def scoreboard(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """The claims that were run, a row each: a square a column, ours above the paper's. The others are counted."""
    frames = table_frames(runs, spec)
    scores = {name: score(frame, table) for name, (table, frame) in frames.items()}
    boards = [
        Board(str(table.get("title") or name).split(":")[0], frame[(frame["ceiling"] == 0)], scores[name].claims)
        for name, (table, frame) in frames.items()
    ]
    figure = canvas(width := inches(spec), 1)
    figure.set_layout_engine("none")  # everything is placed in inches
    height = _draw(figure.add_axes((0, 0, 1, 1)), boards, width)
    figure.set_size_inches(width, height)
    figure.axes[0].set(xlim=(0, width), ylim=(height, 0))
    seeds = pd.Series([len({run.listed.seed for run in runs})])
    caption = (
        "A square is a column of the paper's table, in the table's order: above by our numbers, below by the paper's "
        "own. Struck through: the numbers of this column contradict the claim. Empty: not run, or not printed. "
        f"Of the runs so far, {count_words(seeds)}."
    )
    title = spec.get("title") or "The paper's claims, column by column"
    alt = f"{title}. {states_words(one for board in boards for one in board.claims)} "
    alt += " ".join(f"{board.title}, {one.says}: {one.state}, {one.counted}." for board in boards for one in board.ran)
    text = f"{spec['caption']} {caption}" if spec.get("caption") else caption
    return Drawn(figure, claims_frame({name: found.claims for name, found in scores.items()}), title, text, alt.strip())


@dataclass
class Board:
    """A table's claims, and where the squares of its columns stand."""

    title: str
    frame: pd.DataFrame = field(repr=False)
    claims: list[Claim]

    def __post_init__(self) -> None:
        used = {key for one in self.ran for key in one.keys}
        self.columns = [one for one in settings_of(self.frame) if any(_within(one, key) for key in used)]

    @property
    def ran(self) -> list[Claim]:
        """The claims that were run."""
        return [one for one in self.claims if one.state != NOT_RUN]

    @property
    def datasets(self) -> list[tuple[str, int]]:
        """The data sets of the columns in words, and how many columns each has."""
        words = dict(zip(self.frame["dataset"], self.frame["dataset_label"], strict=True))
        return [(words[name], len(list(group))) for name, group in groupby(self.columns, key=lambda one: one[0])]

    def place(self, key: Sequence[str]) -> int:
        """Which column a claim's column is; the first of those along which a lead widens."""
        return next(number for number, one in enumerate(self.columns) if _within(one, key))


def _within(column: Sequence[str], key: Sequence[str]) -> bool:
    """Whether a column of the table is one of a claim's, which may leave a part of it open ("")."""
    return all(part in ("", one) for one, part in zip(column, key, strict=False))


def _left_out(boards: Sequence[Board]) -> str:
    """What was not run, in words."""
    gone = {board.title: len(board.claims) - len(board.ran) for board in boards if len(board.claims) > len(board.ran)}
    count = sum(gone.values())
    return f"Not run: {count} claim{'s' * (count != 1)} of {', '.join(gone)}." if gone else ""


def _draw(axis: Axes, boards: Sequence[Board], width: float) -> float:
    """Draw all in inches from the upper left; returns the height."""
    axis.set_axis_off()
    shown = [board for board in boards if board.ran]
    most = max((len(board.columns) for board in shown), default=1)
    narrow = width < 5
    right = 0.85 if narrow else 1.75  # of the words behind the squares
    step = min(SIDE + GAP, (width - right - (1.1 if narrow else 2.2)) / most)
    left = width - right - most * step
    y = 0.08
    for board in shown:
        axis.text(0.05, y, board.title, va="top", color=QUIET, fontsize=SMALL)
        fit = all(len(words) * LETTER * SMALL / SIZE < count * step for words, count in board.datasets)
        start = left
        for words, count in board.datasets if fit and len(board.datasets) > 1 else ():
            axis.text(start, y, words, va="top", color=QUIET, fontsize=SMALL)
            start += count * step
        y += LINE * 1.15
        for one in board.ran:
            y = _row(axis, board, one, (y, left, step, width - right, narrow))
        y += 0.04
    words = filled(_left_out(boards) or ("" if shown else "No claim was run."), int((width - 0.1) / LETTER))
    if words:
        axis.text(0.05, y, words, va="top", color=QUIET)
        y += (words.count("\n") + 1.4) * LINE
    return _legend(axis, y + 0.04, narrow) if shown else y


def _row(axis: Axes, board: Board, one: Claim, where: tuple[float, float, float, float, bool]) -> float:
    """A claim: its words, its squares, what they say. Returns where the next one starts."""
    y, left, step, right, narrow = where
    says = one.says[:1].upper() + one.says[1:] if one.says[1:2].isalpha() else one.says  # ε, p stay as they are
    words = filled(says, max(12, int((left - 0.15) / LETTER)))
    tall = max((words.count("\n") + 1) * LINE, 2 * SIDE + GAP)
    middle = y + tall / 2
    axis.text(0.05, middle, words, va="center", linespacing=1.15)
    for key, *both in zip(one.keys, one.ours.values(), one.theirs.values(), strict=True):
        x = left + board.place(key) * step
        for holds, top in zip(both, (middle - SIDE - GAP / 2, middle + GAP / 2), strict=True):
            _square(axis, x, top, step - GAP, holds, faint=top > middle)
    known = [holds for holds in one.ours.values() if holds is not None]
    count = f"{sum(known)} of {len(known)}"
    said = f"{one.state}\n{count}" if narrow else f"{one.state}, {count} column{'s' * (len(known) != 1)}"
    axis.text(right + 0.05, middle, said, va="center", color=INKS[one.state], fontsize=SMALL + 0.5, fontweight="bold")
    return y + tall + AIR


def _square(axis: Axes, x: float, y: float, side: float, holds: bool | None, faint: bool) -> None:
    """A square; in a grey print the stroke tells the two colours apart."""
    if holds is None:
        axis.add_patch(Rectangle((x, y), side, SIDE, facecolor="none", edgecolor="#b5b5b5", linewidth=0.7))
        return
    colour = FILL if holds else WRONG
    axis.add_patch(Rectangle((x, y), side, SIDE, facecolor=colour, edgecolor="none", alpha=0.4 if faint else 1))
    if not holds:
        ends = [x + 0.2 * side, x + 0.8 * side], [y + 0.2 * SIDE, y + 0.8 * SIDE]
        axis.plot(*ends, color=INK if faint else "white", linewidth=1.3, solid_capstyle="round")


def _legend(axis: Axes, y: float, narrow: bool) -> float:
    """What the squares mean; returns the height that is used up."""
    x = 0.05
    for holds, words in ((True, "agrees"), (False, "disagrees"), (None, "not run")):
        _square(axis, x, y, SIDE, holds, faint=False)
        axis.text(x + SIDE + 0.06, y + SIDE / 2, words, va="center", color=INK, fontsize=SMALL)
        x += SIDE + 0.06 + (len(words) + 3) * LETTER
    x, y = (0.05, y + 1.2 * LINE) if narrow else (x, y)
    axis.text(x, y + SIDE / 2, "above: ours, below: the paper’s", va="center", color=QUIET, fontsize=SMALL)
    return y + SIDE + 0.06

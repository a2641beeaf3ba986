"""Overview of a paper's claims: a sign for each column of the paper's table, our result above the paper's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.style import FILL, QUIET, SIZE, WRONG, make_canvas, width_inches
from workflow_scripts.report.runs.run import RecordedRun, select
from workflow_scripts.report.tables.claims import (
    AGREES,
    DISAGREES,
    NOT_RUN,
    STATES,
    UNDECIDED,
    VOID,
    Claim,
    judge_claims,
    list_comparisons,
)
from workflow_scripts.report.tables.registry import complete_spec
from workflow_scripts.report.tables.reproduction import reproduction_frame
from workflow_scripts.report.tables.scorecard import count_states, states_words
from workflow_scripts.report.text.cells import PARTS, settings_of
from workflow_scripts.report.text.escape import wrap_text

HEAD = SIZE - 0.5  # points, as at ticks
LETTER = 0.56 * HEAD / 72  # inches, of a letter
LINE = 1.3 * SIZE / 72  # inches, of a line
SIDE, AIR = 0.18, 0.1  # inches: from a sign to the next, and below a claim
INKS = {AGREES: FILL, DISAGREES: WRONG, UNDECIDED: "#8A6D00", VOID: QUIET, NOT_RUN: QUIET}
SIGNS: dict[str, dict[str, Any]] = {
    AGREES: {"marker": "s", "color": FILL},
    DISAGREES: {"marker": "s", "color": WRONG},
    UNDECIDED: {"marker": "s", "color": INKS[UNDECIDED], "markerfacecolor": "none"},
    VOID: {"marker": "x", "color": "#8a8a8a"},
    NOT_RUN: {"marker": ".", "color": "#b5b5b5"},
}
STROKE: dict[str, Any] = {"marker": [(-1, -1), (1, 1)], "color": "white", "alpha": 1}


def table_frames(
    runs: Sequence[RecordedRun], tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[dict[str, Any], pd.DataFrame]]:
    """Make the frames of a paper's tables that a figure is drawn from.

    Args:
        runs: The runs of the figure.
        tables: Id → settings of a table of kind `reproduction`.

    Returns:
        Id → settings with their defaults, and frame.
    """
    listed = {run.listed: run for run in runs}
    complete = {name: complete_spec(table) for name, table in tables.items()}
    return {
        name: (table, reproduction_frame([listed[row] for row in select(listed, table, none=True)], table))
        for name, table in complete.items()
    }


class ScoreboardSettings(FigureSettings):
    """A paper's claims that were run: a sign for each column of its table, our result above the paper's own.

    Claims without a verdict are counted in the caption.
    """


def _draw_scoreboard(
    runs: Sequence[RecordedRun], tables: Mapping[str, Mapping[str, Any]], settings: ScoreboardSettings
) -> Drawn:
    frames = table_frames(runs, tables)
    claims = judge_claims(
        {name: frame for name, (_, frame) in frames.items()}, {name: spec for name, (spec, _) in frames.items()}
    )
    titles = {name: str(table["title"] or name).split(":")[0] for name, (table, _) in frames.items()}
    boards = []
    for name, (table, _) in frames.items():
        ids = [id_ for id_ in _tables_beside(name, table) if id_ in frames]
        title = " and ".join(titles[id_] for id_ in ids)
        frame = pd.concat([frames[id_][1] for id_ in ids])
        boards.append(_Board(title, frame, [claim for claim in claims if claim.table == name and not claim.reading]))
    figure = _draw_boards([board for board in boards if board.ran], width_inches(settings))
    counts = count_states(claims)
    words = {state: state for state in STATES} | {NOT_RUN: "no verdict"}
    states = ", ".join(f"{word} {counts[state]}" for state, word in words.items() if counts[state])
    head = wrap_text(f"{counts.total()} claims: {states}", int(width_inches(settings) / LETTER * HEAD / SIZE) - 2)
    head += "\nUpper signs: ours. Lower signs: the paper’s."
    if figure.axes:
        figure.suptitle(head, x=0.06 / figure.get_figwidth(), ha="left")
    title = "The paper's claims, column by column"
    return Drawn(figure, list_comparisons(claims), settings, title, *_describe_boards(boards))


def _describe_boards(boards: Sequence[_Board]) -> tuple[str, str]:
    """Caption and alternative text."""
    gone = {board.title: len(board.claims) - len(board.ran) for board in boards if len(board.claims) > len(board.ran)}
    aside = any(claim.set_aside for board in boards for claim in board.claims)
    void = "at this scale" if aside else "(the paper's own numbers contradict it, or a method fell to chance)"
    caption = (
        "A sign is a column of the paper's table. Filled: it agrees. Struck through: it disagrees. Hollow: undecided. "
        f"Cross: void {void}. Dot: not run, or not printed."
    )
    caption += f" Claims without a verdict: {sum(gone.values())} ({', '.join(gone)})." if gone else ""
    alt = f"{states_words(claim for board in boards for claim in board.claims)} "
    alt += " ".join(
        f"{claim.number}. {claim.says} ({board.title}): {claim.state}, {claim.counted}."
        for board in boards
        for claim in board.ran
    )
    return caption, alt


@dataclass
class _Board:
    """A table's claims, and the positions of the signs of its columns."""

    title: str
    frame: pd.DataFrame = field(repr=False)
    claims: list[Claim]

    def __post_init__(self) -> None:
        self.frame = self.frame[self.frame["ceiling"] == 0]
        used = {key for claim in self.ran for key in claim.keys}
        self.columns = [column for column in settings_of(self.frame) if (*column, "") in used]

    @property
    def ran(self) -> list[Claim]:
        """The claims that were run."""
        return [claim for claim in self.claims if claim.state != NOT_RUN]

    @property
    def heads(self) -> list[list[tuple[str, int]]]:
        """Labels over the columns, one level for each part that varies: text, and number of columns below it."""
        levels = []
        for place, part in enumerate(PARTS):
            if len({column[place] for column in self.columns}) < 2:
                continue
            labels = dict(zip(self.frame[part], self.frame[f"{part}_label"], strict=True))
            groups = groupby(self.columns, key=lambda column, end=place + 1: column[:end])  # type: ignore[misc]
            levels.append([(labels[key[-1]], len(list(group))) for key, group in groups])
        return levels


def _draw_boards(boards: Sequence[_Board], width: float) -> Figure:
    """Draw one panel per table, below each other. width: inches."""
    if not boards:
        figure = make_canvas(width, 0.5)
        figure.text(0.5, 0.5, "No claim was run.", ha="center", va="center", color=QUIET)
        return figure
    narrow = width < 5
    most = max(len(board.columns) for board in boards)
    right = 0.85 if narrow else 1.75  # inches, of the words behind the signs
    step = min(SIDE, (width - right - (1.1 if narrow else 2.2)) / most)
    letters = max(12, int((width - right - most * step - 0.25) / LETTER))
    says = [[wrap_text(f"{claim.number}. {claim.says}", letters) for claim in board.ran] for board in boards]
    sizes = [[max((text.count("\n") + 1) * LINE, 2 * SIDE) + AIR for text in each] for each in says]
    longest = max(len(line) for each in says for text in each for line in text.split("\n"))
    room = (width - longest * LETTER - (right if narrow else 1.0)) / most  # what the layout leaves to a column
    heads = sum(height for board in boards for _, height in _head_heights(board, room))
    figure = make_canvas(width, sum(map(sum, sizes)) + heads + 0.25 * len(boards) + 0.85)
    grid = figure.subplots(len(boards), 1, squeeze=False, height_ratios=list(map(sum, sizes)))
    for axis, board, texts, size in zip(grid[:, 0], boards, says, sizes, strict=True):
        middles = np.cumsum(size) - np.array(size) / 2
        axis.set(xlim=(-0.5, most - 0.5), ylim=(sum(size), 0))
        axis.set_yticks(middles, texts)
        axis.set_xticks([])
        axis.tick_params(length=0)
        axis.grid(False)
        axis.spines[:].set_visible(False)
        _draw_heads(axis, board, room)
        for claim, middle in zip(board.ran, middles, strict=True):
            _draw_claim(axis, board, claim, middle, step)
            look: dict[str, Any] = {"color": INKS[claim.state], "fontsize": HEAD, "fontweight": "bold"}
            axis.text(most - 0.3, middle, _state_words(claim, narrow), va="center", **look)
    handles = [
        Line2D([], [], label=state, linestyle="none", **(sign | {"markersize": 8})) for state, sign in SIGNS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if narrow else 5, handlelength=1.2)
    return figure


def _draw_claim(axis: Axes, board: _Board, claim: Claim, middle: float, step: float) -> None:
    """Draw a claim's signs around the height `middle`. step: inches from a column to the next."""
    for key, ours, theirs in zip(claim.keys, claim.ours.values(), claim.theirs.values(), strict=True):
        column = board.columns.index(key[:3])
        printed = NOT_RUN if theirs is None else AGREES if theirs else DISAGREES
        for state, y in ((ours, middle - SIDE / 2), (printed, middle + SIDE / 2)):
            size = (72 * step - 2.5) * (1 if SIGNS[state]["marker"] == "s" else 0.7)
            sign = {"linestyle": "none", "markersize": size, "alpha": 1 if y < middle else 0.5, **SIGNS[state]}
            axis.plot([column], [y], **sign)
            if state == DISAGREES:  # the stroke distinguishes the two colours in a grey print
                axis.plot([column], [y], **{**sign, **STROKE})


def _state_words(claim: Claim, narrow: bool) -> str:
    ours = list(claim.ours.values())
    counted = len(ours) - ours.count(VOID) - ours.count(NOT_RUN)
    verb = "" if narrow else f" agree{'s' * (counted == 1)}"
    return f"{claim.state}\n{ours.count(AGREES)} of {counted}{verb}" if counted else claim.state


def _tables_beside(name: str, table: Mapping[str, Any]) -> list[str]:
    """List the tables whose columns a table's claims are about, other tables first."""
    return [*dict.fromkeys(claim["beside"] for claim in table["claims"] if "beside" in claim), name]


def _head_heights(board: _Board, step: float) -> list[tuple[bool, float]]:
    """Return for each level of heads whether its words are vertical, because they are too wide, and its inches."""
    heights = []
    for level in board.heads:
        inches = [len(label) * LETTER for label, _ in level]
        upright = any(long > count * step for long, (_, count) in zip(inches, level, strict=True))
        height = max(inches) + 0.08 if upright else LINE
        heights.append((upright, height))
    return heights


def _draw_heads(axis: Axes, board: _Board, step: float) -> None:
    """Draw the heads of the columns above the signs, in levels, and above them the table's title."""
    heights = _head_heights(board, step)
    above = sum(height for _, height in heights)
    axis.set_title(f"The paper’s {board.title}", fontweight="bold", pad=3 + 72 * above)
    for level, (upright, height) in zip(board.heads, heights, strict=True):
        above -= height
        start = 0
        for label, count in level:
            x = start + (count - 1) / 2 if upright else start - 0.4
            where: dict[str, Any] = {"xytext": (0, 72 * above + 2), "textcoords": "offset points", "va": "bottom"}
            turned: dict[str, Any] = {"rotation": 90, "ha": "center"} if upright else {"ha": "left"}
            axis.annotate(label, (x, 0), fontsize=HEAD, **where, **turned)
            start += count


KIND = FigureKind(settings=ScoreboardSettings, draw=_draw_scoreboard, of_a_paper=True, at_top=True)

"""Words for runs without a trusted test set: their accuracy is agreement with given labels, and says so everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fednoise_core.report.cells import Grid
from fednoise_core.report.runs import RecordedRun

if TYPE_CHECKING:  # tables draw nothing
    from matplotlib.figure import Figure

    from fednoise_core.report.style import Drawn

__all__ = ["WORDS", "datasets", "in_figure", "in_grid", "note", "renamed", "word"]

WORDS = "agreement with given labels"


def datasets(runs: Iterable[RecordedRun]) -> list[str]:
    """Ids of the data sets whose test set is held-out given labels, which may be wrong."""
    return sorted({run.listed.dataset for run in runs if not run.summary.get("test_known", True)})


def word(every: bool) -> str:
    """What a number is called; `every`: all that it speaks of are of such data sets."""
    return WORDS if every else "accuracy"


def note(names: Iterable[str]) -> str:
    """The sentence that goes with every number made from such data sets."""
    return f"There are no trusted test labels of {', '.join(names)}: accuracy there is {WORDS} of a held-out share."


def renamed(text: str) -> str:
    """The text with "accuracy" called what it is."""
    text = re.sub(r"\b(Test accuracy|Accuracy)\b", WORDS.capitalize(), text)
    return re.sub(r"\b(test accuracy|accuracy)\b", WORDS, text)


def in_grid(grid: Grid, names: Iterable[str], every: bool) -> Grid:
    """The table with the note; `every`: all of its numbers are such, so that title and caption are renamed, too."""
    if every:
        grid.title, grid.caption = renamed(grid.title), renamed(grid.caption)
        grid.notes[:] = map(renamed, grid.notes)
    grid.notes.append(note(names))
    return grid


def in_figure(drawn: Drawn, runs: Iterable[RecordedRun]) -> Drawn:
    """The figure with the note in its caption; where all runs are such, its words are renamed, too."""
    runs = list(runs)
    names = datasets(runs)
    if not names:
        return drawn
    if set(names) == {run.listed.dataset for run in runs}:
        drawn.title, drawn.caption, drawn.alt = map(renamed, (drawn.title, drawn.caption, drawn.alt))
        _rename_axes(drawn.figure)
    drawn.caption += f" {note(names)}"
    return drawn


def _rename_axes(figure: Figure) -> None:
    for axis in figure.axes:
        axis.set_ylabel(renamed(axis.get_ylabel()))
        axis.set_xlabel(renamed(axis.get_xlabel()))

"""What every method takes the images of each class for: confusion matrices as heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from fednoise_core.io import ArtifactError
from fednoise_core.report.cells import count_words
from fednoise_core.report.names import Names
from fednoise_core.report.result_figures.common import drawn, labels_of, scores, split_clean
from fednoise_core.report.result_figures.rows import baseline_of
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import HEAT, Drawn, Look, canvas, inches, ink_on, titles

__all__ = ["confusion"]

TALL = 8.0  # inches: what a page of a paper has for it
FROM = 10.0  # %: what is mixed up so often stands there as a number
NUMBER, LINE = 7.0, 0.135  # points: letters of a number; inches: a row with a class's name
NAMED, LETTERS = 20, 12  # classes up to which each has its name; letters of one


def confusion(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Of the first setting a panel a method: images of class i (rows, in %) predicted as class j, by the final models,
    mean over the seeds; the highest accuracy first.
    """
    setting = split_clean(runs)[0][0]
    here = [run for run in runs if run.listed.setting == setting]
    table, labels = scores(here, spec), labels_of(here)
    order = list(table.sort_values("mean", ascending=False, kind="stable")["method"])
    names = here[0].confusion.names
    grid = _Grid(len(names), len(order), spec)
    shown = _first(order, grid.most, baseline_of(here))
    found = {method: _mean([run for run in here if run.listed.method == method], names) for method in shown}
    known = all(run.summary.get("test_known", True) for run in here)
    figure = grid.draw([(labels[m], found[m]) for m in shown], names, "class" if known else "given label")
    caption = (
        f"Of the test images of each {'class' if known else 'given label'} (row) the share that the final models take "
        f"for each class (column), {count_words(table['n'])}, on {' · '.join(Names.of_runs(runs).of(setting))}. "
        f"The highest accuracy first; the colours have a square-root scale."
    )
    if grid.numbers:
        caption += f" Numbers: what is right (diagonal) or taken for another class, from {FROM:.0f} % of a row on."
    caption += f" Left out: {len(order) - len(shown)} of {len(order)} methods." if len(order) > len(shown) else ""
    frame = pd.concat([_long(table, method, matrix, names) for method, matrix in found.items()], ignore_index=True)
    shape, title = "heat maps, a panel a method, a row a class", "What is taken for what"
    end = table[table["method"].isin(shown)]
    made = drawn(figure, frame, spec, title, caption, end, here, Names.of_runs(here), {}, shape=shape)
    worst = [f"{labels[m]}: {words}" for m in shown if (words := _worst(found[m], names))]
    made.alt += f" Most often mixed up: {'; '.join(worst)}." if worst else ""
    return made


class _Grid:
    """How panels of k classes are laid out: as many as a page has room for, of `count`."""

    def __init__(self, k: int, count: int, spec: Mapping[str, Any]) -> None:
        self.width, self.named = inches(spec), k <= NAMED
        page = self.width > 5
        columns = (4 if k <= 10 else 2 if self.named else 3) if page else (2 if k <= 10 or not self.named else 1)
        self.columns = min(columns, count)
        side = (self.width - 0.9) / columns  # of a panel; the rest has the names
        self.high = max(k * LINE, 1.1) if self.named else side
        self.most = max(1, int((TALL - 1) / (self.high + 0.35))) * columns
        self.numbers = self.named and 72 * side / k >= 1.28 * NUMBER  # two digits
        if self.columns < columns:
            self.width = 0.9 + self.columns * side

    def draw(self, panels: Sequence[tuple[str, np.ndarray]], names: Sequence[str], word: str) -> Any:
        """The figure: (title, [K, K] in %) each."""
        rows = -(-len(panels) // self.columns)
        cut = [name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…" for name in names]
        cut = cut if len(set(cut)) == len(cut) else [str(c) for c in range(len(names))]
        longest = max(map(len, cut)) if self.named else 0
        free = rows * self.columns - len(panels)  # places of the last row; two have room for the scale
        under = (0.0 if free > 1 else 0.6) + (0.2 if self.named else 0.4)  # square panels leave titles less room
        figure = canvas(self.width, rows * (self.high + 0.3) + under + (0.065 * longest if longest > 2 else 0))
        grid = figure.add_gridspec(rows, self.columns)
        axes = list(grid.subplots(squeeze=False, sharex=True, sharey=True).flat)
        for spare in axes[len(panels) :]:
            spare.remove()
        axes = axes[: len(panels)]
        low = [place >= len(panels) - self.columns for place in range(len(panels))]  # the lowest of its column
        for place, (axis, (_, matrix)) in enumerate(zip(axes, panels, strict=True)):
            shape: Any = {"aspect": "auto" if self.named else "equal", "interpolation": "none"}
            axis.imshow(matrix, cmap=HEAT, norm=PowerNorm(0.5, 0, 100), **shape)
            axis.grid(False)
            axis.spines[:].set_visible(False)
            axis.tick_params(length=0, labelbottom=low[place])
            axis.tick_params(axis="x", labelrotation=90 if longest > 2 else 0)
            if self.numbers:
                _numbers(axis, matrix)
        if self.named:
            axes[0].set_yticks(range(len(cut)), cut)
            axes[0].set_xticks(range(len(cut)), cut)
        titles(axes, [title for title, _ in panels])
        for axis in axes[:: self.columns]:
            axis.set_ylabel(word)
        for axis in [axis for axis, lowest in zip(axes, low, strict=True) if lowest]:
            axis.set_xlabel("taken for")
        if free > 1:
            spare = figure.add_subplot(grid[rows - 1, self.columns - free :])
            spare.set_axis_off()
            cax = spare.inset_axes((0.15, 0.3, 0.8, 0.1))
            bar = figure.colorbar(axes[0].images[0], cax=cax, orientation="horizontal")
        else:
            bar = figure.colorbar(axes[0].images[0], ax=axes, location="bottom", shrink=0.6, aspect=40)
        bar.set_label("% of a row")
        bar.set_ticks([0, 1, 5, 10, 25, 50, 100])
        bar.outline.set_visible(False)
        return figure


def _numbers(axis: Axes, matrix: np.ndarray) -> None:
    """What is right, and what is mixed up often."""
    image = axis.images[0]
    for (i, j), value in np.ndenumerate(matrix):
        if value >= FROM:
            ink = ink_on(image.cmap(image.norm(value)))
            axis.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=NUMBER, color=ink)


def _first(order: Sequence[str], most: int, baseline: str | None) -> list[str]:
    """The first so many, the baseline among them."""
    kept = list(order[:most])
    return kept if baseline is None or baseline in kept else [*kept[:-1], baseline]


def _mean(runs: Sequence[RecordedRun], names: Sequence[str]) -> np.ndarray:
    """Mean over the seeds, [K, K] in %; NaN where a seed has no numbers."""
    found = []
    for run in runs:
        one = run.confusion
        if one.names != names:
            raise ArtifactError(f"{run.listed.dir / 'confusion.csv'}: has other classes than the setting's other runs")
        shares = one.shares()
        found.append(np.full((len(names), len(names)), np.nan) if shares is None else shares)
    return np.mean(found, 0)


def _long(table: pd.DataFrame, method: str, matrix: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    (row,) = table[table["method"] == method].to_dict("records")
    true, predicted = (each.ravel().tolist() for each in np.indices(matrix.shape))
    named = {
        "class": true,
        "class_name": [names[i] for i in true],
        "predicted": predicted,
        "predicted_name": [names[j] for j in predicted],
    }
    ids = {key: row[key] for key in ("dataset", "noise", "partition", "method", "method_label", "n")}
    return pd.DataFrame({**ids, **named, "mean": matrix.ravel()})


def _worst(matrix: np.ndarray, names: Sequence[str]) -> str:
    """What is mixed up most often, as in `8 as 1 (23 %)`."""
    apart = np.where(np.eye(len(matrix), dtype=bool), 0, np.nan_to_num(matrix))
    i, j = divmod(int(apart.argmax()), apart.shape[1])
    return f"{names[i]} as {names[j]} ({apart[i, j]:.0f} %)" if apart[i, j] > 0 else ""

"""What every method takes the images of each class for: confusion matrices as heat maps."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from fednoise_core.io import ArtifactError
from fednoise_core.report.figures.kind import Drawn, FigureKind, FigureSettings, ShownMetric
from fednoise_core.report.figures.results.common import (
    finish_figure,
    legend_labels,
    rank_methods,
    score_methods,
    split_clean_settings,
)
from fednoise_core.report.figures.style import (
    Look,
    add_colour_bar,
    draw_heat_map,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
    wrap_to_width,
)
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.text.cells import count_words

TALL = 8.0  # inches: what a page of a paper has for it
FROM = 10.0  # %: what is mixed up so often stands there as a number
NUMBER, LINE = 9.0, 0.15  # points: the width of a number; inches: a row with a class's name
NAMED, LETTERS = 20, 12  # classes up to which each has its name; letters of one


class ConfusionSettings(FigureSettings):
    """What each method takes the test images of each class for, in % of the class, on the first setting.

    One heat map a method: images of class i (rows) predicted as class j by the final models, mean over the seeds.
    The highest accuracy comes first, and there are as many panels as a page has room for.
    """

    view: ClassVar[str] = "headline"  # of which runs keep their matrices
    metric: ShownMetric = "last10_mean"


def _draw_confusion(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: ConfusionSettings) -> Drawn:
    setting = split_clean_settings(runs)[0][0]
    here = [run for run in runs if run.listed.setting == setting]
    table, labels, classes = score_methods(here, settings), legend_labels(here), here[0].confusion.names
    order = rank_methods(table)
    columns, height, numbers = _lay_out_panels(list(labels.values()), len(order), len(classes), width_inches(settings))
    shown = order[: max(1, int((TALL - 1) / height)) * columns]
    found = {method: _mean_matrix([run for run in here if run.listed.method == method], classes) for method in shown}
    figure, axes = make_panels(len(shown), settings, height, columns, sharex=True, sharey=True)
    for axis, matrix in zip(axes, found.values(), strict=True):
        image = draw_heat_map(axis, matrix, PowerNorm(0.5, 0, 100), _number_cell if numbers else None)
    if len(classes) <= NAMED:
        _name_classes(axes, classes)
    set_titles(axes, [labels[method] for method in shown])
    rows = "class" if all(run.summary.get("test_known", True) for run in here) else "given label"
    label_outer_axes(axes, "taken for", rows)
    add_colour_bar(axes, image, "% of a row", 0.9).set_ticks([0, 1, 5, 10, 25, 50, 100])
    caption = (
        f"Of the test images of each {rows} (row) the share that the final models take "
        f"for each class (column), {count_words(table['n'])}, on {' · '.join(Names.of_runs(runs).of(setting))}. "
        f"The highest accuracy first; the colours have a square-root scale."
    )
    if numbers:
        caption += f" Numbers: what is right (diagonal) or taken for another class, from {FROM:.0f} % of a row on."
    caption += f" Left out: {len(order) - len(shown)} of {len(order)} methods." if len(order) > len(shown) else ""
    frame = pd.concat([_matrix_frame(table, *one, classes) for one in found.items()], ignore_index=True)
    shape, title = "heat maps, a panel a method, a row a class", "What is taken for what"
    end = table[table["method"].isin(shown)]
    made = finish_figure(figure, frame, settings, title, caption, end, here, Names.of_runs(here), {}, shape=shape)
    worst = [f"{labels[m]}: {words}" for m in shown if (words := _worst_words(found[m], classes))]
    made.alt += f" Most often mixed up: {'; '.join(worst)}." if worst else ""
    return made


def _lay_out_panels(labels: Sequence[str], methods: int, classes: int, width: float) -> tuple[int, float, bool]:
    """Panels side by side, inches of each one's height, and whether cells have numbers.

    labels: in the panels' titles. methods, classes: how many there are. width: of the figure in inches.
    """
    page, named, few = width > 5, classes <= NAMED, classes <= 10
    most = 4 if page and few else 2 if page or few or not named else 1
    columns = min(methods, most)
    side = (width - 0.9) / columns
    heads = max(wrap_to_width(label, width / columns - 0.35).count("\n") for label in labels)
    height = 0.35 + 0.13 * heads + (max(classes * LINE, 1.1) if named else side)
    return columns, height, named and 72 * side / classes >= NUMBER


def _name_classes(axes: Sequence[Axes], classes: Sequence[str]) -> None:
    """Name the ticks, whose axes are shared by all panels; by numbers where short names would be equal."""
    short = [name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…" for name in classes]
    names = short if len(set(short)) == len(classes) else [str(number) for number in range(len(classes))]
    axes[0].set_yticks(range(len(classes)), names)
    axes[0].set_xticks(range(len(classes)), names)
    for axis in axes:
        axis.tick_params(axis="x", labelrotation=90 if max(map(len, names)) > 2 else 0)


def _number_cell(value: float) -> str:
    return f"{value:.0f}" if value >= FROM else ""


def _mean_matrix(runs: Sequence[RecordedRun], names: Sequence[str]) -> np.ndarray:
    """Mean over the seeds, [K, K] in %; NaN where a seed has no numbers."""
    found = []
    for run in runs:
        one = run.confusion
        if one.names != names:
            raise ArtifactError(f"{run.listed.dir / 'confusion.csv'}: has other classes than the setting's other runs")
        shares = one.shares()
        found.append(np.full((len(names), len(names)), np.nan) if shares is None else shares)
    return np.mean(found, 0)


def _matrix_frame(table: pd.DataFrame, method: str, matrix: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
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


def _worst_words(matrix: np.ndarray, names: Sequence[str]) -> str:
    """What is mixed up most often, as in `8 as 1 (23 %)`."""
    apart = np.where(np.eye(len(matrix), dtype=bool), 0, np.nan_to_num(matrix))
    i, j = divmod(int(apart.argmax()), apart.shape[1])
    return f"{names[i]} as {names[j]} ({apart[i, j]:.0f} %)" if apart[i, j] > 0 else ""


KIND = FigureKind(
    settings=ConfusionSettings, draw=_draw_confusion, example={"noises": ["sym40"], "partitions": ["iid"]}
)

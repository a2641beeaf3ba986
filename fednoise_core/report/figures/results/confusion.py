"""What every method takes the images of each class for: confusion matrices as heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm

from fednoise_core.io import ArtifactError
from fednoise_core.report.figures.results.common import drawn, labels_of, ranked, scores, split_clean
from fednoise_core.report.figures.style import Drawn, Look, heat, inches, outer, panels, titles, wrap
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.text.cells import count_words

__all__ = ["confusion"]

TALL = 8.0  # inches: what a page of a paper has for it
FROM = 10.0  # %: what is mixed up so often stands there as a number
NUMBER, LINE = 9.0, 0.15  # points: the width of a number; inches: a row with a class's name
NAMED, LETTERS = 20, 12  # classes up to which each has its name; letters of one


def confusion(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Of the first setting a panel a method: images of class i (rows, in %) predicted as class j, by the final models,
    mean over the seeds; the highest accuracy first, as many as a page has room for.
    """
    setting = split_clean(runs)[0][0]
    here = [run for run in runs if run.listed.setting == setting]
    table, labels = scores(here, spec), labels_of(here)
    order, names = ranked(table), here[0].confusion.names
    k, page = len(names), inches(spec) > 5
    named = k <= NAMED
    columns = min(len(order), 4 if page and k <= 10 else 2 if page or k <= 10 or not named else 1)
    side = (inches(spec) - 0.9) / columns
    heads = max(wrap(label, inches(spec) / columns - 0.35).count("\n") for label in labels.values())
    high = 0.35 + 0.13 * heads + (max(k * LINE, 1.1) if named else side)
    shown = order[: max(1, int((TALL - 1) / high)) * columns]
    found = {method: _mean([run for run in here if run.listed.method == method], names) for method in shown}
    numbers = named and 72 * side / k >= NUMBER
    figure, axes = panels(len(shown), spec, high, columns, sharex=True, sharey=True)
    for axis, matrix in zip(axes, found.values(), strict=True):
        image = heat(axis, matrix, PowerNorm(0.5, 0, 100), _number if numbers else None)
    if named:
        short = [name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…" for name in names]
        cut = short if len(set(short)) == k else [str(number) for number in range(k)]
        axes[0].set_yticks(range(k), cut)
        axes[0].set_xticks(range(k), cut)
        for axis in axes:
            axis.tick_params(axis="x", labelrotation=90 if max(map(len, cut)) > 2 else 0)
    titles(axes, [labels[method] for method in shown])
    known = all(run.summary.get("test_known", True) for run in here)
    outer(axes, "taken for", "class" if known else "given label")
    figure.set_figheight(figure.get_figheight() + 0.9)
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, aspect=40, label="% of a row")
    bar.set_ticks([0, 1, 5, 10, 25, 50, 100])
    caption = (
        f"Of the test images of each {'class' if known else 'given label'} (row) the share that the final models take "
        f"for each class (column), {count_words(table['n'])}, on {' · '.join(Names.of_runs(runs).of(setting))}. "
        f"The highest accuracy first; the colours have a square-root scale."
    )
    if numbers:
        caption += f" Numbers: what is right (diagonal) or taken for another class, from {FROM:.0f} % of a row on."
    caption += f" Left out: {len(order) - len(shown)} of {len(order)} methods." if len(order) > len(shown) else ""
    frame = pd.concat([_long(table, method, matrix, names) for method, matrix in found.items()], ignore_index=True)
    shape, title = "heat maps, a panel a method, a row a class", "What is taken for what"
    end = table[table["method"].isin(shown)]
    made = drawn(figure, frame, spec, title, caption, end, here, Names.of_runs(here), {}, shape=shape)
    worst = [f"{labels[m]}: {words}" for m in shown if (words := _worst(found[m], names))]
    made.alt += f" Most often mixed up: {'; '.join(worst)}." if worst else ""
    return made


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= FROM else ""


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

"""Test accuracy of every method on every class, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fednoise_core.io import SpecError
from fednoise_core.report import frames
from fednoise_core.report.cells import count_words
from fednoise_core.report.names import Names
from fednoise_core.report.result_figures.common import drawn, labels_of, of_setting, split_clean
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import HEAT, Drawn, Look, canvas, inches, ink_on, outer, titles, wrap

__all__ = ["classes"]

CELL = 15  # points: the width of a cell with a number
NAMED = 40  # classes with a tick each


def classes(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Methods × classes of every setting, in %: the mean of the last ten evaluations, mean over seeds; the method with
    the highest mean over all classes at the top.
    """
    shown, _ = split_clean(runs)
    here = [run for run in runs if run.listed.setting in shown]
    each = frames.tidy(here, "accuracy_class_*", spec.get("view", "headline"))
    each = each[each["round"] > 0].sort_values("round", kind="stable")
    if each.empty:
        raise SpecError("none of the runs has an accuracy per class: choose others (`methods`, `view`)")
    each["class"] = each["metric"].str.removeprefix("accuracy_class_").astype(int)
    keys = [*frames.IDS, "method_label", "class"]
    ends = each.groupby([*keys, "seed"], sort=False)["value"].apply(lambda c: c.iloc[-frames.LAST :].mean(skipna=False))
    table = ends.groupby(keys, sort=False).agg(n="size", mean=lambda c: c.mean(skipna=False)).reset_index()
    table = table.sort_values("class", kind="stable")
    order = list(table.groupby("method", sort=False)["mean"].mean().sort_values(ascending=False, kind="stable").index)
    k, names, labels = int(table["class"].max()) + 1, Names.of_runs(here), labels_of(runs)
    width = inches(spec)
    columns = spec.get("columns") or (2 if len(shown) > (1 if width > 5 else 2) else 1)  # so that a column holds it
    beside = 1.5 if width > 5 or columns == 1 else 1.2  # inches: the methods' names
    words = [wrap(labels[method], beside) for method in order]
    tall = 0.13 * sum(word.count("\n") + 1 for word in words) + 0.06 * len(order)
    rows = -(-len(shown) // columns)
    share = (width - beside - 0.3) / columns
    numbers = (width - 1.3) / columns * 72 / k >= CELL
    heads = [names.title(setting) for setting in shown]
    breaks = max(head.count(" · ") for head in heads) if share < 1.5 else 0
    figure = canvas(width, rows * (max(tall, 0.8) + 0.75 + 0.26 * breaks) + (0.0 if numbers else 0.4))
    grid = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for spare in grid[len(shown) :]:
        spare.remove()
    image, known = None, table["mean"].dropna()
    low = min(50.0, 10 * float(np.floor(known.min() / 10))) if len(known) else 0.0
    for axis, setting in zip(grid, shown, strict=False):
        pivot = of_setting(table, setting).pivot(index="method", columns="class", values="mean")
        values = pivot.reindex(index=order, columns=range(k)).to_numpy(float)
        image = axis.imshow(values, aspect="auto", cmap=HEAT, vmin=low, vmax=100, interpolation="none")
        axis.grid(False)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
        axis.set_yticks(range(len(order)), words)
        if k <= NAMED:
            axis.set_xticks(range(0, k, 1 if numbers else -(-k // (10 if share > 1.5 else 4))))
        for (i, j), value in np.ndenumerate(values):
            if numbers and np.isfinite(value):
                ink = ink_on(image.cmap(image.norm(value)))
                axis.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color=ink)
    titles(grid[: len(shown)], heads, share if share < 1.5 else None)
    outer(grid[: len(shown)], "class", "")
    if image is not None and not numbers:
        bar = figure.colorbar(image, ax=grid[: len(shown)], location="bottom", shrink=0.6, aspect=40)
        bar.set_label("test accuracy, %")
    caption = (
        f"Test accuracy per class in %, mean of the last ten evaluations: {count_words(table['n'])}; darker is higher."
    )
    end = table.groupby([*frames.IDS, "method_label"], sort=False)["mean"].mean().reset_index()
    said: dict[str, Any] = {"shape": "heat maps, a row a method, a column a class", "which": "mean over the classes"}
    return drawn(figure, table, spec, "Accuracy per class", caption, end, here, names, {}, **said)

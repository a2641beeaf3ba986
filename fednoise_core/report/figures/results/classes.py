"""Test accuracy of every method on every class, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import Normalize

from fednoise_core.io import SpecError
from fednoise_core.report.figures.results.common import drawn, labels_of, of_setting, ranked, split_clean
from fednoise_core.report.figures.style import Drawn, Look, heat, inches, outer, panels, titles, wrap
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.text.cells import count_words

__all__ = ["classes"]

CELL = 15  # points: the width of a cell with a number
NAMED = 40  # classes with a tick each


def classes(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Methods × classes of every setting, in %: the mean of the last ten evaluations, mean over seeds; the method with
    the highest mean over all classes at the top.
    """
    shown, _ = split_clean(runs)
    here = [run for run in runs if run.listed.setting in shown]
    each = frames.load_metric(here, "accuracy_class_*", spec.get("view", "headline"))
    each = each[each["round"] > 0].sort_values("round", kind="stable")
    if each.empty:
        raise SpecError("none of the runs has an accuracy per class: choose others (`methods`, `view`)")
    each["class"] = each["metric"].str.removeprefix("accuracy_class_").astype(int)
    keys = [*frames.IDS, "method_label", "class"]
    ends = each.groupby([*keys, "seed"], sort=False)["value"].apply(lambda c: c.iloc[-frames.LAST :].mean(skipna=False))
    table = ends.groupby(keys, sort=False).agg(n="size", mean=lambda c: c.mean(skipna=False)).reset_index()
    table = table.sort_values("class", kind="stable")
    order, k = ranked(table), int(table["class"].max()) + 1
    names, labels, width = Names.of_runs(here), labels_of(runs), inches(spec)
    columns = spec.get("columns") or min(2, len(shown))
    words = [wrap(labels[method], 1.5 if width > 5 else 1.2) for method in order]
    tall = sum(0.13 * (word.count("\n") + 1) + 0.06 for word in words)
    share = (width - 1.3) / columns  # inches of a panel
    numbers = share * 72 / k >= CELL
    figure, axes = panels(len(shown), spec, max(tall, 0.8) + (1.0 if share < 1.5 else 0.75), columns, sharey=True)
    low = min(50.0, 10 * np.floor(np.nan_to_num(table["mean"].min(), nan=0) / 10))
    for axis, setting in zip(axes, shown, strict=True):
        pivot = of_setting(table, setting).pivot(index="method", columns="class", values="mean")
        values = pivot.reindex(index=order, columns=range(k)).to_numpy(float)
        image = heat(axis, values, Normalize(low, 100), "{:.0f}".format if numbers else None)
        axis.set_yticks(range(len(order)), words)
        if k <= NAMED:
            axis.set_xticks(range(0, k, 1 if numbers else -(-k // (10 if share > 1.5 else 4))))
    titles(axes, [names.title(setting) for setting in shown], share if share < 1.5 else None)
    outer(axes, "class", "")
    if not numbers:
        figure.set_figheight(figure.get_figheight() + 0.5)
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, aspect=40, label="test accuracy, %")
    caption = (
        f"Test accuracy per class in %, mean of the last ten evaluations: {count_words(table['n'])}; darker is higher."
    )
    end = table.groupby([*frames.IDS, "method_label"], sort=False)["mean"].mean().reset_index()
    said: dict[str, Any] = {"shape": "heat maps, a row a method, a column a class", "which": "mean over the classes"}
    return drawn(figure, table, spec, "Accuracy per class", caption, end, here, names, {}, **said)

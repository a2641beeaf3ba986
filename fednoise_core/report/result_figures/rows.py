"""Figures whose rows are methods and whose columns are settings: where their names and lines stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fednoise_core.report.floor import floor
from fednoise_core.report.names import Names
from fednoise_core.report.result_figures.common import labels_of, of_setting
from fednoise_core.report.runs import RecordedRun, Setting
from fednoise_core.report.style import CEILING, QUIET, SIZE, inches, outer, panels, titles
from fednoise_core.report.texts import filled

__all__ = ["BASELINE", "Rows", "baseline_of", "ceilings"]

BASELINE: dict[str, Any] = {"color": QUIET, "linestyle": "-", "linewidth": 1.0, "zorder": 1}
LEAST = 0.4  # inches: what one short row leaves for its axis is else nothing


class Rows:
    """A figure of rows and panels. `order`: the methods, the highest at the top; `place`: the height of each."""

    def __init__(
        self, runs: Sequence[RecordedRun], shown: Sequence[Setting], order: Sequence[str], spec: Mapping[str, Any]
    ) -> None:
        width = inches(spec)
        self.names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
        words = [filled(labels[m], 26 if width > 5 else 17) for m in order]
        lines = np.array([word.count("\n") + 1 for word in words])
        sizes = 0.05 + lines * SIZE * 1.3 / 72  # inches
        columns = spec.get("columns") or (min(4, len(shown)) if width > 5 else min(2, len(shown)))
        heads = max(1, max(len(self.names.title(setting)) for setting in shown) // 14)
        self.figure, self.axes = panels(
            len(shown), spec, max(sizes.sum(), LEAST) + 0.45 + 0.12 * heads, columns, sharex=True, sharey=True
        )
        places = np.cumsum(sizes) - sizes / 2
        self.order, self.place = list(order), dict(zip(order, places.tolist(), strict=True))
        titles(self.axes, [self.names.title(setting) for setting in shown])
        for axis in self.axes:
            axis.set_ylim(sizes.sum() + 0.02, -0.02)
            axis.set_yticks(places, words)
            axis.tick_params(axis="y", length=0)
            axis.tick_params(axis="x", labelbottom=True)
            axis.xaxis.set_major_locator(MaxNLocator(6 if columns == 1 else 4 if width > 5 else 3))
            axis.grid(axis="y", linewidth=0.4)
            axis.spines["left"].set_visible(False)

    def cut(self, values: Sequence[Sequence[float]], span: tuple[float, float], negative: bool = False) -> float | None:
        """The x axis for `values` (a list a panel, %), all that is drawn lying within `span`: it starts where most of
        them stand apart, with `negative` also below 0. Returns where, if that leaves something out.
        """
        least, most = span
        if not np.isfinite([least, most]).all():
            return None
        lift = 1000.0 if negative else 0.0  # `floor` starts no axis of accuracies below 0
        floors = [None if (start := floor([x + lift for x in each])) is None else start - lift for each in values]
        low = None if None in floors or not floors else min(value for value in floors if value is not None)
        cut = low is not None and low > least
        start = low if cut and low is not None else least - 0.05 * (most - least) - 0.5
        for axis in self.axes:
            axis.set_xlim(start, most + 0.05 * (most - start) + 0.5)
        return low if cut else None

    def beside(self, axis: Axes, method: str, value: float, low: float | None) -> bool:
        """Whether a value is left of the axes; then it stands there as a number."""
        if low is None or value >= low:
            return False
        axis.text(low, self.place[method], f" ◂ {value:.0f}".replace("-", "−"), va="center", fontsize=SIZE - 0.5)
        return True

    def legend(self, handles: Sequence[Line2D], x: str) -> None:
        """What the signs mean, under the panels, and what x is."""
        width, height = self.figure.get_size_inches()
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = int(np.clip(width * 72 // (longest * 4.6 + 34), 1, len(handles)))
        lines = -(-len(handles) // columns)
        self.figure.set_size_inches(width, height + 0.17 * lines + 0.1)
        outer(self.axes, x, "")
        self.figure.legend(
            handles=list(handles), loc="outside lower center", ncols=columns, columnspacing=1.4, labelspacing=0.3
        )


def baseline_of(runs: Sequence[RecordedRun]) -> str | None:
    """The id of plain FedAvg among the runs, which the others are seen against."""
    found = {run.listed.method: run.spec.get("method", {}) for run in runs}
    plain = [method for method, spec in found.items() if spec.get("name", method) == "fedavg"]
    return min(plain, key=lambda method: len(found[method])) if plain else None


def ceilings(axis: Axes, table: pd.DataFrame, clean: Mapping[Setting, None], setting: Setting) -> str | None:
    """A dotted line at the accuracy of the runs on clean labels of the same data set and partition; its name."""
    name = None
    for key in clean:
        if (key.dataset, key.partition) == (setting.dataset, setting.partition):
            for _, row in of_setting(table, key).dropna(subset=["mean"]).iterrows():
                axis.axvline(row["mean"], zorder=1, **CEILING)
                name = f"{row['method_label']}, no noise"
    return name

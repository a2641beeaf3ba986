"""Test accuracy over work or rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fednoise_core.report import frames
from fednoise_core.report.cells import count_words
from fednoise_core.report.ends import End, cut_words, focus, name_ends
from fednoise_core.report.names import Names
from fednoise_core.report.result_figures.common import (
    drawn,
    finish,
    labels_of,
    of_setting,
    split_clean,
    stop_mark,
)
from fednoise_core.report.runs import RecordedRun, Setting
from fednoise_core.report.style import CEILING, Drawn, Look, inches, panels

__all__ = ["curves"]

FEW = 5  # lines of a panel that may have bands; of more, none could be followed


def curves(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Test accuracy over work, mean of the seeds, one panel a setting; name and value beside each line's end.

    What is drawn is the mean of the last `smooth` evaluations, so that a line ends at the number of a table of
    `last10_mean`. Up to FEW methods have a band (`band`: std | range | none). A line stops at a cross before the first
    evaluation of which a seed has no finite number.
    """
    x, window = spec.get("x", "work"), int(spec.get("smooth") or frames.LAST)
    table = _means(runs, spec, window)
    shown, ceiling = split_clean(runs)
    few = max(of_setting(table, setting)["method"].nunique() for setting in shown) <= FEW
    band = "none" if table["n"].max() == 1 else spec.get("band") or ("std" if few else "none")
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in shown), labels_of(runs)
    one = len({key[0] for key in shown}) == 1
    columns, letters = spec.get("columns") or (2 if inches(spec) > 5 else 1), 24
    height = max(2.3, 0.137 * _names(table, ceiling, shown, labels, letters) + 0.6)
    figure, axes = panels(len(shown), spec, height, columns, sharex=True, sharey=one)
    ends = []
    for axis, setting in zip(axes, shown, strict=True):
        found = _ceilings(axis, table, ceiling, setting)
        ends.append([*_lines(axis, of_setting(table, setting), looks, labels, band), *found])
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=x == "round"))
        axis.set_xlim(0, 1.01 * max((end.x for each in ends for end in each if math.isfinite(end.x)), default=1.0) or 1)
    low = focus(axes, [key[0] for key in shown], ends, spec)
    words = "round" if x == "round" else "work (rounds of FedAvg)"
    finish(figure, axes, [names.title(setting) for setting in shown], words, spec, legend=False)
    name_ends(figure, axes, ends, letters)
    end = table.sort_values("round").groupby(frames.IDS, sort=False).tail(1)
    table = table.rename(columns={"x": x} if x != "round" else {})
    caption = _caption(runs, table, window, band, low)
    said: dict[str, Any] = {"dotted": bool(ceiling), "shape": f"lines over {x}", "which": _last(window)}
    end = end.assign(mean=end["drawn"])
    return drawn(figure, table, spec, f"Accuracy over {x}", caption, end, runs, names, ceiling, **said)


def _means(runs: Sequence[RecordedRun], spec: Mapping[str, Any], window: int) -> pd.DataFrame:
    """A row a method, setting and evaluated round: `x`, and over the `n` seeds, in %, mean and std of that evaluation;
    mean (`drawn`), spread, low and high of the last `window` up to it.
    """
    grouped = frames.by_round(runs, spec.get("view", "headline"), window).groupby(
        [*frames.IDS, "method_label", "round"], sort=False
    )
    table = grouped.agg(
        x=(spec.get("x", "work") if spec.get("x") != "round" else "work", "mean"),
        n=("value", "size"),
        mean=("value", "mean"),
        std=("value", "std"),
        drawn=("trailing", "mean"),
        spread=("trailing", "std"),
        low=("trailing", "min"),
        high=("trailing", "max"),
    ).reset_index()
    return table.assign(x=table["round"].astype(float)) if spec.get("x") == "round" else table


def _names(
    table: pd.DataFrame,
    ceiling: Mapping[Setting, None],
    shown: Sequence[Setting],
    labels: Mapping[str, str],
    letters: int,
) -> int:
    """Lines of text beside the fullest panel."""
    each = []
    for setting in shown:
        rows = sum(1 + (len(labels[m]) + 5) // letters for m in of_setting(table, setting)["method"].unique())
        clean = [key for key in ceiling if (key.dataset, key.partition) == (setting.dataset, setting.partition)]
        each.append(rows + 2 * len(clean))
    return max(each)


def _lines(
    axis: Axes, table: pd.DataFrame, looks: Mapping[str, Look], labels: Mapping[str, str], band: str
) -> list[End]:
    """Draw the methods of one panel; their ends. One that diverged has no value at its end."""
    ends = []
    for method, found in table.groupby("method", sort=False):
        style, line = looks[str(method)].line(), found.dropna(subset=["drawn"])
        axis.plot(line["x"], line["drawn"], label=labels[str(method)], zorder=3, **{**style, "marker": ""})
        whole = len(line) == len(found)
        if not whole:
            stop_mark(axis, line, "x", "drawn", style["color"])
        if band != "none":
            wide = line["spread"].fillna(0)
            low, high = (line["drawn"] - wide, line["drawn"] + wide) if band == "std" else (line["low"], line["high"])
            axis.fill_between(line["x"], low, high, color=style["color"], alpha=0.13, linewidth=0, zorder=2)
        look = {"color": style["color"], "linestyle": style["linestyle"]}
        ends.append(_end(line, labels[str(method)], look, whole))
    return ends


def _end(line: pd.DataFrame, name: str, look: dict[str, Any], whole: bool = True) -> End:
    if line.empty:
        return End(math.nan, math.nan, name, look)
    y = float(line["drawn"].iloc[-1])
    return End(float(line["x"].iloc[-1]), y, name, look, f"{y:.1f}" if whole else "")


def _ceilings(axis: Axes, table: pd.DataFrame, ceiling: Mapping[Setting, None], setting: Setting) -> list[End]:
    """Draw the runs on clean labels that belong into a setting's panel: same data set, same partition; their ends."""
    ends = []
    for clean in ceiling:
        if (clean.dataset, clean.partition) == (setting.dataset, setting.partition):
            for _, line in of_setting(table, clean).groupby("method", sort=False):
                label = f"{line['method_label'].iloc[0]}, no noise"
                axis.plot(line["x"], line["drawn"], label=label, zorder=1.5, **CEILING)
                look = {"color": CEILING["color"], "linestyle": CEILING["linestyle"]}
                ends.append(_end(line.dropna(subset=["drawn"]), label, look))
    return ends


def _last(window: int) -> str:
    return (
        "accuracy of the last round"
        if window == 1
        else f"mean of the last {'ten' if window == 10 else window} evaluations"
    )


def _caption(runs: Sequence[RecordedRun], table: pd.DataFrame, window: int, band: str, low: Sequence[float]) -> str:
    text = f"Test accuracy {_when(runs)}"
    text += f", at each the mean of the last {window} evaluations" if window > 1 else ""
    text += f", mean over seeds: {count_words(table['n'])}" if table["n"].max() > 1 else ": one seed"
    text += {"std": "; bands: one standard deviation.", "range": "; bands: range."}.get(band, ".")
    return f"{text} Beside each line its last value; work counts passes over samples.{cut_words(low)}"


def _when(runs: Sequence[RecordedRun]) -> str:
    """Which rounds were evaluated, in words."""
    every = {int(run.spec.get("train", {}).get("eval_every", 1)) for run in runs}
    if every == {1}:
        return "after every round"
    return f"after every {every.pop()} rounds" if len(every) == 1 else "after the rounds that were evaluated"

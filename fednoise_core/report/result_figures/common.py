"""What the figures of results share: scores, panels' selections, error bars, captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednoise_core.report import frames
from fednoise_core.report.marks import marked, marks_of, notes
from fednoise_core.report.names import Names
from fednoise_core.report.rates import noiseless
from fednoise_core.report.runs import RecordedRun, Setting
from fednoise_core.report.style import Drawn, legend_below, outer, titles

__all__ = ["bars", "deviation", "drawn", "finish", "labels_of", "of_setting", "scores", "split_clean", "stop_mark"]


def scores(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """Accuracy of every method in every setting, in %: `n` runs, their `mean` and `std` (sample standard deviation),
    both NaN where a run diverged.
    """
    frame = frames.results(runs, spec.get("view", "headline"))
    grouped = frame.groupby([*frames.IDS, "method_label"], sort=False)
    table = grouped[spec.get("metric", "best")].agg(n="size", mean="mean", std="std")
    table.loc[grouped["diverged"].any(), ["mean", "std"]] = np.nan
    return table.reset_index()


def split_clean(runs: Sequence[RecordedRun]) -> tuple[list[Setting], dict[Setting, None]]:
    """Settings with a panel, and those on clean labels, which are drawn into the others (if there are any)."""
    clean = {run.listed.setting: None for run in runs if noiseless(run.spec.get("noise", {}))}
    settings = dict.fromkeys(run.listed.setting for run in runs)
    noisy = [key for key in settings if key not in clean]
    return (noisy, clean) if noisy else (list(settings), {})


def of_setting(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """The rows of one setting."""
    return table[(table["dataset"] == setting[0]) & (table["noise"] == setting[1]) & (table["partition"] == setting[2])]


def labels_of(runs: Sequence[RecordedRun]) -> dict[str, str]:
    """Method -> its words in the legend: label, dagger, and how many of its runs diverged."""
    found = {run.listed.method: marked(run.label, marks_of(run.summary)) for run in runs}
    for method in found:
        lost = [run.diverged for run in runs if run.listed.method == method]
        found[method] += f", diverged ({sum(lost)} of {len(lost)})" if any(lost) else ""
    return found


def stop_mark(axis: Axes, line: pd.DataFrame, x: str, y: str, colour: str) -> None:
    """A cross where a line stops because a run diverged: at its last mean, if it has any."""
    axis.plot(line[x][-1:], line[y][-1:], color=colour, zorder=4.5, marker="x", markersize=6, markeredgewidth=1.4)


def bars(axis: Axes, x: Any, y: Any, colour: str, **spread: Any) -> None:
    """Error bars without an entry in the legend; an unknown spread (one seed) draws none."""
    axis.errorbar(
        x,
        y,
        fmt="none",
        ecolor=colour,
        capsize=2,
        elinewidth=0.8,
        capthick=0.8,
        zorder=3.5,
        **{key: np.nan_to_num(np.asarray(value, float)) for key, value in spread.items()},
    )


def deviation(table: pd.DataFrame, what: str) -> str:
    """The words about error bars, if any are drawn."""
    return f"; {what}: one standard deviation over seeds." if table["std"].notna().any() else "; one seed."


def finish(figure: Figure, axes: Sequence[Axes], heads: Sequence[str], x: str, spec: Mapping[str, Any]) -> None:
    """Titles of the panels, the asked range of y (%), words at the axes, and the legend."""
    titles(axes, heads)
    for axis in axes:
        if spec.get("y"):
            axis.set_ylim(*spec["y"])
    outer(axes, x, "test accuracy, %")
    legend_below(figure, axes)


def drawn(
    figure: Figure,
    table: pd.DataFrame,
    spec: Mapping[str, Any],
    title: str,
    caption: str,
    end: pd.DataFrame,
    runs: Sequence[RecordedRun],
    names: Names,
    ceiling: Mapping[Setting, None],
    dotted: bool = False,
) -> Drawn:
    """Finish: the caption with its footnotes, and a text for those who cannot see: who ends on top in each setting."""
    common = names.common(runs[0].listed.setting)
    caption += f" All on {common}." if common else ""
    caption += " Dotted: the same method trained on clean labels." if dotted else ""
    caption += "".join(f" {note}" for note in notes(frames.results(runs, spec.get("view", "headline"))))
    lost = frames.divergence(frames.results(runs, spec.get("view", "headline")))
    if lost:
        caption += " A run diverged: its outputs were not finite, so it has no accuracy, nor has a mean with it."
        table = table.assign(diverged=[lost.get(ids, (0, 0))[0] for ids in table[frames.IDS].itertuples(False, None)])
    best = []
    for ids, group in end.dropna(subset=["mean"]).groupby(frames.IDS[:3], sort=False):
        key = Setting(*map(str, ids))
        if key in ceiling:
            continue
        top = group.sort_values("mean", kind="stable").iloc[-1]
        best.append(f"{names.title(key)}: {top['method_label']} {top['mean']:.1f} %")
    alt = f"{spec.get('title', title)}, {end['method'].nunique()} methods. "
    alt += f"Highest at the end: {'; '.join(best)}." if best else "None has an accuracy at the end."
    alt += f" Diverged: {'; '.join(frames.diverged_words(runs))}." if lost else ""
    text = f"{spec['caption']} {caption}" if spec.get("caption") else caption
    return Drawn(figure, table, spec.get("title") or title, text, alt)

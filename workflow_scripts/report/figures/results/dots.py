"""Test accuracy of every method in every setting: a dot a mean, a tick a seed."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D

from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.results.common import (
    find_best,
    finish_figure,
    in_settings,
    metric_words,
    of_setting,
    rank_methods,
    score_methods,
    split_clean_settings,
)
from workflow_scripts.report.figures.results.rows import Rows, draw_ceilings
from workflow_scripts.report.figures.style import BASELINE, CEILING, Look
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.ranking import find_baseline
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import count_words


class DotsSettings(AccuracySettings):
    """Test accuracy of every method, a row a method, a dot the mean, a tick a seed; FedAvg and clean runs are lines.

    One panel a setting. The highest mean over the settings is at the top. The highest of a panel has its number. What
    no federation can have is a hollow dot.
    """


def _draw_dots(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: DotsSettings) -> Drawn:
    table, (panels, clean) = score_methods(runs, settings), split_clean_settings(runs, several_apart=True)
    scores = in_settings(table, panels)
    rows, base = Rows(runs, panels, rank_methods(scores), looks, settings), find_baseline(runs)
    seeds = frames.tabulate_results(runs, settings.view).set_index([*frames.IDS])[settings.metric]
    dotted, several, best = None, table["n"].max() > 1, find_best(scores, rows.hollow)
    cut = rows.set_x_range(scores, panels, top=np.nanmax([-np.inf, *table["high"]]))
    for axis, setting in zip(rows.axes, panels, strict=True):
        dotted = draw_ceilings(axis, table, clean, setting) or dotted
        for _, row in of_setting(scores, setting).dropna(subset=["mean"]).iterrows():
            method, values = row["method"], list(seeds.loc[[(*setting, row["method"])]])
            rows.draw_method(axis, setting, method, row["mean"], values, method == best.get(setting))
            if method == base:
                axis.axvline(row["mean"], **BASELINE)
    labels = {run.listed.method: run.label for run in runs}
    lines = [Line2D([], [], label=labels[base], **BASELINE)] if base else []
    lines += [Line2D([], [], label=dotted, **CEILING)] if dotted else []
    rows.add_legend("test accuracy, %", "mean" if several else "one seed", "one seed" if several else "", lines)
    caption = f"Test accuracy ({metric_words(settings)}), {count_words(scores['n'])}. "
    caption += "Sorted by the mean over the settings." if len(panels) > 1 else "Sorted by the mean."
    caption += cut
    caption += " No dot: no accuracy." if scores["mean"].isna().any() else ""
    title, shape = "Accuracy of every method", "dots, a row a method"
    return finish_figure(rows.figure, scores, settings, title, caption, scores, runs, rows.names, clean, shape=shape)


KIND = FigureKind(settings=DotsSettings, draw=_draw_dots, example={"metric": "last"})

"""Gain of every method over the baseline. Each dot is a pair of runs with the same setting and seed."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from pydantic import Field

from fednoise_core.io import SpecError
from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.results.common import (
    annotate_point,
    finish_figure,
    legend_labels,
    metric_words,
    name_rows,
    not_compared,
    of_setting,
    sign_handles,
    split_clean_settings,
)
from workflow_scripts.report.figures.style import (
    BASELINE,
    DOT,
    MARKERS,
    QUIET,
    SIZE,
    Look,
    add_legend_below,
    make_panels,
    width_inches,
)
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.ranking import compared_runs, find_baseline, paired_gains
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import count_words
from workflow_scripts.report.text.escape import wrap_text

NARROW = 3.9  # inches, so that the text is readable even on a phone with 320 pixels
MANY = 15  # most methods that have one line per setting; with more the figure would be too tall
LINE = 0.075  # inches between the lines of two settings
LEFT = 1.2  # largest ratio of the axis's left part to its right part; worse gains are shown as numbers


class PairedGainsSettings(AccuracySettings):
    """Gain of every method over a baseline. Each row is a method, each dot a pair of runs with equal setting and seed.

    There is one panel for all settings, whose dots differ in shape. The method with gains in the most pairs is at the
    top. The number of these pairs is at the right. Hollow dots, with the number in brackets, mark methods that no
    federation can have.
    """

    baseline: Annotated[
        str | None, Field(description="The method that the others are compared with; null: plain FedAvg.")
    ] = None


def _draw_paired_gains(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: PairedGainsSettings) -> Drawn:
    label, gains = _find_gains(runs, settings)
    panels = list(dict.fromkeys(Setting(*map(str, ids)) for ids in gains[frames.IDS[:3]].itertuples(False, None)))
    names, labels = Names.of_runs(run for run in runs if run.listed.setting in panels), legend_labels(runs)
    fair = gains.groupby("method")["compared"].transform("any")
    counted = (
        gains[gains["compared"] | ~fair]
        .assign(won=(gains["gain"] > 0).where(gains["gain"].notna()))
        .groupby("method", sort=False)
    )
    table = counted.agg(
        compared=("compared", "any"),
        share=("won", "mean"),
        gain=("gain", "mean"),
        won=("won", "sum"),
        of=("won", "count"),
    )
    order = table.sort_values(["compared", "share", "gain"], ascending=False, kind="stable").index
    method_labels = [wrap_text(labels[method], 14 if len(order) <= MANY else 40) for method in order]
    lines = 1 + max(word.count("\n") for word in method_labels)
    dots = LINE * max(2, len(panels)) if len(order) <= MANY else LINE
    height = max(0.1 + dots, 0.05 + lines * SIZE * 1.3 / 72)  # inches
    figure, (axis,) = make_panels(1, settings, height * len(order) + 0.6)
    figure.set_figwidth(min(NARROW, width_inches(settings)))
    finite = [0.0, *gains["gain"][np.isfinite(gains["gain"])]]
    far = max(*finite, 5.0)
    axis.set_xlim(max(-LEFT * far, min(finite) - 0.06 * far), 1.06 * far)
    axis.axvline(0, **BASELINE)
    for place, method in enumerate(order):
        _draw_row(axis, place, looks[method].colour, gains[gains["method"] == method], panels, len(order) <= MANY)
        count = f"{table.loc[method, 'won']:.0f} of {table.loc[method, 'of']}"
        count = count if table.loc[method, "compared"] else f"({count})"
        axis.annotate(count, (1, place), (4, 0), ("axes fraction", "data"), "offset points", va="center")
    axis.axhline(table["compared"].sum() - 0.5, color=QUIET, linewidth=0.6)  # methods below are not compared
    panel_runs = [run for run in runs if run.listed.setting in panels]
    apart, why = not_compared(panel_runs)
    name_rows(axis, method_labels, list(order), runs, apart)
    axis.set_ylim(len(order) - 0.5, -0.5)
    axis.tick_params(axis="y", pad=6)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(f"points of test accuracy above {label}")
    above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "bottom"}
    axis.annotate("better ▸", (0, 1), (4, 3), **above)
    axis.annotate("◂ worse", (0, 1), (-4, 3), ha="right", **above)
    axis.annotate("pairs\nwon", (1, 1), (4, 3), **{**above, "xycoords": "axes fraction"})
    handles = []
    if 1 < len(panels) <= len(MARKERS):
        signs = zip(_setting_markers(panels), panels, strict=True)
        handles += [Line2D([], [], label=names.title(key), **_dot_style(QUIET, sign, QUIET)) for sign, key in signs]
    add_legend_below(figure, [*handles, *sign_handles(why)])
    caption = f"Test accuracy ({metric_words(settings)}) minus that of {label} with the same setting and seed"
    caption += f", {count_words(gains.groupby(frames.IDS)['seed'].size())}. At the right: in how many pairs it gains."
    if gains["gain"].min() < axis.get_xlim()[0]:
        caption += " What lies left of the axis is a number (◂)."
    columns = [*frames.RUN, "method_label", "baseline", settings.metric, "gain", "compared"]
    end = gains.groupby([*frames.IDS, "method_label"], sort=False)["gain"].mean().rename("mean").reset_index()
    end["mean"] = end["mean"].where(np.isfinite(end["mean"]))
    alt_parts: dict[str, Any] = {"shape": "dots, one row per method", "which": f"gain over {label}", "unit": "points"}
    return finish_figure(
        figure, gains[columns], settings, f"Gain over {label}", caption, end, runs, names, {}, **alt_parts
    )


def _find_gains(runs: Sequence[RecordedRun], settings: PairedGainsSettings) -> tuple[str, pd.DataFrame]:
    """The baseline's label, and the rows of `paired_gains` with `compared` and `baseline`."""
    base = settings.baseline or find_baseline(runs)
    label = next((run.label for run in runs if run.listed.method == base), None)
    if label is None:
        asked = f"{base!r} has no run" if base else "no plain FedAvg among the runs; name another method"
        raise SpecError(f"baseline: {asked}")
    noisy = split_clean_settings(runs)[0]
    results = frames.tabulate_results([run for run in runs if run.listed.setting in noisy])
    gains = paired_gains(results, settings.metric, str(base))
    if gains.empty:
        raise SpecError(f"baseline: no setting has {base!r} and another method with a seed in common")
    return label, gains.assign(compared=gains.index.isin(compared_runs(gains).index), baseline=base)


def _draw_row(
    axis: Axes, place: int, colour: str, gains: pd.DataFrame, panels: Sequence[Setting], spread: bool
) -> None:
    """Draw a method's dots, with one line per setting if they are spread.

    A dot beyond the left end of the axis is drawn at this end, with its number.
    """
    low = axis.get_xlim()[0]
    step = 0.8 / max(2, len(panels)) if spread else 0.0
    cut_at = []
    for line, (marker, setting) in enumerate(zip(_setting_markers(panels), panels, strict=True)):
        line_gains = of_setting(gains, setting)
        y = place + step * (line - (len(panels) - 1) / 2)
        gain = line_gains["gain"].clip(lower=low)
        cut_at += [y] * bool((line_gains["gain"] < low).any())
        face = colour if line_gains["compared"].all() else "white"
        axis.plot(
            gain, [y] * len(line_gains), zorder=3, clip_on=False, in_layout=False, **_dot_style(colour, marker, face)
        )
    cut = gains["gain"][gains["gain"] < low]
    if cut_at:
        ends = dict.fromkeys(
            f"{value:.0f}".replace("-", "−") if np.isfinite(value) else "−∞" for value in (cut.min(), cut.max())
        )
        annotate_point(axis, f"◂ {' to '.join(ends)}", (low, float(np.mean(cut_at))), 4, zorder=2.5)


def _dot_style(colour: str, marker: str, face: str) -> dict[str, Any]:
    return {**DOT, "color": colour, "marker": marker, "markersize": 3.6, "markerfacecolor": face}


def _setting_markers(panels: Sequence[Setting]) -> Sequence[str]:
    return MARKERS[: len(panels)] if len(panels) <= len(MARKERS) else ["o"] * len(panels)


KIND = FigureKind(settings=PairedGainsSettings, draw=_draw_paired_gains, example={"noises": ["sym40"]}, at_top=True)

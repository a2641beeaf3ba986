"""Test accuracy against the noise rate."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fednoise_core.io import SpecError
from workflow_scripts.report.figures.kind import Drawn, FigureKind, LineSettings
from workflow_scripts.report.figures.line_labels import LineEnd, fit_panels
from workflow_scripts.report.figures.results.common import (
    find_best,
    finish_figure,
    finish_panels,
    legend_labels,
    list_ids,
    metric_words,
    not_compared,
    score_methods,
    sign_handles,
    split_clean_settings,
)
from workflow_scripts.report.figures.style import Look, add_legend_below, make_panels, width_inches
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names, label_without_rate
from workflow_scripts.report.runs.noise_rate import noise_rate, nominal_run_rate
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import count_words, format_number


class RateSettings(LineSettings):
    """Test accuracy against the nominal noise rate, with clean runs at 0.

    One panel a data set, kind of noise and partition. What no federation can have has hollow markers.
    """


def _draw_rate(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: RateSettings) -> Drawn:
    frame = score_methods(runs, settings)
    kinds = label_without_rate({run.listed.noise: run.spec.get("noise", {}) for run in runs})
    panels, ceiling = split_clean_settings(runs)
    clean = {key[1] for key in ceiling}
    rates = _noise_rates(runs)
    frame["rate"] = [rates[Setting(*ids)] for ids in frame[frames.IDS[:3]].itertuples(index=False, name=None)]
    frame["noise_kind"] = frame["noise"].map(kinds)
    groups = list(dict.fromkeys((key[0], kinds[key[1]], key[2]) for key in panels))
    names, labels = Names.of_runs(runs), legend_labels(runs)
    apart, why = not_compared(runs)
    best = find_best(frame, apart)
    columns, height = fit_panels([["at", *labels.values()]] * len(groups), width_inches(settings))
    single = len({group[0] for group in groups}) == 1
    figure, axes = make_panels(len(groups), settings, height, columns, sharex=True, sharey=single)
    parts, heads, ends, above = [], [], [], []
    varies = [len({group[place] for group in groups}) > 1 for place in range(3)]
    ticks = np.sort(100 * frame["rate"].unique())
    ticks = ticks[np.diff(ticks, prepend=-np.inf) > np.ptp(ticks) / 12]  # those with room for their number
    for axis, (dataset, kind, partition) in zip(axes, groups, strict=True):
        panel_rows = frame[(frame["dataset"] == dataset) & (frame["partition"] == partition)]
        line_ends = []
        noisy = panel_rows[(panel_rows["noise_kind"] == kind) & ~panel_rows["noise"].isin(clean)]
        for method, line in noisy.groupby("method", sort=False):
            start = panel_rows[panel_rows["noise"].isin(clean) & (panel_rows["method"] == method)]
            points = pd.concat([start, line]).sort_values("rate", kind="stable").assign(noise_kind=kind)
            ids, look, label = list_ids(points), looks[str(method)], labels[str(method)]
            hollow = [key in apart for key in ids]
            axis.plot(100 * points["rate"], points["mean"], label=label, **look.line_style())
            dots = look.line_style(hollow=True, linestyle="none", markevery=hollow)
            axis.plot(100 * points["rate"], points["mean"], **dots)
            parts.append(points)
            y = float(points["mean"].where(points["rate"] == noisy["rate"].max()).iloc[-1])
            value = "" if np.isnan(y) else format_number(y, 1)
            first = (method, True) == (best.get(ids[-1][0]), bool(value))
            line_ends.append(LineEnd(y, label, look.line_style(hollow[-1]), value, bold=first, apart=hollow[-1]))
        ends.append(line_ends)
        above.append(f"at {100 * noisy['rate'].max():g} %")
        title_parts = (names.parts[0][dataset], kind, names.parts[2][partition])
        heads.append(" · ".join(word for word, use in zip(title_parts, varies, strict=True) if use))
        axis.set_xticks(ticks)
    cut = finish_panels(axes, heads, [group[0] for group in groups], "wrong labels, %", ends, settings.y, above)
    add_legend_below(figure, sign_handles(why))
    table = pd.concat(parts, ignore_index=True)
    caption = f"Test accuracy ({metric_words(settings)}) against the nominal share of wrong labels"
    caption += f"{'' if varies[1] else f' ({groups[0][1]})'}, means of {count_words(table['n'])}. "
    caption += f"In the legend the values at the highest share.{cut}"
    unstated = {names.parts[1][run.listed.noise]: None for run in runs if nominal_run_rate(run) is None}
    caption += f" No rate is stated for {', '.join(unstated)}: the measured rate is shown." if unstated else ""
    title, shape = "Accuracy against the share of wrong labels", "lines over the share of wrong labels"
    return finish_figure(figure, table, settings, title, caption, table, runs, names, ceiling, shape=shape)


def _noise_rates(runs: Sequence[RecordedRun]) -> dict[Setting, float]:
    """Noise rate of every setting, mean over its runs.

    It is one number, unless nobody states it and every seed came out otherwise. Not by noise alone, since a rate may
    depend on the number of classes.
    """
    rates: dict[Setting, list[float]] = {}
    for run in runs:
        value = noise_rate(run)
        if value is None:
            raise SpecError(f"noise {run.listed.noise} has no known rate: leave it out of a rate figure (`noises`)")
        rates.setdefault(run.listed.setting, []).append(value)
    return {setting: float(np.mean(values)) for setting, values in rates.items()}


KIND = FigureKind(settings=RateSettings, draw=_draw_rate, example={"metric": "last"})

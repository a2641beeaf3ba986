"""Figures of results: accuracy over work, noise rate, bytes and seconds. Called through `figures.draw`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from fednoise_core.io import SpecError
from fednoise_core.report import read
from fednoise_core.report.layout import METRIC_WORDS
from fednoise_core.report.names import DAGGER, Names, apart_from_rate, noise_rate, noiseless
from fednoise_core.report.read import Run
from fednoise_core.report.style import CEILING, Drawn, Look, legend_below, mark_ends, outer, panels, titles

__all__ = ["PLOTS"]

IDS = ["dataset", "noise", "partition", "method"]


FEW = 5  # lines of a panel that may zigzag and have bands; of more, none could be followed


def curves(runs: Sequence[Run], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Test accuracy over work, mean of the seeds; one panel a setting, each method's marker at the end of its line.

    Up to FEW methods have a band (`band`: std | range | none); more are drawn as running means (`smooth`).
    """
    x = spec.get("x", "work")
    frame = read.tidy(runs, "accuracy", spec.get("view", "headline")).dropna(subset=["value"])
    grouped = frame.groupby([*IDS, "method_label", "round"], sort=False)
    table = grouped.agg(
        x=(x, "mean"),
        n=("value", "size"),
        mean=("value", "mean"),
        std=("value", "std"),
        low=("value", "min"),
        high=("value", "max"),
    ).reset_index()
    shown, ceiling = _split(runs)
    few = max(_of(table, setting)["method"].nunique() for setting in shown) <= FEW
    window = int(spec.get("smooth") or (1 if few else table.groupby(IDS).size().max() // 10 | 1))
    table["drawn"] = table.groupby(IDS, sort=False)["mean"].transform(_running, window=window)
    most = int(table["n"].max())
    band = "none" if most == 1 else spec.get("band") or ("std" if few else "none")
    names, labels = Names.of_runs(run for run in runs if run.entry.setting in shown), _labels(runs)
    figure, axes = panels(
        len(shown), columns=spec.get("columns"), sharex=True, sharey=len({key[0] for key in shown}) == 1
    )
    lines_of = []
    for axis, setting in zip(axes, shown, strict=True):
        for line in _ceilings(table, ceiling, setting):
            axis.plot(
                line["x"], line["drawn"], label=f"{line['method_label'].iloc[0]}, no noise", zorder=1.5, **CEILING
            )
        lines = {}
        for method, line in _of(table, setting).groupby("method", sort=False):
            style = looks[str(method)].line()
            lines[str(method)] = axis.plot(
                line["x"], line["drawn"], label=labels[str(method)], zorder=3, markevery=[], **style
            )[0]
            if band != "none":
                wide = line["std"].fillna(0)
                low, high = (line["mean"] - wide, line["mean"] + wide) if band == "std" else (line["low"], line["high"])
                axis.fill_between(line["x"], low, high, color=style["color"], alpha=0.13, linewidth=0, zorder=2)
        lines_of.append(list(lines.values()))
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=x == "round"))
        axis.margins(x=0.02)
    words = "round" if x == "round" else "work (client epochs, in rounds of FedAvg)"
    _finish(figure, axes, [names.title(setting) for setting in shown], words, spec)
    mark_ends(figure, axes, lines_of)
    caption = f"Test accuracy {_when(runs)}, " + (f"mean of {most} seeds" if most > 1 else "one seed")
    caption += f"; lines: running mean of {window} evaluations" if window > 1 else ""
    caption += {"std": "; bands: one standard deviation.", "range": "; bands: range."}.get(band, ".")
    caption += " Markers stand at the ends of the lines, set apart in their order."
    end = table.sort_values("round").groupby(IDS, sort=False).tail(1)
    return _drawn(
        figure,
        table.rename(columns={"x": x} if x != "round" else {}),
        spec,
        "Accuracy over " + x,
        caption,
        end,
        runs,
        names,
        ceiling,
        bool(ceiling),
    )


def rate(runs: Sequence[Run], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against the noise rate; one panel a (data set, kind of noise, partition). Clean runs stand at 0."""
    metric, frame = spec.get("metric", "best"), _scores(runs, spec)
    rates = {run.entry.noise: noise_rate(run) for run in runs}
    kinds = apart_from_rate({run.entry.noise: run.spec.get("noise", {}) for run in runs})
    unknown = sorted(name for name, value in rates.items() if value is None)
    if unknown:
        raise SpecError(f"noise {', '.join(unknown)} has no known rate: leave it out of a rate figure (`noises`)")
    shown, ceiling = _split(runs)
    clean = {key[1] for key in ceiling}
    frame["rate"] = frame["noise"].map(rates)
    frame["noise_kind"] = frame["noise"].map(kinds)
    groups = list(dict.fromkeys((key[0], kinds[key[1]], key[2]) for key in shown))
    names, labels = Names.of_runs(runs), _labels(runs)
    figure, axes = panels(
        len(groups), columns=spec.get("columns"), sharex=True, sharey=len({g[0] for g in groups}) == 1
    )
    parts, heads = [], []
    step = 0.008 * (frame["rate"].max() - frame["rate"].min())  # side by side, or equal points would hide one another
    for axis, (dataset, kind, partition) in zip(axes, groups, strict=True):
        here = frame[(frame["dataset"] == dataset) & (frame["partition"] == partition)]
        lines = list(here[(here["noise_kind"] == kind) & ~here["noise"].isin(clean)].groupby("method", sort=False))
        for place, (method, line) in enumerate(lines):
            start = here[here["noise"].isin(clean) & (here["method"] == method)]
            points = pd.concat([start, line]).sort_values("rate", kind="stable").assign(noise_kind=kind)
            style = looks[str(method)].line()
            half = step * (len(lines) - 1) / 2
            x = points["rate"] + step * place - np.minimum(half, points["rate"])  # no marker stands below 0
            axis.plot(x, points["mean"], label=labels[str(method)], **style)
            _bars(axis, x, points["mean"], style["color"], yerr=points["std"])
            parts.append(points)
        varies = [len({g[place] for g in groups}) > 1 for place in range(3)]
        words = (names.parts[0][dataset], kind, names.parts[2][partition])
        heads.append(" · ".join(word for word, use in zip(words, varies, strict=True) if use or not any(varies)))
        axis.margins(x=0.06)
    _finish(figure, axes, heads, "noise rate", spec)
    table = pd.concat(parts, ignore_index=True)
    caption = f"Test accuracy ({METRIC_WORDS[metric]}) against the noise rate, methods set a little apart"
    caption += _deviation(table, "bars")
    return _drawn(figure, table, spec, "Accuracy against noise rate", caption, table, runs, names, ceiling)


def traffic(runs: Sequence[Run], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy over the bytes sent so far, both ways, all clients; the marker is the end. Zero has its own place."""
    accuracy = read.tidy(runs, "accuracy", spec.get("view", "headline")).dropna(subset=["value"])
    step = read.tidy(runs, "bytes_*", "").groupby([*IDS, "seed", "round"], sort=False)["value"].sum()
    sent = step.groupby(level=[*IDS, "seed"], sort=False).cumsum().rename("bytes").reset_index()
    frame = accuracy.merge(sent, on=[*IDS, "seed", "round"], how="left")
    frame["bytes"] = frame.groupby([*IDS, "seed"], sort=False)["bytes"].transform(
        lambda column: column.ffill().fillna(0)
    )
    table = (
        frame.groupby([*IDS, "method_label", "round"], sort=False)
        .agg(
            megabytes=("bytes", lambda column: column.mean() / 1e6),
            n=("value", "size"),
            mean=("value", "mean"),
            std=("value", "std"),
        )
        .reset_index()
    )
    shown, _ = _split(runs)
    table = table[[tuple(key) in shown for key in table[IDS[:3]].to_numpy()]]
    names, labels = Names.of_runs(run for run in runs if run.entry.setting in shown), _labels(runs)
    figure, axes = panels(
        len(shown), columns=spec.get("columns"), sharex=True, sharey=len({key[0] for key in shown}) == 1
    )
    trained = table[(table["round"] > 0) & (table["megabytes"] > 0)]  # what is sent before it would stretch the axis
    ends = (trained["megabytes"].min(), table["megabytes"].max()) if len(trained) else (1.0, 1.0)
    for axis, setting in zip(axes, shown, strict=True):
        for method, line in _of(table, setting).groupby("method", sort=False):
            style = looks[str(method)].line()
            way, end = line[(line["round"] > 0) & (line["megabytes"] > 0)], line.iloc[-1:]
            axis.plot(way["megabytes"], way["mean"], **{**style, "marker": "", "linewidth": 1.0}, alpha=0.75)
            axis.plot(
                end["megabytes"],
                end["mean"],
                label=labels[str(method)],
                clip_on=False,
                zorder=4,
                **{**style, "markersize": 6.5},
            )
            _bars(axis, end["megabytes"], end["mean"], style["color"], yerr=end["std"])
        _from_zero(axis, *ends)
    _finish(figure, axes, [names.title(setting) for setting in shown], "traffic of all clients, both ways, MB", spec)
    end = table.groupby(IDS, sort=False).tail(1)
    caption = "Test accuracy over the traffic of all clients, up and down; the marker is the last round"
    caption += _deviation(end, "its bar")
    return _drawn(figure, table, spec, "Accuracy against traffic", caption, end, runs, names, {})


def seconds(runs: Sequence[Run], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy against the time a run took, one marker a method, with the spread over seeds both ways."""
    metric, frame = spec.get("metric", "best"), _scores(runs, spec)
    rows = [
        {**dict(zip(IDS, (*run.entry.setting, run.entry.method), strict=True)), "seconds": run.cost["seconds"]}
        for run in runs
    ]
    time = pd.DataFrame(rows).groupby(IDS, sort=False)["seconds"].agg(seconds="mean", seconds_std="std").reset_index()
    table = frame.merge(time, on=IDS)
    shown, _ = _split(runs)
    table = table[[tuple(key) in shown for key in table[IDS[:3]].to_numpy()]]
    names, labels = Names.of_runs(run for run in runs if run.entry.setting in shown), _labels(runs)
    figure, axes = panels(
        len(shown), columns=spec.get("columns"), sharex=True, sharey=len({key[0] for key in shown}) == 1
    )
    wide = table["seconds"].max() > 12 * max(table["seconds"].min(), 1e-9)
    for axis, setting in zip(axes, shown, strict=True):
        for _, row in _of(table, setting).iterrows():
            style = {**looks[str(row["method"])].line(), "linestyle": "none", "markersize": 6.5}
            axis.plot([row["seconds"]], [row["mean"]], label=labels[str(row["method"])], **style)
            _bars(axis, [row["seconds"]], [row["mean"]], style["color"], xerr=[row["seconds_std"]], yerr=[row["std"]])
        axis.margins(0.08)
        if wide:
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        else:
            axis.xaxis.set_major_locator(MaxNLocator(6))
    _finish(figure, axes, [names.title(setting) for setting in shown], "seconds a run", spec)
    device = ", ".join(sorted({str(run.cost.get("device", "unknown")) for run in runs}))
    caption = f"Test accuracy ({METRIC_WORDS[metric]}) against the time of a run (device: {device})"
    caption += _deviation(table, "bars")
    return _drawn(figure, table, spec, "Accuracy against time", caption, table, runs, names, {})


PLOTS: dict[str, Callable[[Sequence[Run], Mapping[str, Look], Mapping[str, Any]], Drawn]] = {
    "curves": curves,
    "rate": rate,
    "bytes": traffic,
    "seconds": seconds,
}

Setting = tuple[str, str, str]


def _running(column: pd.Series, window: int) -> pd.Series:
    """Mean of `window` values around each: narrower at the start, so that a run starts where it started; at the end of
    those there are.
    """
    means = column.rolling(window, center=True, min_periods=1).mean()
    start = min(window // 2, len(column))
    means.iloc[:start] = [column.iloc[: 2 * place + 1].mean() for place in range(start)]
    return means


def _when(runs: Sequence[Run]) -> str:
    """Which rounds were evaluated, in words."""
    every = {int(run.spec.get("train", {}).get("eval_every", 1)) for run in runs}
    if every == {1}:
        return "after every round"
    return f"after every {every.pop()} rounds" if len(every) == 1 else "after the rounds that were evaluated"


def _scores(runs: Sequence[Run], spec: Mapping[str, Any]) -> pd.DataFrame:
    frame = read.results(runs, spec.get("view", "headline"))
    grouped = frame.groupby([*IDS, "method_label"], sort=False)[spec.get("metric", "best")]
    return grouped.agg(n="size", mean="mean", std="std").reset_index()


def _split(runs: Sequence[Run]) -> tuple[list[Setting], dict[Setting, None]]:
    """Settings with a panel, and those on clean labels, which are drawn into the others (if there are any)."""
    clean = {run.entry.setting: None for run in runs if noiseless(run.spec.get("noise", {}))}
    settings = dict.fromkeys(run.entry.setting for run in runs)
    noisy = [key for key in settings if key not in clean]
    return (noisy, clean) if noisy else (list(settings), {})


def _of(table: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    return table[(table["dataset"] == setting[0]) & (table["noise"] == setting[1]) & (table["partition"] == setting[2])]


def _ceilings(table: pd.DataFrame, ceiling: Mapping[Setting, None], setting: Setting) -> list[pd.DataFrame]:
    return [
        line
        for key in ceiling
        if (key[0], key[2]) == (setting[0], setting[2])
        for _, line in _of(table, key).groupby("method", sort=False)
    ]


def _labels(runs: Sequence[Run]) -> dict[str, str]:
    return {run.entry.method: run.label + (f" {DAGGER}" if run.summary.get("oracle_rate") else "") for run in runs}


def _bars(axis: Axes, x: Any, y: Any, colour: str, **spread: Any) -> None:
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


def _from_zero(axis: Axes, least: float, most: float) -> None:
    """A logarithmic axis that also has a place for 0, with so few decades named that their numbers stay apart."""
    place = axis.get_subplotspec()
    ticks = {1: 7, 2: 6}.get(place.get_gridspec().ncols if place else 1, 4)
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    axis.set_xscale("symlog", linthresh=10.0**low, linscale=max(0.35, 0.25 * (high - low)))
    axis.set_xlim(0, most * 1.6)
    decades = range(low, high + 1, max(1, -(-(high - low + 1) // ticks)))
    axis.xaxis.set_major_locator(FixedLocator([0.0, *(10.0**decade for decade in decades)]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _deviation(table: pd.DataFrame, what: str) -> str:
    """The words about error bars, if any are drawn."""
    return f"; {what}: one standard deviation over seeds." if table["std"].notna().any() else "; one seed."


def _finish(figure: Figure, axes: Sequence[Axes], heads: Sequence[str], x: str, spec: Mapping[str, Any]) -> None:
    titles(axes, heads)
    for axis in axes:
        if spec.get("y"):
            axis.set_ylim(*spec["y"])
    outer(axes, x, "test accuracy, %")
    legend_below(figure, axes)


def _drawn(
    figure: Figure,
    table: pd.DataFrame,
    spec: Mapping[str, Any],
    title: str,
    caption: str,
    end: pd.DataFrame,
    runs: Sequence[Run],
    names: Names,
    ceiling: Mapping[Setting, None],
    dotted: bool = False,
) -> Drawn:
    """Finish: the caption with its footnotes, and a text for those who cannot see: who ends on top in each setting."""
    common = names.common(runs[0].entry.setting)
    caption += f" All on {common}." if common else ""
    caption += " Dotted: the same method trained on clean labels." if dotted else ""
    if any(run.summary.get("oracle_rate") for run in runs):
        caption += f" {DAGGER} was told the true noise rate."
    best = []
    for ids, group in end.groupby(IDS[:3], sort=False):
        key = (str(ids[0]), str(ids[1]), str(ids[2]))
        if key in ceiling:
            continue
        top = group.sort_values("mean", kind="stable").iloc[-1]
        best.append(f"{names.title(key)}: {top['method_label']} {top['mean']:.1f} %")
    alt = f"{spec.get('title', title)}, {end['method'].nunique()} methods. Highest at the end: {'; '.join(best)}."
    text = f"{spec['caption']} {caption}" if spec.get("caption") else caption
    return Drawn(figure, table, spec.get("title") or title, text, alt)

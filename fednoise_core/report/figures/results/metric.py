"""Any number that methods report round by round: the accuracy they watch, how near their transition matrix is, …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fednoise_core.io import SpecError
from fednoise_core.report.figures.line_labels import End, name_ends, room
from fednoise_core.report.figures.results.common import labels_of, of_setting
from fednoise_core.report.figures.style import Drawn, Look, outer, panels, titles
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.text.cells import count_words

__all__ = ["metric"]


def metric(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """A metric of metrics.parquet or diagnostics.parquet over rounds, mean of the seeds, methods without it left out; a
    vertical line where a method's next phase begins.
    """
    name, labels = str(spec.get("metric") or "accuracy"), labels_of(runs)
    each = pd.concat([_values(run, name) for run in runs], ignore_index=True)
    if each.empty:
        raise SpecError(f"metric: none of the runs reports {name!r} by round; {_reported(runs)}")
    means = each.groupby([*frames.IDS, "method_label", "round"], sort=False)["value"].agg(n="size", mean="mean")
    table = means.reset_index().sort_values([*frames.IDS, "round"], kind="stable", key=_in_order(each))
    shown = [key for key in dict.fromkeys(run.listed.setting for run in runs) if len(of_setting(table, key))]
    here = [run for run in runs if run.listed.setting in shown]
    names = Names.of_runs(here)
    columns, height = room(spec, [[labels[m] for m in of_setting(table, key)["method"].unique()] for key in shown])
    figure, axes = panels(len(shown), spec, height, columns, sharex=True, sharey=True)
    ends, turns = [], []
    for axis, setting in zip(axes, shown, strict=True):
        found = []
        for method, line in of_setting(table, setting).groupby("method", sort=False):
            label, style = labels[str(method)], {**looks[str(method)].line(), "marker": ""}
            axis.plot(line["round"], line["mean"], label=label, **style)
            own = [run for run in here if run.listed.setting == setting and run.listed.method == method]
            turns += [f"{label}: {words}" for words in _turns(axis, own, style["color"])]
            y = float(line["mean"].iloc[-1])
            found.append(End(y, label, style, f"{y:.3g}"))
        ends.append(found)
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.set_xlim(0, 1.01 * float(table["round"].max()))
        axis.set_ylim(*(spec.get("y") or axis.get_ylim()))
    titles(axes, [names.title(setting) for setting in shown])
    words = name.replace("_", " ")
    outer(axes, "round", words)
    name_ends(axes, ends)
    said = "; ".join(dict.fromkeys(turns))
    caption = f"{words} by round, mean over seeds: {count_words(table['n'])}."
    caption += f" Vertical lines, in the methods' colours: {said}." if said else ""
    common = names.common(shown[0])
    caption += f" All on {common}." if common else ""
    last = table.groupby(frames.IDS, sort=False).tail(1)
    told = [f"{row['method_label']} {row['mean']:.3g}" for _, row in last.iterrows()]
    alt = f"lines by round. At the end: {'; '.join(told)}."
    return Drawn(figure, table, spec, f"{words} by round", caption, alt)


def _values(run: RecordedRun, name: str) -> pd.DataFrame:
    """A run's values by round: of all clients together, or the mean over those that report one."""
    found = []
    for frame in (run.metrics, run.diagnostics):
        rows = frame[frame["metric"] == name]
        if "view" in rows:
            rows = rows[rows["view"].isin(["", run.summary["headline_view"]])]
        rows = rows[rows["client"] == -1] if (rows["client"] == -1).any() else rows
        found.append(rows.groupby("round")["value"].mean().dropna().reset_index())
    values = found[0] if len(found[0]) else found[1]
    values = values if values["round"].nunique() > 1 else values.iloc[:0]
    ids = dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True))
    return values.assign(**ids, method_label=run.label)


def _in_order(each: pd.DataFrame) -> Any:
    """A sort key: ids in the order in which the runs came."""
    return lambda column: column if column.name == "round" else pd.Categorical(column, each[column.name].unique()).codes


def _turns(axis: Axes, runs: Sequence[RecordedRun], colour: str) -> list[str]:
    """Draw where the runs' next phases begin, means over seeds; in words."""
    found: dict[str, list[float]] = {}
    for run in runs:
        frame = run.metrics
        starts = frame[frame["round"] > 0].groupby("phase", sort=False)["round"].min().sort_values()
        for phase, first in list(starts.items())[1:]:
            found.setdefault(str(phase), []).append(float(first))
    words = []
    for phase, rounds in found.items():
        when = f"round {min(rounds):g}" if min(rounds) == max(rounds) else f"rounds {min(rounds):g} to {max(rounds):g}"
        axis.axvline(float(np.mean(rounds)), color=colour, linewidth=0.9, linestyle=(0, (1.2, 1.6)), zorder=1.5)
        words.append(f"{phase} from {when}")
    return words


def _reported(runs: Sequence[RecordedRun]) -> str:
    """What the runs do report, for an error."""
    found: dict[str, None] = {}
    for run in runs:
        for frame in (run.metrics, run.diagnostics):
            rounds = frame.groupby("metric")["round"].nunique()
            found |= dict.fromkeys(name for name in rounds[rounds > 1].index if not name.startswith("accuracy_class"))
    return f"they report {', '.join(sorted(found))}" if found else "they report none"

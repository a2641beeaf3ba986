"""When a method ended its first phase, by which accuracy, and how well it knew the noise by then (FedEFC, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.ticker import MaxNLocator

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.report import frames
from fednoise_core.report.names import Names
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import Drawn, Look, legend_below, panels, titles

__all__ = ["prestop"]

TEST, WATCHED, COSINE = "test accuracy", "watched accuracy", "cosine similarity"
STOP = "end of the first phase, T_e"
KEYS = [*frames.IDS, "method_label", "round", "metric"]


def prestop(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Two panels for each method and setting: test accuracy beside the one that the rule watches, in %, with a line at
    the end of each seed's first phase; and the cosine similarity of the estimated with the real transition matrix.

    Means over seeds. Raises SpecError if no run has a watched accuracy, ArtifactError for damaged diagnostics.
    """
    long = pd.concat([_long(run) for run in runs])
    if not (long["metric"] == WATCHED).any():
        raise SpecError("none of the runs watches an accuracy: choose methods with a prestop")
    table = long.groupby(KEYS, sort=False)["value"].agg(n="size", mean="mean").reset_index()
    shown = list(dict.fromkeys((run.listed.setting, run.listed.method) for run in runs))
    figure, axes = panels(2 * len(shown), spec, columns=2)
    names, heads, said = Names.of_runs(runs), [], []
    for number, (setting, method) in enumerate(shown):
        mine = [run for run in runs if (run.listed.setting, run.listed.method) == (setting, method)]
        rows = table[(table[frames.IDS] == [*setting, method]).all(axis=1)]
        stops = [stop for run in mine if (stop := _stop(run)) is not None]
        left, right = axes[2 * number : 2 * number + 2]
        colour = looks[method].line()["color"]
        _draw(left, rows, TEST, color=colour)
        _draw(left, rows, WATCHED, color="#222222", linestyle="--")
        _draw(right, rows, COSINE, color=colour, label="_")  # the axis says it
        for axis in (left, right):
            for place, stop in enumerate(stops):
                label = STOP if axis is left and place == 0 else "_"
                axis.axvline(stop, color="#6a6a6a", linewidth=1, linestyle=":", label=label)
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axis.set_xlabel("round")
        left.set_ylabel("accuracy, %")
        right.set_ylabel("cosine similarity")
        heads += [f"{mine[0].label} · {names.title(setting)}", "estimated and real transition matrix"]
        when = f"first phase until round {', '.join(map(str, stops))}" if stops else "the first phase never ended"
        said.append(f"{mine[0].label}, {names.title(setting)}: {when}")
    titles(axes, heads)
    legend_below(figure, axes)
    many = "; mean of the seeds" if table["n"].max() > 1 else "; one seed"
    caption = (
        "Accuracy on the test set and the accuracy that the rule watches, which is of the clients' own, noisy labels; "
        f"the dotted line is the last round of the first phase{many}. {'. '.join(said)}."
    )
    text = f"{spec['caption']} {caption}" if spec.get("caption") else caption
    title = spec.get("title") or "Prestop"
    return Drawn(figure, table, title, text, f"{title}. {'; '.join(said)}.")


def _draw(axis: Any, rows: pd.DataFrame, metric: str, **style: Any) -> None:
    line = rows[rows["metric"] == metric].sort_values("round")
    if len(line):
        dot = {"marker": "."} if len(line) == 1 else {}  # a line of one point is none
        axis.plot(line["round"], line["mean"], **{"label": metric, **style, **dot})


def _long(run: RecordedRun) -> pd.DataFrame:
    """A run's three curves, a row a round and curve."""
    frame = run.metrics
    tested = frame[
        (frame["metric"] == "accuracy") & (frame["view"] == run.summary["headline_view"]) & (frame["client"] == -1)
    ]
    watched = frame[frame["metric"] == "watched_accuracy"]
    path = run.listed.dir / "diagnostics.parquet"
    try:
        truth = pd.read_parquet(path)
        cosine = truth[truth["metric"] == "T_cosine"]
    except Exception as error:  # no such file, damaged parquet, a missing column: pyarrow and pandas have a type each
        raise ArtifactError(f"{path}: {type(error).__name__}: {error}") from error
    parts = [
        tested[["round", "value"]].assign(metric=TEST),
        watched.assign(value=100 * watched["value"], metric=WATCHED)[["round", "value", "metric"]],
        cosine[["round", "value"]].assign(metric=COSINE),
    ]
    ids = {**dict(zip(frames.IDS, (*run.listed.setting, run.listed.method), strict=True)), "method_label": run.label}
    return pd.concat(parts, ignore_index=True).assign(**ids)


def _stop(run: RecordedRun) -> int | None:
    """The last round of the first phase; None if there was no second one."""
    phases = run.summary.get("phases") or []
    return int(phases[0]["last"]) if len(phases) > 1 else None

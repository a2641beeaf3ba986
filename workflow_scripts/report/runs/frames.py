"""Checked runs -> tidy frames. Fractions in the files (0..1) become percent in every frame made here."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.run import METRICS, ListedRun, RecordedRun, Setting
from workflow_scripts.report.text.footnotes import marks_of

IDS = ["dataset", "noise", "partition", "method"]
"""Columns that name a method in a setting: runs that differ in their seed alone share them."""

RUN = [*IDS, "seed"]
"""Columns that name a run."""

LAST = 10  # evaluations in `last10_mean`


def tabulate_results(runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """Make one row per run: ids, facts about the method, accuracies of its headline view in %, sizes and traffic.

    `as_told`: the method's own rate is that of the setting by chance. An oracle has a mark instead.

    A diverged run has `diverged` True and NaN for every accuracy, even for those from before, because a mean with them
    would belong to no final model.

    Args:
        runs: The checked runs.
    """
    rows = []
    for run in runs:
        summary, scores, lost = run.summary, run.summary["accuracy"], run.diverged
        rows.append(
            {
                **_run_ids(run.listed),
                "method_label": run.label,
                "marks": marks_of(summary),
                "view": summary["headline_view"],
                "as_told": bool(summary.get("as_told")),
                "clean_known": bool(summary.get("clean_known", True)),
                "noiseless": is_noiseless(run.spec.get("noise", {})),
                "diverged": lost,
                "at_chance": bool(summary.get("at_chance")),
                "dropped_updates": int(summary.get("dropped_updates") or 0),
                **{
                    key: math.nan if lost or scores.get(key) is None else 100 * float(scores[key])
                    for key in (*METRICS, "round0")
                },
                **{key: summary.get(key) for key in ("rounds", "work", "bytes_up", "bytes_down", "epsilon")},
                **{key: summary.get(key) for key in ("clients", "samples", "classes")},
            }
        )
    return pd.DataFrame(rows)


def load_metric(runs: Sequence[RecordedRun], metric: str = "accuracy", client: int | None = -1) -> pd.DataFrame:
    """Load a metric of runs as a long frame: ids, label, round, work, phase, client, value.

    Args:
        runs: The checked runs.
        metric: A metric's name, or a prefix followed by `*` for several.
        client: Client number. -1: the values of all clients together. None: all values.
    """
    parts = []
    for run in runs:
        frame = run.metrics
        keep = frame["metric"].str.startswith(metric[:-1]) if metric.endswith("*") else frame["metric"] == metric
        keep &= frame["view"] == run.summary["headline_view"]
        if client is not None:
            keep &= frame["client"] == client
        parts.append(frame[keep].assign(**_run_ids(run.listed), method_label=run.label))
    return pd.concat(parts, ignore_index=True)


def count_diverged(results: pd.DataFrame) -> dict[tuple[str, ...], tuple[int, int]]:
    """Count the diverged runs of each method in a setting, for methods with any.

    Args:
        results: A frame of `tabulate_results`.

    Returns:
        (diverged runs, all runs) by `IDS`.
    """
    counts = results.groupby(IDS, sort=False)["diverged"].agg(["sum", "size"])
    return {ids: (int(lost), int(n)) for ids, lost, n in counts.itertuples(name=None) if lost}


def _cut_at_divergence(frame: pd.DataFrame, of: Sequence[str]) -> pd.DataFrame:
    """Make `value` NaN from the first round on in which any run of the same method and setting is not finite.

    After this round a mean would be over fewer runs than before. With `of` RUN each run is cut separately.
    """
    lost = frame["round"].where(frame["value"].isna())
    stop = lost.groupby([frame[key] for key in of]).transform("min")
    return frame.assign(value=frame["value"].where(~(frame["round"] >= stop)))


def _trailing_mean(run: pd.DataFrame) -> pd.Series:
    """Compute the mean of the last `window` evaluations at each evaluation of a run.

    With a window of LAST the last value is the table's mean. Round 0, before training, enters no mean but its own.
    """
    value, trained = run["value"], run["round"] > 0
    mean = value.where(trained).rolling(int(run["window"].iloc[0]), min_periods=1).mean()
    return mean.where(trained, value).where(value.notna())


def by_round(runs: Sequence[RecordedRun], window: int | None = LAST, of: Sequence[str] = IDS) -> pd.DataFrame:
    """Make one row per run and evaluation: `value` in % until a seed diverges, and its `trailing` mean.

    Args:
        runs: The checked runs.
        window: Evaluations in the trailing mean. None: LAST, or a quarter of the run's evaluations if this is less, so
            that the mean does not cover most of a short run.
        of: Columns of the groups of seeds that are cut at the same round. RUN: each seed separately.

    Returns:
        The frame, with the window as a column.
    """
    frame = _cut_at_divergence(load_metric(runs), of)
    frame = frame.sort_values("round", kind="stable")
    count = (frame["round"] > 0).groupby([frame[key] for key in RUN]).transform("sum")
    frame["window"] = (count // 4).clip(1, LAST) if window is None else window
    return frame.assign(trailing=pd.concat([_trailing_mean(run) for _, run in frame.groupby(RUN, sort=False)]))


def diverged_words(runs: Sequence[RecordedRun]) -> list[str]:
    """Return one text per method with diverged runs, such as "FedAvg in 2 of 6 runs"."""
    frame = pd.DataFrame({"method_label": [run.label for run in runs]})
    return counted_words(frame, pd.Series([run.diverged for run in runs]))


def counted_words(frame: pd.DataFrame, which: pd.Series) -> list[str]:
    """Return one text per method with rows in `which`, such as "FedAvg in 2 of 6 runs"."""
    counts = which.groupby(frame["method_label"], sort=False).agg(["sum", "size"])
    return [f"{label} in {n} of {size} runs" for label, n, size in counts.itertuples(name=None) if n]


def _run_ids(listed: ListedRun) -> dict[str, Any]:
    return {key: getattr(listed, key) for key in RUN}


def describe_cell(ids: Sequence[Any], group: pd.DataFrame, names: Names) -> dict[str, Any]:
    """Return the ids and labels of a setting and a method.

    Args:
        ids: Ids of data set, noise, partition and method.
        group: The rows of the cell's runs.
        names: The words of the settings.
    """
    labels = ("dataset_label", "noise_label", "partition_label")
    return {
        **dict(zip(IDS[:3], ids, strict=False)),
        **dict(zip(labels, names.of(Setting(*ids[:3])), strict=True)),
        "method": ids[3],
        "method_label": group["method_label"].iloc[0],
    }


def summarize_values(group: pd.DataFrame, keys: Sequence[str]) -> dict[str, float]:
    """`<key>_mean` and `<key>_std` (sample standard deviation, NaN for one value) of the known values.

    Args:
        group: Rows of one cell.
        keys: Columns.
    """
    cells: dict[str, float] = {}
    for key in keys:
        values = group[key].astype(float)
        cells |= {f"{key}_mean": float(values.mean()), f"{key}_std": float(values.std())}
    return cells


def summarize_finite(group: pd.DataFrame, keys: Sequence[str]) -> dict[str, float]:
    """Summarize values as `summarize_values` does, but with NaN for everything if a run of the group diverged.

    Args:
        group: Rows of one cell, with the column `diverged`.
        keys: Columns.
    """
    cells = summarize_values(group, keys)
    return dict.fromkeys(cells, math.nan) if group["diverged"].any() else cells

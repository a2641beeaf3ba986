"""Table kinds: runs -> a long frame, one row a cell, that is written as CSV.

The shown tables are made from the CSV (`layout.py`), never beside it, so the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fednoise_core.io import SpecError
from fednoise_core.report import agreement, frames, tuned
from fednoise_core.report.marks import marks_of, together
from fednoise_core.report.names import Names
from fednoise_core.report.provenance import mixed_versions
from fednoise_core.report.rates import noiseless
from fednoise_core.report.reproduction import reproduction
from fednoise_core.report.runs import METRICS, ListedRun, RecordedRun, Setting, load, select
from fednoise_core.report.setup import setup

__all__ = ["DIAGNOSTICS", "TABLES", "build", "runs_of"]

DIAGNOSTICS = (
    "noise_rate",
    "target_noise_rate",
    "suspects_precision",
    "suspects_recall",
    "noisy_client_auroc",
    "prior_error",
    "T_error",
    "T_cosine",
)


def build(found: Sequence[ListedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """The frame of one table. `spec` as in config/schema/table.yaml; `found` are all runs of the study."""
    kind = spec.get("kind")
    if kind not in TABLES:
        raise SpecError(f"table kind {kind!r} is not one of {', '.join(TABLES)}")
    runs = load(runs_of(found, spec))
    if not runs and kind not in OF_PAPERS:
        raise SpecError("the table names no run")
    table = TABLES[kind](runs, spec)
    if unknown := agreement.datasets(runs):
        table["test_known"] = (~table["dataset"].isin(unknown)).astype(int)
    for words in mixed_versions(runs):
        table["versions"] = words
    nothing = [name for name in ("as_told", "diverged", "dropped_updates") if name in table and not table[name].any()]
    return table.drop(columns=nothing)


def runs_of(found: Iterable[ListedRun], spec: Mapping[str, Any]) -> list[ListedRun]:
    """The runs that a table shows. A table of a paper stands also where there are none: its cells say "not run"."""
    return [] if spec.get("kind") == "setup" else select(found, spec, none=spec.get("kind") in OF_PAPERS)


def accuracy(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """Methods × settings: mean and sample standard deviation over seeds of best, last, last10_mean and round 0, in %.

    `gain_*` is the headline metric less round 0; `beats_round0` counts the seeds above their own round 0.
    `ceiling` marks runs on clean labels, unless the table has nothing else. Where `diverged` of the `seeds` runs
    diverged there is no mean, not even of the others: it would be one of the seeds that went well.
    `as_told` marks a method whose own rate is the setting's noise rate: it is not compared there.
    With `tuned` a method's variants are one row, and `variant` says which it shows.
    """
    frame = frames.results(runs, spec.get("view", "headline"))
    frame = tuned.chosen(frame, runs) if spec.get("tuned") else frame
    metric = spec.get("metric", "best")
    names, clean = Names.of_runs(runs), {run.listed.noise for run in runs if noiseless(run.spec.get("noise", {}))}
    clean = clean if clean != {run.listed.noise for run in runs} else set()
    frame["gain"] = frame[metric] - frame["round0"]
    rows = []
    for ids, group in frame.groupby(["dataset", "noise", "partition", "method"], sort=False):
        rows.append(
            {
                **_head(ids, group, names),
                "marks": together(group["marks"]),
                "ceiling": int(ids[1] in clean),
                "as_told": int(group["as_told"].any()),
                "view": group["view"].iloc[0],
                **(tuned.words(group) if spec.get("tuned") else {}),
                "metric": metric,
                "seeds": len(group),
                **_finite_spread(group, (*METRICS, "round0", "gain")),
                "beats_round0": int((group["gain"] > 0).sum()),
                "epsilon": group["epsilon"].iloc[0],
                "diverged": int(group["diverged"].sum()),
                "dropped_updates": int(group["dropped_updates"].sum()),
            }
        )
    return pd.DataFrame(rows)


def cost(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """What a run of each method costs, mean and standard deviation over settings and seeds."""
    rows, names = [], Names.of_runs(runs)
    for run in runs:
        rows.append(
            {
                "dataset": run.listed.dataset,
                "method": run.listed.method,
                "method_label": run.label,
                "marks": marks_of(run.summary),
                "device": str(run.cost.get("device", "")),
                "rounds": run.summary["rounds"],
                "work": run.summary.get("work"),
                "up_mb": _mega(run.summary.get("bytes_up")),
                "down_mb": _mega(run.summary.get("bytes_down")),
                "parameters": run.summary.get("parameters"),
                "seconds": run.cost["seconds"],
                "cpu_seconds": run.cost.get("cpu_seconds"),
                "seconds_per_round": run.cost.get("seconds_per_round"),
                "peak_memory_mb": run.cost.get("peak_memory_mb"),
                "epsilon": _epsilon(run),
                "diverged": run.diverged,
            }
        )
    numbers = ("rounds", "work", "up_mb", "down_mb", "seconds", "cpu_seconds", "seconds_per_round", "peak_memory_mb")
    frame = pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))
    parts = []
    for (dataset, method), group in frame.groupby(["dataset", "method"], sort=False):
        parts.append(
            {
                "dataset": dataset,
                "dataset_label": names.parts[0][str(dataset)],
                "method": method,
                "method_label": group["method_label"].iloc[0],
                "marks": together(group["marks"]),
                "runs": len(group),
                "device": ", ".join(sorted(set(group["device"]))),
                "parameters": _sizes(group["parameters"]),
                **_spread(group, numbers),
                "epsilon": group["epsilon"].max(),
                "diverged": int(group["diverged"].sum()),
            }
        )
    return pd.DataFrame(parts)


def diagnosis(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """What the clean labels say about a method's verdicts, at the end of a run; `clean_known` 0: there are none."""
    rows, names = [], Names.of_runs(runs)
    for run in runs:
        values = run.summary.get("diagnostics") or {}
        rows.append(
            {
                **_key(run),
                "marks": marks_of(run.summary),
                "clean_known": run.summary.get("clean_known", True),
                "epsilon": _epsilon(run),
                "diverged": run.diverged,
                **{key: math.nan if values.get(key) is None else float(values[key]) for key in DIAGNOSTICS},
            }
        )
    parts = []
    for ids, group in pd.DataFrame(rows).groupby(["dataset", "noise", "partition", "method"], sort=False):
        parts.append(
            {
                **_head(ids, group, names),
                "marks": together(group["marks"]),
                "clean_known": int(group["clean_known"].all()),
                "seeds": len(group),
                **_spread(group, DIAGNOSTICS[:1]),  # of the given labels: training has no part in it
                **_finite_spread(group, DIAGNOSTICS[1:]),
                **{f"{key}_n": int(group[key].notna().sum()) for key in DIAGNOSTICS[1:]},
                "epsilon": group["epsilon"].max(),
                "diverged": int(group["diverged"].sum()),
            }
        )
    return pd.DataFrame(parts)


TABLES: dict[str, Callable[[Sequence[RecordedRun], Mapping[str, Any]], pd.DataFrame]] = {
    "accuracy": accuracy,
    "cost": cost,
    "diagnostics": diagnosis,
    "reproduction": reproduction,
    "setup": setup,
}
OF_PAPERS = ("reproduction", "setup")  # have cells of a paper, also where nothing was run


def _key(run: RecordedRun) -> dict[str, Any]:
    dataset, noise, partition = run.listed.setting
    return {
        "dataset": dataset,
        "noise": noise,
        "partition": partition,
        "method": run.listed.method,
        "method_label": run.label,
    }


def _head(ids: Sequence[Any], group: pd.DataFrame, names: Names) -> dict[str, Any]:
    words = names.of(Setting(*ids[:3]))
    return {
        "dataset": ids[0],
        "noise": ids[1],
        "partition": ids[2],
        **dict(zip(("dataset_label", "noise_label", "partition_label"), words, strict=True)),
        "method": ids[3],
        "method_label": group["method_label"].iloc[0],
    }


def _spread(group: pd.DataFrame, keys: Sequence[str]) -> dict[str, float]:
    """`<key>_mean` and `<key>_std` (sample standard deviation, NaN for one value) of the known values."""
    cells: dict[str, float] = {}
    for key in keys:
        values = group[key].astype(float).dropna()
        cells[f"{key}_mean"] = float(values.mean()) if len(values) else math.nan
        cells[f"{key}_std"] = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return cells


def _finite_spread(group: pd.DataFrame, keys: Sequence[str]) -> dict[str, float]:
    """The same, but NaN for everything where a run of the group diverged."""
    cells = _spread(group, keys)
    return dict.fromkeys(cells, math.nan) if group["diverged"].any() else cells


def _epsilon(run: RecordedRun) -> float:
    value = run.summary.get("epsilon")
    return math.nan if value is None else float(value)


def _sizes(values: pd.Series) -> str:
    """The sizes of the networks used, smallest first: "9930" or, where clients differ, "4200 / 9930"."""
    found = {int(size) for value in values.dropna() for size in (value if isinstance(value, list) else [value])}
    return " / ".join(map(str, sorted(found)))


def _mega(value: float | None) -> float:
    return math.nan if value is None else value / 1e6

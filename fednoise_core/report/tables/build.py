"""Table kinds: runs -> a long frame, one row a cell, that is written as CSV.

The shown tables are made from the CSV (`layout.py`), never beside it, so the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fednoise_core.io import SpecError
from fednoise_core.report.runs import agreement, frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.noise_rate import noiseless
from fednoise_core.report.runs.provenance import mixed_versions
from fednoise_core.report.runs.run import METRICS, ListedRun, RecordedRun, Setting, load, select
from fednoise_core.report.tables.paper_setup import setup
from fednoise_core.report.tables.reproduction import reproduction
from fednoise_core.report.text.footnotes import together

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
    """
    frame = frames.results(runs, spec.get("view", "headline"))
    metric = spec.get("metric", "best")
    names, clean = Names.of_runs(runs), {run.listed.noise for run in runs if noiseless(run.spec.get("noise", {}))}
    clean = clean if clean != {run.listed.noise for run in runs} else set()
    frame["gain"] = frame[metric] - frame["round0"]
    rows = []
    for ids, group in frame.groupby(frames.IDS, sort=False):
        rows.append(
            {
                **_head(ids, group, names),
                "marks": together(group["marks"]),
                "ceiling": int(ids[1] in clean),
                "as_told": int(group["as_told"].any()),
                "view": group["view"].iloc[0],
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
    frame, names = frames.results(runs), Names.of_runs(runs)
    frame = frame.assign(up_mb=frame["bytes_up"] / 1e6, down_mb=frame["bytes_down"] / 1e6)
    for key in ("device", "seconds", "cpu_seconds", "seconds_per_round", "peak_memory_mb"):
        frame[key] = [run.cost.get(key) for run in runs]
    numbers = ("rounds", "work", "up_mb", "down_mb", "seconds", "cpu_seconds", "seconds_per_round", "peak_memory_mb")
    frame["parameters"] = [run.summary.get("parameters") or [] for run in runs]
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
                "parameters": " / ".join(map(str, sorted({size for sizes in group["parameters"] for size in sizes}))),
                **_spread(group, numbers),
                "epsilon": group["epsilon"].max(),
                "diverged": int(group["diverged"].sum()),
            }
        )
    return pd.DataFrame(parts)


def diagnosis(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """What the clean labels say about a method's verdicts, at the end of a run; `clean_known` 0: there are none."""
    frame, names = frames.results(runs), Names.of_runs(runs)
    for key in DIAGNOSTICS:
        frame[key] = pd.Series([run.summary.get("diagnostics", {}).get(key) for run in runs], dtype=float)
    parts = []
    for ids, group in frame.groupby(frames.IDS, sort=False):
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


def _head(ids: Sequence[Any], group: pd.DataFrame, names: Names) -> dict[str, Any]:
    labels = ("dataset_label", "noise_label", "partition_label")
    return {
        **dict(zip(frames.IDS[:3], ids, strict=False)),
        **dict(zip(labels, names.of(Setting(*ids[:3])), strict=True)),
        "method": ids[3],
        "method_label": group["method_label"].iloc[0],
    }


def _spread(group: pd.DataFrame, keys: Sequence[str]) -> dict[str, float]:
    """`<key>_mean` and `<key>_std` (sample standard deviation, NaN for one value) of the known values."""
    cells: dict[str, float] = {}
    for key in keys:
        values = group[key].astype(float)
        cells |= {f"{key}_mean": float(values.mean()), f"{key}_std": float(values.std())}
    return cells


def _finite_spread(group: pd.DataFrame, keys: Sequence[str]) -> dict[str, float]:
    """The same, but NaN for everything where a run of the group diverged."""
    cells = _spread(group, keys)
    return dict.fromkeys(cells, math.nan) if group["diverged"].any() else cells

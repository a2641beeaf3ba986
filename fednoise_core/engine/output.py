"""The files of a finished run (docs/results_files.md).

Except for cost.json, the files depend only on settings, code and inputs, not on the time or the machine.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fednoise_core.data.arrays import Arrays
from fednoise_core.engine import models
from fednoise_core.engine.loop import Outcome
from fednoise_core.engine.record import Record
from fednoise_core.io import open_atomic, write_json
from fednoise_core.label_errors.files import write_confusion, write_sites, write_suspects


def make_summary(outcome: Outcome, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise the run: headline numbers by view, phases, traffic, privacy, last diagnostics.

    Args:
        outcome: The finished run.
        facts: Run ids and the like, which come first in the summary.

    Returns:
        The content of summary.json. A number that is not finite becomes None.
    """
    record, fed, state = outcome.record, outcome.fed, outcome.state
    views = {view: _summarise_headline(record.curve(view)) for view in outcome.views}
    headline = next(iter(outcome.views))
    dropped = sum(int(v) for *_, metric, v in record.metrics if metric == "dropped_updates")
    valid = [_to_number(v) for *_, metric, v in record.metrics if metric == "valid_accuracy"]
    diverged = any(math.isnan(value) for _, value in record.curve(headline))
    chance = outcome.confusion is not None and _is_at_chance(
        views[headline]["last"], outcome.confusion, len(outcome.views[headline])
    )
    last = {metric: value for _, client, metric, value in record.diagnostics if client == -1}
    notes = {k: v for k, v in state.notes.items() if k != "release"}
    return {
        **facts,
        "rounds": state.round,
        "phases": record.phases(),
        "work": record.work,
        "headline_view": headline,
        "views": views,
        "accuracy": views[headline],
        **({"valid_accuracy": valid[-1]} if valid else {}),
        **({"diverged": True} if diverged else {}),
        **({"at_chance": True} if chance else {}),
        **({"dropped_updates": dropped} if dropped else {}),
        "bytes_up": fed.bytes_up,
        "bytes_down": fed.bytes_down,
        **_summarise_privacy(state.notes.get("release")),
        "parameters": sorted({fed.net(c).parameters for c in fed.all}),
        "clients": fed.n,
        "samples": sum(fed.sizes),
        "classes": fed.classes,
        "diagnostics": {k: _to_number(v) for k, v in sorted(last.items())},
        "notes": _to_plain(notes),
    }


def _summarise_privacy(release: Mapping[str, Any] | None) -> dict[str, Any]:
    """Report epsilon, the privacy cost of the label of one sample. It is None without a release.

    The cost is the sum over all releases and over all clients that hold the sample.
    """
    if release is None:
        return {"epsilon": None}
    times = release["copies"] * release["releases"]
    several = {"epsilon_a_release": release["epsilon"], "releases_of_a_label": times} if times > 1 else {}
    return {"epsilon": release["epsilon"] * times, **several}


def _summarise_headline(curve: list[tuple[int, float]]) -> dict[str, float | None]:
    """Report the headline numbers of a curve.

    These are the best value and its round, the last value, the mean of the last ten evaluations, and the value before
    training. A number that is not finite becomes None, and so does a mean that includes one.
    """
    after = [(r, v) for r, v in curve if r > 0] or curve
    best = max((point for point in after if not math.isnan(point[1])), key=lambda point: point[1], default=(None, None))
    tail = [v for _, v in after[-10:]]
    return {
        "best": best[1],
        "best_round": best[0],
        "last": _to_number(after[-1][1]),
        "last10_mean": _to_number(sum(tail) / len(tail)),
        "round0": _to_number(curve[0][1]),
    }


def _is_at_chance(accuracy: float | None, confusion: Tensor, members: int) -> bool:
    """Return True if an accuracy is at most two standard errors above that of always predicting the largest class.

    members: Number of models that predicted the same images. `confusion` is the sum over them.
    """
    counts = confusion.sum(1).tolist()
    share, n = max(counts) / max(sum(counts), 1), max(sum(counts) / max(members, 1), 1)
    return accuracy is not None and accuracy <= share + 2 * math.sqrt(share * (1 - share) / n)


def _to_number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None  # JSON has neither NaN nor infinity


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(v) for v in value]
    return _to_number(value) if isinstance(value, float) else value


def write_results(
    out: Path,
    outcome: Outcome,
    summary: Mapping[str, Any],
    spec: Mapping[str, Any],
    cost: Mapping[str, Any],
    arrays: Arrays,
    labels: np.ndarray,
    sites: Sequence[str],
) -> None:
    """Write all files of a run into `out`, each whole or not at all.

    Args:
        out: The folder. summary.json is written last, and marks the run as finished.
        outcome: The finished run.
        summary: The summary.
        spec: The run's settings, for spec.json.
        cost: Time and memory, for cost.json.
        arrays: The data set, for class names and sources of samples.
        labels: Given labels [n].
        sites: The user's name of each client.
    """
    record = outcome.record
    write_metrics(out / "metrics.parquet", record)
    _write_parquet(out / "diagnostics.parquet", ("round", "client", "metric", "value"), record.diagnostics)
    write_suspects(out / "suspects.csv", outcome.suspects, arrays, labels, sites)
    write_sites(out / "sites.csv", outcome.suspects, sites)
    write_confusion(out / "confusion.csv", outcome.confusion, arrays)
    models.write_models(out / "model.safetensors", outcome, models.describe_data(arrays))
    write_json(out / "spec.json", spec)
    write_json(out / "cost.json", cost)
    write_json(out / "summary.json", summary)  # last, because it marks the run as finished


def write_metrics(path: Path, record: Record) -> None:
    """Write metrics.parquet, whole or not at all."""
    _write_parquet(path, ("round", "work", "phase", "view", "client", "metric", "value"), record.metrics)


def _write_parquet(path: Path, columns: tuple[str, ...], rows: list[Any]) -> None:
    import pyarrow as pa  # imported here, because it is needed only at the end of a run
    import pyarrow.parquet as pq

    types = {"round": pa.int32(), "client": pa.int32(), "work": pa.float64(), "value": pa.float64()}
    schema = pa.schema([(c, types.get(c, pa.string())) for c in columns])
    data = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    with open_atomic(path, "wb") as file:
        pq.write_table(pa.table([pa.array(d, t) for d, t in zip(data, schema.types, strict=True)], schema=schema), file)

"""Details of one run on a page: facts, settings, files, confusion matrix, clients."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednoise_core.label_errors.csv_rows import Site, read_rows
from workflow_scripts.report.runs.confusion import read_confusion
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.runs.settings import artifacts_of
from workflow_scripts.report.text.cells import MISSING
from workflow_scripts.report.text.escape import one_line

CLASSES, CLIENTS = 40, 500  # a larger matrix, or more clients, cannot be read in a page: it names their file instead


def scores_of(run: RecordedRun) -> list[tuple[str, str]]:
    """The run's accuracies: (name, value in words)."""
    scores, lost = run.summary["accuracy"], "diverged" if run.diverged else ""
    chance = ", at chance" if run.summary.get("at_chance") else ""
    return [
        ("last ten evaluations", lost or _format_percent(scores["last10_mean"])),
        ("last round", lost or _format_percent(scores["last"]) + chance),
        ("best round", lost or _format_percent(scores["best"])),
        ("before training", _format_percent(scores["round0"])),
    ]


def facts_of(run: RecordedRun, commit: str) -> list[tuple[str, str]]:
    """List the cost of a run and its origin.

    Args:
        run: The run.
        commit: Of the software that makes the page.

    Returns:
        (name, value in words) of each fact.
    """
    summary, cost = run.summary, run.cost
    traffic = [summary.get(key) for key in ("bytes_up", "bytes_down")]
    facts = [
        ("rounds", f"{summary['rounds']:,}"),
        ("work", f"{summary['work']:,.1f} rounds of FedAvg" if summary.get("work") is not None else ""),
        ("sent up, down", " / ".join(f"{value / 1e6:,.2f}\xa0MB" for value in traffic if value is not None)),
        ("time", f"{cost['seconds']:,.1f} s on {cost.get('device', 'unknown')}"),
        ("label-DP", f"ε = {summary['epsilon']:.3g}" if summary.get("epsilon") is not None else ""),
        ("models measured", str(summary["headline_view"])),
        ("code hash", str(run.record.get("code", "unknown"))),
        ("settings digest", str(summary["spec_digest"])),
        ("commit of this page", commit),
    ]
    return [(name, value) for name, value in facts if value]


def rows_of(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as (key, value)."""
    return [
        (str(key), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in spec.items()
    ]


def files_of(folder: Path) -> list[tuple[str, str]]:
    """The files of a run: (name, size)."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return [(path.name, _format_size(path.stat().st_size)) for path in files]


def confusion_of(run: RecordedRun) -> dict[str, Any]:
    """The confusion matrix of a run, or why a page has none.

    Returns:
        `names` of the classes and `confusion`, counts [true class][predicted class]; or `no_confusion`, the reason.
    """
    path, classes = run.listed.dir / "confusion.csv", int(run.summary["classes"])
    if not path.exists():
        return {"no_confusion": "Not recorded for this run: its folder has no confusion.csv."}
    if classes > CLASSES:
        return {"no_confusion": f"{classes:,} classes are too many for a page: see confusion.csv in the run’s folder."}
    matrix = read_confusion(path)
    if matrix.counts is None:
        return {"no_confusion": "None: the final models’ outputs are no finite numbers."}
    return {"confusion": matrix.counts.tolist(), "names": [one_line(name) for name in matrix.names]}


def clients_of(run: RecordedRun) -> dict[str, Any]:
    """List what the method says of each client's labels, or why a page does not show it.

    Returns:
        `clients`: client, judged samples, estimated share of wrong labels with both ends of its interval, samples with
        verdict "wrong"; or `no_clients`, the reason.
    """
    path = run.listed.dir / "sites.csv"
    if not path.exists():
        return {"no_clients": "Not recorded for this run: its folder has no sites.csv."}
    sites = read_rows(path, Site)
    if len(sites) > CLIENTS:
        return {"no_clients": f"{len(sites):,} clients are too many for a page: see sites.csv in the run’s folder."}
    if not sites:
        why = "No client’s labels could be judged: the models know too little of them, or give no finite numbers."
        return {"no_clients": why}
    return {"clients": [_client_row(site) for site in sites]}


def noise_of(run: RecordedRun) -> list[float | None]:
    """The share of wrong labels that each client has; None for a client without samples. Empty where nobody knows."""
    listed = run.listed
    if not (listed.labels and listed.partition_file):
        return []
    rates = artifacts_of([listed])[0].client_rate
    return [] if rates is None else [None if math.isnan(rate) else round(float(rate), 4) for rate in rates]


def _client_row(site: Site) -> tuple[int, int, float, float, float, int]:
    counts = (site.wrong, site.wrong_low, site.wrong_high)
    wrong, low, high = (round(count / site.samples, 4) if site.samples else 0.0 for count in counts)
    return site.client, site.samples, wrong, low, high, site.verdict_wrong


def _format_percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.2f}\xa0%"


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3)):,} kB"

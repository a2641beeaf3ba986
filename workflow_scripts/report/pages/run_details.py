"""Runs on a study's page: a table of all, and for each one facts, settings, files, confusion matrix and clients."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.io import ArtifactError, read_texts
from fednoise_core.label_errors.csv_rows import Site, read_rows
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.runs.settings import artifacts_of
from workflow_scripts.report.text.cells import MISSING, PARTS, format_number
from workflow_scripts.report.text.escape import one_line
from workflow_scripts.report.text.footnotes import append_marks

CLASSES, CLIENTS = 40, 500  # for more classes or clients the page only names the file
SHORT = {"last10_mean": "last ten", "last": "last", "best": "best"}
HEADS = {"dataset": "data set", "noise": "noise", "partition": "partition"}


def read_confusion(path: Path) -> tuple[list[str], np.ndarray | None]:
    """Read a confusion.csv, the predictions of the final models of a run for the test images of each class.

    Args:
        path: The path of the file.

    Returns:
        Names of the K classes, and counts int64 [K, K] of test images of class i predicted as class j. The counts are
        None if outputs of the models are not finite.

    Raises:
        ArtifactError: The file is missing or damaged. The message names it.
    """
    rows = read_texts(path)
    try:
        counts = rows.iloc[:, 2:].to_numpy(np.int64)
    except ValueError as error:
        raise ArtifactError(f"{path}: damaged ({error})") from error
    k = counts.shape[1]
    if len(rows) not in (0, k):
        raise ArtifactError(f"{path}: damaged: {len(rows)} rows of {k} classes")
    return list(rows["name"]) or [str(c) for c in range(k)], counts if len(rows) else None


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
        commit: The commit of the software that makes the page.

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
    """Return the confusion matrix of a run, or the reason why a page has none.

    Returns:
        `names` of the classes and `confusion`, counts [true class][predicted class]; or `no_confusion`, the reason.
    """
    path, classes = run.listed.dir / "confusion.csv", int(run.summary["classes"])
    if not path.exists():
        return {"no_confusion": "Not recorded for this run: its folder has no confusion.csv."}
    if classes > CLASSES:
        return {"no_confusion": f"{classes:,} classes are too many for a page: see confusion.csv in the run’s folder."}
    names, counts = read_confusion(path)
    if counts is None:
        return {"no_confusion": "None: the final models’ outputs are no finite numbers."}
    return {"confusion": counts.tolist(), "names": [one_line(name) for name in names]}


def clients_of(run: RecordedRun) -> dict[str, Any]:
    """List the method's verdicts on each client's labels, or the reason why a page does not show them.

    Returns:
        `clients`: client, samples with a verdict, estimated share of wrong labels with both ends of its interval,
        samples with verdict "wrong"; or `no_clients`, the reason.
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
    """Return each client's share of wrong labels, None for a client without samples. Empty if it is unknown."""
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


def _varying_parts(runs: Sequence[RecordedRun]) -> list[int]:
    """List the parts of a setting (0 data set, 1 noise, 2 partition) that differ between runs."""
    return [place for place in range(3) if len({run.listed.setting[place] for run in runs}) > 1]


def run_columns(runs: Sequence[RecordedRun]) -> list[tuple[str, bool]]:
    """Return the heads of the table of all runs.

    Args:
        runs: The runs of the study.

    Returns:
        (head, whether rows can be filtered by its values) of each column.
    """
    parts = [(HEADS[PARTS[place]], True) for place in _varying_parts(runs)]
    measures = [*SHORT.values(), "MB sent", "seconds"]
    return [("method", True), *parts, ("seed", True), *((head, False) for head in measures)]


def run_rows(runs: Sequence[RecordedRun], names: Names) -> list[dict[str, Any]]:
    """The rows of the table of all runs.

    Args:
        runs: Those of the study.
        names: The words of their settings.

    Returns:
        `link`, its text (the method), and `cells` of (text, number to sort by or None for text).
    """
    table, rows = frames.tabulate_results(runs), []
    for run, (_, row) in zip(runs, table.iterrows(), strict=True):
        parts = names.of(run.listed.setting)
        sent = sum(run.summary.get(key) or 0 for key in ("bytes_up", "bytes_down"))
        rows.append(
            {
                "link": append_marks(run.label, row["marks"]),
                "cells": [
                    *((parts[place], None) for place in _varying_parts(runs)),
                    (str(run.listed.seed), run.listed.seed),
                    *(_accuracy_cell(run, float(row[key])) for key in SHORT),
                    (format_number(sent / 1e6, 1), round(sent / 1e6, 3)),
                    (format_number(float(run.cost["seconds"]), 1), run.cost["seconds"]),
                ],
            }
        )
    return rows


def _accuracy_cell(run: RecordedRun, value: float) -> tuple[str, float | str]:
    if math.isnan(value):
        return ("diverged" if run.diverged else MISSING, "")
    return format_number(value, 2), round(value, 4)

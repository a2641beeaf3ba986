"""The table of all runs on a study's page: a row a run, in which a reader sorts and filters."""

import math
from collections.abc import Sequence
from typing import Any

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import MISSING, PARTS, format_number
from workflow_scripts.report.text.footnotes import append_marks

SHORT = {"last10_mean": "last ten", "last": "last", "best": "best"}
HEADS = {"dataset": "data set", "noise": "noise", "partition": "partition"}


def _varying_parts(runs: Sequence[RecordedRun]) -> list[int]:
    """Which parts of a setting (0 data set, 1 noise, 2 partition) differ between runs."""
    return [place for place in range(3) if len({run.listed.setting[place] for run in runs}) > 1]


def run_columns(runs: Sequence[RecordedRun], metric: str) -> list[tuple[str, bool]]:
    """The heads of the table of all runs.

    Args:
        runs: Those of the study.
        metric: The accuracy that comes first.

    Returns:
        (head, whether one picks from its values) of each column.
    """
    accuracies = [SHORT[key] for key in (metric, *_other_metrics(metric))]
    parts = [(HEADS[PARTS[place]], True) for place in _varying_parts(runs)]
    measures = [*accuracies, "MB sent", "seconds"]
    return [("method", True), *parts, ("seed", True), *((head, False) for head in measures)]


def run_rows(runs: Sequence[RecordedRun], names: Names, metric: str) -> list[dict[str, Any]]:
    """The rows of the table of all runs.

    Args:
        runs: Those of the study.
        names: The words of their settings.
        metric: The accuracy that comes first.

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
                    *(_accuracy_cell(run, float(row[key])) for key in (metric, *_other_metrics(metric))),
                    (format_number(sent / 1e6, 1), round(sent / 1e6, 3)),
                    (format_number(float(run.cost["seconds"]), 1), run.cost["seconds"]),
                ],
            }
        )
    return rows


def _other_metrics(metric: str) -> list[str]:
    return [key for key in SHORT if key != metric]


def _accuracy_cell(run: RecordedRun, value: float) -> tuple[str, float | str]:
    if math.isnan(value):
        return ("diverged" if run.diverged else MISSING, "")
    return format_number(value, 2), round(value, 4)

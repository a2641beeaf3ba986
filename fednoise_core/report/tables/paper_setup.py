"""A paper's table without results, such as its settings, beside the study's own values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fednoise_core.io import ArtifactError
from fednoise_core.report.runs.csv_files import at_hand, read_texts
from fednoise_core.report.runs.run import RecordedRun

__all__ = ["same", "setup"]

TOLD = ("parameter", "key", "factor", "noise", "method")  # columns that are not shown: they say what a row is


def setup(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """One row a cell of the paper's table: `parameter`, `column`, `paper` (its words), `ours`, empty where the study
    has no such setting. Raises ArtifactError for a file without the column `parameter`.
    """
    rows = read_texts(at_hand(spec["file"]))
    if "parameter" not in rows.columns:
        raise ArtifactError(f"{spec['file']}: has no column parameter")
    columns = [name for name in rows.columns if name not in TOLD]
    ours = spec.get("ours", [])
    return pd.DataFrame(
        {
            "parameter": row["parameter"],
            "column": column,
            "paper": row[column],
            "ours": _words(ours[number].get(column) if number < len(ours) else None),
            "scale": spec.get("scale", "paper"),
        }
        for number, row in enumerate(rows.to_dict("records"))
        for column in columns
    )


def _words(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def same(paper: str, ours: str) -> bool:
    """Whether the paper's words are our value, or there is none of ours."""
    try:
        return not ours or float(paper) == float(ours)
    except ValueError:
        return paper.lower() == ours.lower()

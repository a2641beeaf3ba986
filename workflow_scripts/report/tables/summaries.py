"""Rows of frames: whose cell it is, and what the values of its seeds come to."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import Setting


def describe_cell(ids: Sequence[Any], group: pd.DataFrame, names: Names) -> dict[str, Any]:
    """The ids and labels of a setting and a method.

    Args:
        ids: Of data set, noise, partition and method.
        group: The rows of the cell's runs.
        names: The words of the settings.
    """
    labels = ("dataset_label", "noise_label", "partition_label")
    return {
        **dict(zip(frames.IDS[:3], ids, strict=False)),
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

"""CSVs of tables and figures: numbers with fixed decimals, and texts that no spreadsheet interprets as a formula."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.io import ArtifactError, open_atomic, read_texts, safe_cell
from workflow_scripts.report.text.escape import one_line

TEXT = (
    *("dataset", "noise", "partition", "method"),
    *("dataset_label", "noise_label", "partition_label", "method_label"),
    *("view", "metric", "marks", "versions"),
)
"""Columns of text in tables of every kind. `TableKind.texts` has those of one kind."""

DECIMALS = 4  # of percentages, far more precise than any spread, so that rounding does not change what is shown


def write_csv(path: str | Path, frame: pd.DataFrame) -> None:
    """Write `csv_text` of a frame atomically."""
    with open_atomic(path) as file:
        file.write(csv_text(frame))


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as CSV.

    Decimals and line ends are fixed, so equal numbers give equal text. A text that a spreadsheet would run as a formula
    gets an apostrophe in front. Every text is one line.

    Args:
        frame: Columns of numbers stay numbers.
    """
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    safe = frame.assign(**{name: frame[name].map(_escape_cell) for name in texts})
    return safe.to_csv(index=False, float_format=f"%.{DECIMALS}f", lineterminator="\n")


def read_csv(path: str | Path, texts: Collection[str] = ()) -> pd.DataFrame:
    """Read a table's CSV back.

    Args:
        path: The path of a file that `write_csv` made.
        texts: Further columns that are text.

    Returns:
        Columns of TEXT and `texts` as text (an id may be `none` or `007`), the rest as numbers (float64).

    Raises:
        ArtifactError: If it is missing or damaged.
    """
    frame = read_texts(path)
    for name in frame.columns:
        if name not in {*TEXT, *texts}:
            try:
                frame[name] = pd.to_numeric(frame[name].replace("", np.nan))
            except (ValueError, TypeError) as error:
                cure = f"A kind of table names its columns of text: `texts=({name!r},)`"
                raise ArtifactError(f"{path}: column {name}: {error}. {cure}") from error
    return frame


def _escape_cell(cell: Any) -> Any:
    """Escape a cell. A text becomes one line, since the csv module does not quote a lone carriage return."""
    return safe_cell(one_line(cell)) if isinstance(cell, str) else cell

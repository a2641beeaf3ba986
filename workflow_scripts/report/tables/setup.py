"""A paper's table without results, such as its settings, beside the study's own values."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from fednoise_core.io import ArtifactError, read_texts
from workflow_scripts.paths import resolve_user_file
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.runs.selection import OutputTitle
from workflow_scripts.report.tables.kind import HeadWords, Spec, TableKind
from workflow_scripts.report.text.cells import MISSING, Cell, Grid, GridRow

TOLD = ("parameter", "key", "factor", "noise", "method")  # columns that define a row and are not shown


class SetupSettings(OutputTitle):
    """A paper's table without results, such as its settings, with this study's own value wherever it differs."""

    file: Annotated[
        str,
        Field(
            description="CSV: `parameter` names the row; `key` (such as train.rounds, partition.clients, classes; "
            "empty: no setting), `noise`, `method` and `factor` say where this study has its value; all other columns "
            "are shown, headed by `heads`."
        ),
    ]
    heads: Annotated[HeadWords, Field(description="Column → its words.")] = {}  # noqa: RUF012 - a setting


def _setup_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """Make one row per cell of the paper's table: `parameter`, `column`, `paper` (its words), `ours`.

    `ours` is empty where the study has no such setting. Raises ArtifactError for a file without the column `parameter`.
    """
    rows = read_texts(resolve_user_file(spec["file"]))
    if "parameter" not in rows.columns:
        raise ArtifactError(f"{spec['file']}: has no column parameter")
    columns = [name for name in rows.columns if name not in TOLD]
    ours = spec["ours"]
    return pd.DataFrame(
        {
            "parameter": row["parameter"],
            "column": column,
            "paper": row[column],
            "ours": _format_own_value(ours[number].get(column) if number < len(ours) else None),
            "scale": spec["scale"],
        }
        for number, row in enumerate(rows.to_dict("records"))
        for column in columns
    )


def _lay_out_setup(frame: pd.DataFrame, spec: Spec) -> Grid:
    """Lay out the paper's words, with "ours" beside them if the study has another value."""
    heads = list(dict.fromkeys(frame["column"]))
    rows = []
    for parameter, group in frame.groupby("parameter", sort=False):
        by_head: dict[str, Any] = {row["column"]: row for row in group.to_dict("records")}
        rows.append(GridRow(str(parameter), [Cell(_format_setup_cell(by_head.get(head))) for head in heads]))
    level = [(str(spec["heads"].get(head, head)), 1) for head in heads]
    caption = f"From the paper; this study's values in brackets where they differ. Scale: {frame['scale'].iloc[0]}."
    checked = int((frame["ours"] != "").sum())
    notes = [f"{checked} of {len(frame)} cells are settings of this study, and were compared."]
    return Grid(spec["title"] or "Setup", caption, "", [level], rows, notes)


def _format_setup_cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return MISSING
    return (
        (row["paper"] or MISSING)
        if is_same_value(row["paper"], row["ours"])
        else f"{row['paper']} (ours {row['ours']})"
    )


def _format_own_value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def is_same_value(paper: str, ours: str) -> bool:
    """Return True if the paper's text is our value, or we have none.

    Args:
        paper: The paper's text.
        ours: Our value as text, or "".
    """
    try:
        return not ours or float(paper) == float(ours)
    except ValueError:
        return paper.lower() == ours.lower()


KIND = TableKind(
    settings=SetupSettings,
    frame=_setup_frame,
    layout=_lay_out_setup,
    example={"file": "config/papers/tables/fedefc_table1.csv"},
    texts=["parameter", "column", "paper", "ours", "scale"],
    context={"ours": (), "scale": "paper"},
    without_runs=True,
    of_a_paper=True,
)

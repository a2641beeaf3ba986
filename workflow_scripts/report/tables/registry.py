"""Tables of every kind. Runs become a frame, which is written as CSV, and the shown table is made from this CSV.

The shown table and the CSV therefore cannot differ. Each kind has its own file.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fednoise_core.io import SpecError, open_atomic
from fednoise_core.settings.declare import check_value, with_defaults
from fednoise_core.settings.functions import resolve_kind
from workflow_scripts.report.runs import agreement
from workflow_scripts.report.runs.csv_files import read_csv, write_csv
from workflow_scripts.report.runs.provenance import mixed_versions
from workflow_scripts.report.runs.run import ListedRun, load, select
from workflow_scripts.report.tables.kind import TableKind
from workflow_scripts.report.tables.latex import render_latex
from workflow_scripts.report.tables.markdown import render_markdown
from workflow_scripts.report.text.cells import Grid
from workflow_scripts.report.text.footnotes import explain_marks

# kind → the place of its TableKind. Strings, so that the code hash of one kind does not include the other kinds.
TABLES: dict[str, str | TableKind] = {
    "accuracy": "workflow_scripts.report.tables.accuracy:KIND",
    "cost": "workflow_scripts.report.tables.cost:KIND",
    "diagnostics": "workflow_scripts.report.tables.diagnostics:KIND",
    "leaderboard": "workflow_scripts.report.tables.leaderboard:KIND",
    "reproduction": "workflow_scripts.report.tables.reproduction:KIND",
    "setup": "workflow_scripts.report.tables.setup:KIND",
}


def complete_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of a table's settings.

    Args:
        spec: `{kind: …, settings…}` as in config/schema/table.yaml, and facts of the study that the workflow adds.

    Raises:
        SpecError: The kind is unknown. The message has the nearest known one.
    """
    kind = find_kind(spec)
    return {**with_defaults(kind.settings, kind.context), **spec}


def complete_tables(study: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of a study's tables.

    Args:
        study: The metadata of its page (`Study.page_metadata`).
    """
    return {**study, "tables": {name: complete_spec(spec) for name, spec in study.get("tables", {}).items()}}


def build_table(listed: Sequence[ListedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """Make the numbers of a table, with a row for each cell.

    Args:
        listed: All runs of the study.
        spec: As for `complete_spec`.

    Raises:
        SpecError: The kind is unknown, a setting does not fit, or the lists leave no run.
        ArtifactError: A file is damaged.
    """
    kind = find_kind(spec)
    fields = {key: value for key, value in spec.items() if key != "kind" and key not in kind.context}
    check_value(kind.settings, fields, "table")
    runs = load(select_table_runs(listed, spec))
    if not runs and not kind.of_a_paper:
        raise SpecError("the table names no run")
    table = kind.frame(runs, complete_spec(spec))
    if table.columns.empty:
        raise SpecError(f"table: kind {spec['kind']}: its frame has no columns. Give them in an empty frame, too")
    if unknown := agreement.untrusted_datasets(runs):
        table["test_known"] = (~table["dataset"].isin(unknown)).astype(int)
    for note in mixed_versions(runs):
        table["versions"] = note
    sometimes = ("as_told", "diverged", "at_chance", "dropped_updates")
    nothing = [name for name in sometimes if name in table and not table[name].any()]
    return table.drop(columns=nothing)


def select_table_runs(listed: Iterable[ListedRun], spec: Mapping[str, Any]) -> list[ListedRun]:
    """Select the runs that a table shows. A table of a paper may have none, and its cells are then "not run".

    Raises:
        SpecError: The lists of another table leave no run.
    """
    kind = find_kind(spec)
    return [] if kind.without_runs else select(listed, spec, none=kind.of_a_paper)


def lay_out_table(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Grid:
    """Lay out a table, with its caption and notes.

    Args:
        frame: The result of `build_table`, or the frame that was read from its CSV.
        spec: As for `complete_spec`.
    """
    kind = find_kind(spec)
    grid = kind.layout(frame, complete_spec(spec))
    grid.notes += explain_marks(frame) if "marks" in frame else []
    if "diverged" in frame:
        grid.notes.append(
            "diverged (k of n): the outputs of k of n runs stopped being finite numbers. They have no accuracy, and "
            "nothing is averaged over the others alone."
        )
    if "at_chance" in frame:
        ended = frame.groupby("method_label", sort=False)[["at_chance", "seeds"]].sum()
        listing = "; ".join(f"{label} in {n} of {size} runs" for label, n, size in ended.itertuples(name=None) if n)
        grid.notes.append(f"At chance after the last round: {listing}.")
    if "versions" in frame:
        grid.notes.append(str(frame["versions"].iloc[0]))
    if "dropped_updates" in frame:
        left_out = frame.groupby("method_label", sort=False)["dropped_updates"].sum()
        listing = "; ".join(f"{label} {count:,.0f}" for label, count in left_out.items() if count)
        grid.notes.append(f"Updates of clients that were not finite numbers, and were left out: {listing}.")
    if kind.of_accuracy and "test_known" in frame:
        grid.notes.append(agreement.untrusted_note(sorted(set(frame.loc[frame["test_known"] == 0, "dataset"]))))
    return grid


def write_table(listed: Sequence[ListedRun], spec: Mapping[str, Any], prefix: str | Path, name: str) -> Grid:
    """Write a table as CSV, Markdown and LaTeX.

    Args:
        listed: All runs of the study.
        spec: As for `complete_spec`.
        prefix: Path of the files without the ending.
        name: The table's id, for references in LaTeX.

    Returns:
        The shown table.
    """
    write_csv(f"{prefix}.csv", build_table(listed, spec))
    layout = lay_out_table(read_table(f"{prefix}.csv", spec), spec)  # from the file, so that both are equal
    for ending, text in (("md", render_markdown(layout)), ("tex", render_latex(layout, name))):
        with open_atomic(f"{prefix}.{ending}") as file:
            file.write(text)
    return layout


def read_table(path: str | Path, spec: Mapping[str, Any]) -> pd.DataFrame:
    """Read the CSV of a table of these settings. Raises as `read_csv`."""
    return read_csv(path, find_kind(spec).texts)


def find_kind(spec: Mapping[str, Any]) -> TableKind:
    """Find the kind of a table. Raises SpecError with the nearest known one."""
    return resolve_kind(spec, TABLES, "table")

"""Layout of papers' tables: each cell has the paper's number, our number, and the verdict on them."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from workflow_scripts.report.runs.statistics import LEAST
from workflow_scripts.report.tables.kind import Spec
from workflow_scripts.report.tables.scorecard import JUDGED, LEAST_RANKED, VERDICTS, column_ranks, count_verdicts
from workflow_scripts.report.text.cells import (
    METRIC_WORDS,
    MISSING,
    PARTS,
    Cell,
    Grid,
    GridRow,
    count_words,
    diverged_words,
    format_number,
    format_signed,
    levels_of,
    mean_std,
    method_words,
    settings_of,
)

Key = tuple[str, ...]  # a setting, and a client's number or ""


def lay_out_reproduction(frame: pd.DataFrame, spec: Spec) -> Grid:
    """Lay out one line for our number and one for the paper's. The paper's scale has a third one with the verdict.

    Below them are the rank correlations.

    Args:
        frame: The result of `reproduction.reproduction_frame`, or the frame that was read from its CSV.
        spec: Its completed settings.
    """
    digits, paper_scale = spec["digits"], bool((frame["scale"] == "paper").all())
    main = frame[frame["ceiling"] == 0]
    settings = settings_of(main)
    clients = list(dict.fromkeys(main["member"]))
    columns = [(*key, client) for key in settings for client in clients]
    rows = []
    for _, group in main.groupby("method", sort=False):
        rows += _method_rows(method_words(group), _by_column(group), columns, digits, paper_scale)
    for _, group in frame[frame["ceiling"] == 1].groupby("method", sort=False):
        same = {(key[0], key[2], key[3]): row for key, row in _by_column(group).items()}
        cells = {key: same[key[0], key[2], key[3]] for key in columns if (key[0], key[2], key[3]) in same}
        rows += _method_rows(f"{method_words(group)}, no noise", cells, columns, digits, paper_scale, "ceiling")
    rows.append(_rank_row(main, columns))
    levels, common = levels_of(main, settings)
    if len(clients) > 1:
        levels = [[(text, span * len(clients)) for text, span in level] for level in levels]
        levels.append([(f"client {name}" if name else "mean", 1) for _ in settings for name in clients])
    metric, scale = METRIC_WORDS[frame["metric"].iloc[0]], frame["scale"].iloc[0]
    caption = f"Test accuracy in %, {metric}, beside the paper's. Scale: {scale}."
    caption += f" All on {common}." if common else ""
    title = spec["title"] or "Reproduction"
    return Grid(title, caption, "method", levels, rows, _write_notes(frame, paper_scale))


def _by_column(group: pd.DataFrame) -> dict[Key, pd.Series]:
    return {tuple(row[[*PARTS, "member"]]): row for _, row in group.iterrows()}


def _method_rows(
    label: str,
    by_column: Mapping[Key, pd.Series],
    columns: Sequence[Key],
    digits: int,
    paper_scale: bool,
    style: str = "",
) -> list[GridRow]:
    rows = [by_column.get(key) for key in columns]
    ours, verdicts = ([word(row, digits) for row in rows] for word in (format_ours, _format_verdict))
    lines, paper = [GridRow(label, [*map(Cell, ours)], style)], [format_paper(row, digits) for row in rows]
    if {*paper} == {MISSING}:  # the paper has no such row
        return lines
    lines.append(GridRow("paper", [*map(Cell, paper)], "printed"))
    if not paper_scale or verdicts == ours:  # "not run" everywhere, which our line already says
        return lines
    return [*lines, GridRow("verdict", [*map(Cell, verdicts)], "printed")]


def format_ours(row: pd.Series | None, digits: int) -> str:
    """Format our number in a row of the frame, with its deviation and, in brackets, the number of seeds."""
    if row is None:
        return MISSING
    if not row["seeds"]:
        return str(row["verdict"])
    return diverged_words(row) or f"{mean_std(row['ours_mean'], row['ours_std'], digits)} ({row['seeds']:.0f})"


def format_paper(row: pd.Series | None, digits: int) -> str:
    """The paper's number in a row of the frame, with its deviation."""
    if row is None or row["paper"] == "absent":
        return MISSING
    return "unreadable" if row["paper"] == "unreadable" else mean_std(row["paper_mean"], row["paper_std"], digits)


def _format_verdict(row: pd.Series | None, digits: int) -> str:
    if row is None:
        return MISSING
    judged = row["verdict"] in JUDGED
    return f"{format_signed(row['difference'], digits)}, {row['verdict']}" if judged else str(row["verdict"])


def _rank_row(main: pd.DataFrame, columns: Sequence[Key]) -> GridRow:
    """Make a row with Spearman's ρ of each column and its number of methods."""
    ranks = column_ranks(main)
    cells = []
    for key in columns:
        value, count = ranks.get(key, (math.nan, 0))
        cells.append(Cell(MISSING if math.isnan(value) else f"{format_number(value, 2)} ({count})"))
    return GridRow("Spearman’s ρ (methods)", cells, "ceiling")


def _write_notes(frame: pd.DataFrame, paper_scale: bool) -> list[str]:
    counts = count_verdicts(frame)
    notes = [f"The paper's cells: {', '.join(f'{counts[name]} {name}' for name in VERDICTS if counts[name])}."]
    ran = frame.loc[frame["seeds"] > 0, "seeds"]
    if len(ran):
        notes.append(
            f"In brackets behind ours: seeds ({count_words(ran)}). One seed has no spread, and no σ to be judged by. "
            f"The CSV has the 95 % bootstrap interval of our means of {LEAST} seeds or more, and notes on single cells."
        )
    if paper_scale:
        notes.append(
            "Verdict: ours less the paper's; within 2 σ, where σ² is the sum of both variances, else within 2 "
            "points of %, else apart."
        )
    else:
        notes.append(
            f"Scale {frame['scale'].iloc[0]} is not the paper's, so numbers are not compared cell by cell: ranks, "
            "gains and claims are."
        )
    notes.append(
        f"{MISSING} neither the paper nor this study has the cell. Spearman’s ρ of our methods' ranks with the "
        f"paper's, over the methods in brackets; none for fewer than {LEAST_RANKED}."
    )
    return notes

"""Gains over a baseline in a paper's table: the paper's gains and ours."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from pydantic import Field

from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.results.common import name_rows
from workflow_scripts.report.figures.results.scoreboard import table_frames
from workflow_scripts.report.figures.style import (
    FILL,
    QUIET,
    SIZE,
    WRONG,
    add_legend_below,
    count_title_lines,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
)
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.tables.registry import complete_spec
from workflow_scripts.report.tables.scorecard import KEYS
from workflow_scripts.report.text.cells import count_words, format_signed, settings_of
from workflow_scripts.report.text.escape import wrap_text

KEPT = [*KEYS, "dataset_label", "noise_label", "partition_label", "method_label"]
NUMBERS = ["ours_gain", "paper_gain", "ours_rank", "paper_rank", "seeds"]
OURS = {True: FILL, False: WRONG}
RING: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "markersize": 5}
TIPS: dict[bool, dict[str, Any]] = {True: {"marker": "D", "markersize": 4}, False: {"marker": "X", "markersize": 6}}


def compare_gains(frame: pd.DataFrame) -> pd.DataFrame:
    """Select the cells of a reproduction table for which both we and the paper have a gain.

    Args:
        frame: Of `reproduction_frame`.

    Returns:
        Ids and labels of the cell, both gains and ranks, seeds, and `same`: 1 if both gains have the same sign.
    """
    rows = frame[(frame["member"] == "") & frame["ours_gain"].notna() & frame["paper_gain"].notna()]
    same = (rows["ours_gain"] * rows["paper_gain"] > 0).astype(int)
    return rows[[*KEPT, *NUMBERS]].assign(same=same).reset_index(drop=True)


class GainsSettings(FigureSettings):
    """The gain of every method over the `baseline` of a paper's table, in the paper and in our runs.

    There is one panel per column that was run. A ring shows the paper's gain, and a line leads to ours.
    """

    table: Annotated[str, Field(description="Id of the table, of kind `reproduction`. Its lists choose the runs.")]


def _draw_gains(runs: Sequence[RecordedRun], tables: Mapping[str, Mapping[str, Any]], settings: GainsSettings) -> Drawn:
    gains_by_table = [(table, compare_gains(frame)) for table, frame in table_frames(runs, tables).values()]
    none = complete_spec({"kind": "reproduction"}), pd.DataFrame(columns=[*KEPT, *NUMBERS, "same"])
    table, rows = gains_by_table[0] if gains_by_table else none
    base = table["baseline"]
    label = str(table["labels"].get(base, base))
    columns = settings_of(rows)
    means = rows.groupby("method", sort=False)["paper_gain"].mean().sort_values(ascending=False, kind="stable")
    names = dict(zip(rows["method"], rows["method_label"], strict=True))
    wide = width_inches(settings) > 5
    count = max(1, len(columns))
    heads = [_column_head(rows, key) for key in columns] or ["nothing was run"]
    lines = [wrap_text(names[method], 24 if wide else 16) for method in means.index]
    size = 0.27 if all("\n" not in line for line in lines) else 0.33  # inches, of a row
    side = min(count, 4 if wide else 2)
    tall = size * max(1, len(lines)) + 0.61 + 0.14 * count_title_lines(heads, width_inches(settings) / side - 0.35)
    figure, axes = make_panels(count, settings, tall, side, sharex=True, sharey=True)
    places = {method: place for place, method in enumerate(means.index)}
    set_titles(axes, heads)
    for axis, key in zip(axes, columns, strict=False):
        for _, row in rows[(rows[KEYS[:3]] == list(key)).all(axis=1)].iterrows():
            _draw_gain(axis, places[row["method"]], row)
    for axis in axes:
        axis.axvline(0, color=QUIET, linewidth=1.0, zorder=1)
        name_rows(axis, lines, list(means.index), runs)
        axis.set_ylim(max(len(lines), 1) - 0.4, -0.75)
        axis.grid(axis="y", visible=False)
        axis.margins(x=0.16)
        axis.locator_params(axis="x", nbins=4)
    label_outer_axes(axes, f"points of test accuracy above {label}", "")
    look: dict[str, Any] = {"linestyle": "none"}
    legend = [
        Line2D([], [], color=QUIET, label="the paper", **look, **RING),
        Line2D([], [], color=FILL, label="ours, of the same sign", **look, **TIPS[True]),
    ]
    if not rows["same"].all():
        legend.append(Line2D([], [], color=WRONG, label="ours, of the other sign", **look, **TIPS[False]))
    add_legend_below(figure, legend)
    return _finish_gains(figure, rows, settings, label)


def _finish_gains(figure: Any, rows: pd.DataFrame, settings: GainsSettings, label: str) -> Drawn:
    summary = f"{int(rows['same'].sum())} of {len(rows)} gains over {label} have the paper's sign."
    caption = (
        f"Points of test accuracy above {label} in the same column, over the seeds that both have: a ring the paper's, "
        f"the mark at the end ours. {summary} {count_words(rows['seeds']) if len(rows) else 'n = 0 seeds'}."
    )
    common = [str(rows[f"{part}_label"].iloc[0]) for part in KEYS[:3] if rows[part].nunique() == 1]
    caption += f" All on {' · '.join(common)}." if 0 < len(common) < 3 else ""
    each = [
        f"{_column_head(rows, tuple(row[key] for key in KEYS[:3]))}, {row['method_label']}: paper "
        f"{format_signed(row['paper_gain'], 1)}, ours {format_signed(row['ours_gain'], 1)}"
        for row in rows.to_dict("records")
    ]
    alt = f"{summary} {'; '.join(each)}." if each else summary
    return Drawn(figure, rows, settings, f"Gains over {label}, the paper's and ours", caption, alt)


def _column_head(rows: pd.DataFrame, key: Sequence[str]) -> str:
    """Describe a column by the parts that vary, or by all parts if none varies."""
    parts = [part for part in KEYS[:3] if rows[part].nunique() > 1] or KEYS[:3]
    row = rows[(rows[KEYS[:3]] == list(key)).all(axis=1)].iloc[0]
    return " · ".join(str(row[f"{part}_label"]) for part in parts)


def _draw_gain(axis: Axes, y: int, row: pd.Series) -> None:
    """Draw a line from the paper's gain to ours, with our gain as a number above the mark."""
    paper, ours, same = row["paper_gain"], row["ours_gain"], bool(row["same"])
    colour = OURS[same]
    axis.plot([paper, ours], [y, y], color=colour, linewidth=1.4, zorder=2)
    axis.plot([paper], [y], color=QUIET, zorder=3, **RING)
    axis.plot([ours], [y], color=colour, zorder=4, **TIPS[same])
    axis.annotate(
        format_signed(ours, 1),
        (ours, y),
        xytext=(0, 3.5),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=colour,
        fontsize=SIZE - 1,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85},
    )


KIND = FigureKind(settings=GainsSettings, draw=_draw_gains, example={"table": "table2"}, of_a_paper=True)

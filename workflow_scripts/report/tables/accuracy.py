"""Accuracy tables: methods × settings."""

from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import Field

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.ranking import AHEAD, leading_methods
from workflow_scripts.report.runs.run import METRICS, RecordedRun
from workflow_scripts.report.runs.selection import Metric, RunSelection
from workflow_scripts.report.tables.kind import Spec, TableKind
from workflow_scripts.report.text.cells import (
    METRIC_WORDS,
    MISSING,
    PARTS,
    Cell,
    Grid,
    GridRow,
    diverged_words,
    levels_of,
    mean_std,
    method_words,
    seeds_words,
    settings_of,
)
from workflow_scripts.report.text.footnotes import NO_MEMBERS, ORACLE, explain_true_rates, merge_marks


class AccuracySettings(RunSelection):
    """Methods × settings, mean ± sample standard deviation over seeds in %; runs without noise are a row set apart."""

    metric: Annotated[
        Metric,
        Field(
            description="The shown accuracy: mean of the last ten evaluations, last round, or the best round, which is "
            "chosen on test data. The CSV has all."
        ),
    ] = "last10_mean"
    digits: Annotated[int, Field(ge=0, le=4, description="Decimals shown; a test set of n images steps by 100/n.")] = 1


def accuracy_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """Methods × settings: mean and sample standard deviation over seeds of best, last, last10_mean and round 0, in %.

    `gain_*` is the headline metric minus round 0.
    `ceiling` marks runs on clean labels, unless the table has only such runs. If `diverged` of the `seeds` runs
    diverged, there is no mean, because a mean over the other seeds would be biased.
    `as_told` marks a method whose own rate is the setting's noise rate, so that it is not compared there.
    `ahead` marks the method of a setting if it is the only one that `leading_methods` names.

    Args:
        runs: The runs of the table.
        spec: Its completed settings.
    """
    frame = frames.tabulate_results(runs)
    metric = spec["metric"]
    names, clean = Names.of_runs(runs), {run.listed.noise for run in runs if is_noiseless(run.spec.get("noise", {}))}
    clean = clean if clean != {run.listed.noise for run in runs} else set()
    frame["gain"] = frame[metric] - frame["round0"]
    ahead = {ids: leading_methods(group, metric) for ids, group in frame.groupby(frames.IDS[:3], sort=False)}
    rows = []
    for ids, group in frame.groupby(frames.IDS, sort=False):
        rows.append(
            {
                **frames.describe_cell(ids, group, names),
                "marks": merge_marks(group["marks"]),
                "ceiling": int(ids[1] in clean),
                "as_told": int(group["as_told"].any()),
                "ahead": int([ids[3]] == ahead[ids[:3]]),
                "view": group["view"].iloc[0],
                "metric": metric,
                "seeds": len(group),
                **frames.summarize_finite(group, (*METRICS, "round0", "gain")),
                "epsilon": group["epsilon"].iloc[0],
                "diverged": int(group["diverged"].sum()),
                "at_chance": int(group["at_chance"].sum()),
                "dropped_updates": int(group["dropped_updates"].sum()),
            }
        )
    return pd.DataFrame(rows)


def _lay_out_accuracy(frame: pd.DataFrame, spec: Spec) -> Grid:
    metric, digits = spec["metric"], spec["digits"]
    main, ceiling = frame[frame["ceiling"] == 0], frame[frame["ceiling"] == 1]
    settings = settings_of(main)
    levels, common = levels_of(main, settings)
    rows = []
    # clean labels do not depend on the noise, so the same cell is shown under each noise
    for part, ids, ending, style in ((main, (0, 1, 2), "", ""), (ceiling, (0, 2), ", no noise", "ceiling")):
        for _, group in part.groupby("method", sort=False):
            by_column = {tuple(row[PARTS[axis]] for axis in ids): row for _, row in group.iterrows()}
            line = []
            for key in settings:
                row = by_column.get(tuple(key[axis] for axis in ids))
                ahead = not style and row is not None and bool(row["ahead"])
                line.append(Cell(_format_accuracy(row, metric, digits), ahead))
            rows.append(GridRow(method_words(group) + ending, line, style))
    caption = f"Test accuracy in %, {METRIC_WORDS[metric]}: {seeds_words(frame['seeds'])}."
    if common:
        caption += f" All on {common}."
    notes = [_explain_bold(main, len(ceiling) > 0)] if main["ahead"].any() else []
    notes += explain_true_rates(main)
    return Grid(spec["title"] or "Accuracy", caption, "method", levels, rows, notes)


def _explain_bold(frame: pd.DataFrame, ceiling: bool) -> str:
    """Explain the bold type, and name the methods that take no part."""
    apart = [mark for mark in merge_marks(frame["marks"]) if mark in NO_MEMBERS]
    left_out = [*(["the row without noise"] if ceiling else []), *([" and ".join(apart)] if apart else [])]
    exclusions = f" Excluded from this comparison: {', '.join(left_out)}." if left_out else ""
    return f"Bold: {AHEAD}.{exclusions}"


def _format_accuracy(row: pd.Series | None, metric: str, digits: int) -> str:
    """Format the number. It has the mark of an oracle if the method's own rate is that of the setting."""
    if row is None:
        return MISSING
    mark = f" {ORACLE}" if row.get("as_told", 0) else ""
    return (diverged_words(row) or mean_std(row[f"{metric}_mean"], row[f"{metric}_std"], digits)) + mark


KIND = TableKind(
    settings=AccuracySettings,
    frame=accuracy_frame,
    layout=_lay_out_accuracy,
    example={"metric": "last10_mean", "noises": ["sym40"]},
    of_accuracy=True,
)

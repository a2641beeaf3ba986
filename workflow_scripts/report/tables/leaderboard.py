"""Leaderboards: one row per method with rank, place and gain over the baseline, over all settings or by setting."""

from collections.abc import Sequence
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from workflow_scripts.paths import OWN
from workflow_scripts.report.runs.frames import tabulate_results
from workflow_scripts.report.runs.leaderboard import LEAST, judge_methods
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.runs.selection import Metric, RunSelection
from workflow_scripts.report.tables.kind import Spec, TableKind
from workflow_scripts.report.text.cells import (
    METRIC_WORDS,
    MISSING,
    PARTS,
    Cell,
    Grid,
    GridRow,
    count_words,
    diverged_words,
    format_interval,
    format_number,
    format_signed,
    in_setting,
    levels_of,
    method_words,
    settings_of,
)
from workflow_scripts.report.text.footnotes import explain_true_rates, marks_of, merge_marks

VERDICTS = {"ahead": 1, "behind": -1, "undecided": 0}
HEADS = ("mean rank", "place", "gain", *VERDICTS, "by tuning", "traffic", "CPU time", "public images")
OVERALL = (
    *("rank", "rank_low", "rank_high", "place_low", "place_high", "rank_ahead"),
    *("mean_gain", "mean_gain_low", "mean_gain_high", "tuning_gain", "traffic", "cpu", "of_settings", "needs_public"),
)
"""Columns of numbers over all settings, the same in all rows of a method."""


class LeaderboardSettings(RunSelection):
    """Mean rank of every method and its gain over a baseline, with intervals and the places that tests leave open.

    docs/leaderboard.md explains how these numbers are calculated.
    """

    metric: Annotated[Metric, Field(description="Best round, last round, or mean of the last ten evaluations.")] = (
        "last10_mean"
    )
    baseline: Annotated[str, Field(description="The method that the others are compared with.")] = "fedavg"
    show: Annotated[
        Literal["overall", "settings"], Field(description="Numbers over all settings, or the gain in each setting.")
    ] = "overall"


def _leaderboard_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    from fednoise_core.methods import method_class  # whose classes import torch

    frame, names = judge_methods(runs, spec["metric"], spec["baseline"]), Names.of_runs(runs)
    words = [names.of(Setting(*ids)) for ids in frame[list(PARTS)].itertuples(index=False, name=None)]
    for place, part in enumerate(PARTS):
        frame[f"{part}_label"] = [labels[place] for labels in words]
    marks = {
        method: merge_marks(marks_of(run.summary) for run in runs if run.listed.method == method)
        for method in frame["method"].unique()
    }
    classes = {run.listed.method: run.record["spec"]["method"]["name"] for run in runs}
    needs = {method: method_class(classes[method]).needs_public for method in frame["method"].unique()}
    frame = frame.assign(marks=frame["method"].map(marks), needs_public=frame["method"].map(needs).astype(int))
    results = tabulate_results(runs).assign(noise_label=[names.of(run.listed.setting)[1] for run in runs])
    for note in explain_true_rates(results):
        frame["note"] = note
    return frame.drop(columns=[*OVERALL]) if spec["show"] == "settings" else _summarize_methods(frame)


def _summarize_methods(frame: pd.DataFrame) -> pd.DataFrame:
    """Make one row per method: numbers over all settings, counts of settings by outcome, and seeds per setting."""
    by_method = frame.groupby("method", sort=False)
    rows = by_method[["method_label", "marks", *OVERALL]].first()
    rows = rows.assign(seeds=by_method["seeds"].max(), fewest_seeds=by_method["seeds"].min())
    for verdict, sign in VERDICTS.items():
        rows[verdict] = (frame["ahead"] == sign).groupby(frame["method"]).sum()
    common = [part for part in PARTS if frame[part].nunique() == 1]
    columns = [*common, *(f"{part}_label" for part in common), *frame.columns.intersection(["note"])]
    return rows.reset_index().assign(**frame[columns].iloc[0])


def _lay_out_leaderboard(frame: pd.DataFrame, spec: Spec) -> Grid:
    return _lay_out_settings(frame, spec) if spec["show"] == "settings" else _lay_out_methods(frame, spec)


def _lay_out_methods(frame: pd.DataFrame, spec: Spec) -> Grid:
    base, settings = _label_of(frame, spec["baseline"]), int(frame["of_settings"].iloc[0])
    common = " · ".join(frame[f"{part}_label"].iloc[0] for part in PARTS if part in frame)
    caption = f"Test accuracy ({_count_seeds(frame, spec)}) in {settings} setting{'s' * (settings > 1)}. Gain: points "
    caption += f"above {base}, bold if the interval is above 0; by tuning: points above the same runs at default "
    caption += f"settings, which have one seed; traffic and CPU time: relative to {base}'s."
    notes = _explain_tests(frame, base, is_tested=settings >= LEAST)
    if settings >= LEAST:
        better = frame.loc[frame["rank_ahead"] > 0, "method_label"]
        notes.append(
            "Place: from 1 + the number of methods with a better mean rank to the number of all less those with a "
            "worse one, by paired t tests over settings at a false discovery rate of 5 % over all pairs of methods. "
            f"Better than {base} by these tests: {'; '.join(better) or 'none'}."
        )
    if left := list(frame.loc[frame["rank"].isna(), "method_label"]):
        notes.append(f"Without a rank, as runs are missing or may not be compared: {'; '.join(left)}.")
    return Grid(
        title=spec["title"] or "Leaderboard",
        caption=caption + (f" All on {common}." if common else ""),
        stub="method",
        levels=[[(head, 1) for head in HEADS]],
        rows=[
            GridRow(method_words(group), _overall_cells(group.iloc[0], spec["baseline"]), _style(group))
            for _, group in frame.groupby("method", sort=False)
        ],
        notes=notes,
    )


def _lay_out_settings(frame: pd.DataFrame, spec: Spec) -> Grid:
    base, settings = _label_of(frame, spec["baseline"]), settings_of(frame)
    levels, common = levels_of(frame, settings)
    caption = f"Points of test accuracy above {base} with the same labels, clients and seed "
    caption += f"({_count_seeds(frame, spec)}). Bold: ahead."
    notes = _explain_tests(frame, base, is_tested=len(settings) >= LEAST)
    gains = frame[frame["method"] != spec["baseline"]]
    if len(settings) >= LEAST:
        ahead, behind = (gains["ahead"] > 0).sum(), (gains["ahead"] < 0).sum()
        notes.append(f"Of {len(gains)} gains {ahead} are ahead and {behind} behind.")
    return Grid(
        title=spec["title"] or f"Gain over {base}",
        caption=caption + (f" All on {common}." if common else ""),
        stub="method",
        levels=levels,
        rows=[
            GridRow(method_words(group), [_gain_cell(group[in_setting(group, key)]) for key in settings], _style(group))
            for _, group in gains.groupby("method", sort=False)
        ],
        notes=notes,
    )


def _explain_tests(frame: pd.DataFrame, base: str, *, is_tested: bool) -> list[str]:
    notes = [
        "Intervals of 95 %: by setting of Student's t with a method's variance over seeds in all settings, and larger "
        "where gains vary more, else of the bootstrap over settings and seeds. Ahead and behind: settings in which a t "
        "test says so, at a false discovery rate of 5 % over all methods and settings."
        if is_tested
        else f"With fewer than {LEAST} settings nothing is tested, and there are no intervals.",
        *(frame["note"].head(1) if "note" in frame else ()),
    ]
    for label in frame.loc[frame["method"].str.startswith(OWN), "method_label"].head(1):
        notes.append(f"The CPU time of {label} is relative to {base}'s on the same machine.")
        if is_tested:
            notes.append(
                f"The tests of {label} are corrected together with the others, so verdicts and places of these can "
                "differ from the published page."
            )
    return notes


def _count_seeds(frame: pd.DataFrame, spec: Spec) -> str:
    counts = pd.concat([frame[column] for column in ("seeds", "fewest_seeds") if column in frame])
    return f"{METRIC_WORDS[spec['metric']]}, {count_words(counts)}"


def _label_of(frame: pd.DataFrame, method: str) -> str:
    return str(frame.loc[frame["method"] == method, "method_label"].iloc[0])


def _style(group: pd.DataFrame) -> str:
    return "own" if group["method"].iloc[0].startswith(OWN) else ""


def _overall_cells(row: pd.Series, baseline: str) -> list[Cell]:
    is_tested = row["of_settings"] >= LEAST
    places = [row["place_low"] if is_tested else None, row["place_high"]]
    counts = [*(f"{row[verdict]:.0f}" for verdict in VERDICTS)]
    counts[-1] += f" of {sum(row[verdict] for verdict in VERDICTS):.0f}"
    of_baseline = [
        Cell(format_interval(row, "mean_gain"), bool(row["mean_gain_low"] > 0)),
        *(Cell(count if is_tested else MISSING) for count in counts),
    ]
    return [
        Cell(format_interval(row, "rank", signed=False)),
        Cell(MISSING if pd.isna(places[0]) else "–".join(dict.fromkeys(f"{place:.0f}" for place in places))),
        *([Cell(MISSING)] * 4 if row["method"] == baseline else of_baseline),
        Cell(MISSING if pd.isna(row["tuning_gain"]) else format_signed(row["tuning_gain"], 1)),
        *(Cell(MISSING if pd.isna(row[key]) else f"{format_number(row[key], 1)} ×") for key in ("traffic", "cpu")),
        Cell("needed" if row["needs_public"] else MISSING),
    ]


def _gain_cell(cells: pd.DataFrame) -> Cell:
    if cells.empty:
        return Cell(MISSING)
    row = cells.iloc[0]
    return Cell(diverged_words(row) or format_interval(row, "gain"), bool(row["ahead"] > 0))


KIND = TableKind(
    settings=LeaderboardSettings,
    frame=_leaderboard_frame,
    layout=_lay_out_leaderboard,
    texts=["note"],
    of_accuracy=True,
)

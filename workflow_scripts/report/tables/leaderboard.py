"""Leaderboards: a row a method with its rank, place and gain over the baseline, over the settings or by setting."""

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

VERDICTS = ("ahead", "behind", "undecided")
HEADS = ("mean rank", "place", "gain", *VERDICTS, "by tuning", "traffic", "CPU time", "public images")


class LeaderboardSettings(RunSelection):
    """Mean rank of every method and its gain over a baseline, with intervals and the places that tests leave open.

    The CSV has all numbers; docs/leaderboard.md says how they are made.
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
    return frame


def _lay_out_leaderboard(frame: pd.DataFrame, spec: Spec) -> Grid:
    base = frame.loc[frame["method"] == spec["baseline"], "method_label"].iloc[0]
    settings = settings_of(frame)
    words = f"{METRIC_WORDS[spec['metric']]}, {count_words(frame['seeds'])}"
    levels, common = levels_of(frame, settings)
    is_tested = len(settings) >= LEAST
    notes = [
        "Intervals of 95 %: by setting of Student's t with a method's variance over seeds in all settings, else of the "
        "bootstrap over settings and seeds. Ahead and behind: settings in which a t test says so, at a false discovery "
        "rate of 5 % over all methods and settings."
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
    if spec["show"] == "settings":
        signs = frame.loc[frame["method"] != spec["baseline"], "ahead"]
        if is_tested:
            notes.append(f"Of {len(signs)} gains {(signs > 0).sum()} are ahead and {(signs < 0).sum()} behind.")
        rows = [
            GridRow(method_words(group), [_gain_cell(group[in_setting(group, key)]) for key in settings], _style(group))
            for method, group in frame.groupby("method", sort=False)
            if method != spec["baseline"]
        ]
        caption = f"Points of test accuracy above {base} with the same labels, clients and seed ({words}). Bold: ahead."
        caption += f" All on {common}." if common else ""
        return Grid(spec["title"] or f"Gain over {base}", caption, "method", levels, rows, notes)
    rows = [
        GridRow(method_words(group), _overall_cells(group, spec["baseline"]), _style(group))
        for _, group in frame.groupby("method", sort=False)
    ]
    ranked = frame[frame["rank"].notna()]
    caption = f"Test accuracy ({words}) in {len(settings)} setting{'s' * (len(settings) > 1)}. Gain: points above "
    caption += f"{base}, bold if the interval is above 0; by tuning: points above the same runs at default settings, "
    caption += f"which have one seed; traffic and CPU time: relative to {base}'s."
    caption += f" All on {common}." if common else ""
    if is_tested:
        better = list(dict.fromkeys(ranked.loc[ranked["rank_ahead"] > 0, "method_label"]))
        notes.append(
            "Place: from 1 + the number of methods with a better mean rank to the number of all less those with a "
            "worse one, by paired t tests over settings at a false discovery rate of 5 % over all pairs of methods. "
            f"Better than {base} by these tests: {'; '.join(better) or 'none'}."
        )
    if left := list(dict.fromkeys(frame.loc[~frame["method"].isin(ranked["method"]), "method_label"])):
        notes.append(f"Without a rank, as runs are missing or may not be compared: {'; '.join(left)}.")
    return Grid(spec["title"] or "Leaderboard", caption, "method", [[(h, 1) for h in HEADS]], rows, notes)


def _style(group: pd.DataFrame) -> str:
    return "own" if group["method"].iloc[0].startswith(OWN) else ""


def _overall_cells(group: pd.DataFrame, baseline: str) -> list[Cell]:
    row, signs = group.iloc[0], group["ahead"]
    is_tested = row["of_settings"] >= LEAST
    places = [row["place_low"] if is_tested else None, row["place_high"]]
    counts = [*(str((signs == sign).sum()) for sign in (1, -1)), f"{(signs == 0).sum()} of {len(group)}"]
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


KIND = TableKind(settings=LeaderboardSettings, frame=_leaderboard_frame, layout=_lay_out_leaderboard, of_accuracy=True)

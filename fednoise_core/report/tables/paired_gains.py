"""Tables of gains over a baseline in each part of the run."""

import itertools
import math
from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.ranking import find_baseline
from fednoise_core.report.runs.run import RecordedRun
from fednoise_core.report.runs.selection import RunSelection
from fednoise_core.report.tables.kind import Spec, TableKind
from fednoise_core.report.tables.summaries import describe_cell, summarize_finite
from fednoise_core.report.text.cells import (
    MISSING,
    Cell,
    Grid,
    GridRow,
    caption_of,
    count_words,
    format_number,
    format_signed,
    in_setting,
    marked_method,
    mean_std,
    settings_of,
    title_of,
)
from fednoise_core.report.text.footnotes import merge_marks


class PairedGainsSettings(RunSelection):
    """Best round, and the mean gain in test accuracy over a baseline in each part of the run, test by test."""

    baseline: Annotated[
        str | None, Field(description="The method that the others are compared with; null: plain FedAvg.")
    ] = None
    parts: Annotated[int, Field(ge=1, le=10, description="Equal parts of the baseline's rounds.")] = 3


def _paired_gains_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """A row for each method in a setting.

    Of each part it has the mean gain over the rounds in which both runs were tested, and over the seeds. `_std` is the
    sample standard deviation over the seeds, NaN for one, and `_error` the standard error over the tests of one seed.
    """
    baseline = spec["baseline"] or find_baseline(runs)
    if baseline not in {run.listed.method for run in runs}:
        asked = f"{baseline!r} has no run" if baseline else "no plain FedAvg among the runs; name another method"
        raise SpecError(f"baseline: {asked}")
    setting, names = frames.IDS[:3], Names.of_runs(runs)
    tests = frames.load_metric(runs)
    tests = tests[tests["round"] > 0]
    pair = [*setting, "seed", "round"]
    base = tests[tests["method"] == baseline].set_index(pair)["value"].rename("base")
    tests = tests.join(base, on=pair)
    rounds = base.reset_index().groupby(setting)["round"].max()
    tests = tests.join(rounds.rename("rounds"), on=setting)
    tests["part"] = (tests["round"] - 1) * spec["parts"] // tests["rounds"] + 1
    tests["gain"] = tests["value"] - tests["base"]
    rows = []
    for ids, group in frames.tabulate_results(runs).groupby(frames.IDS, sort=False):
        row = {
            **describe_cell(ids, group, names),
            "marks": merge_marks(group["marks"]),
            "is_baseline": int(ids[3] == baseline),
            "baseline_rounds": rounds.get(ids[:3], math.nan),
            "seeds": len(group),
            **summarize_finite(group, ["best"]),
            "diverged": int(group["diverged"].sum()),
        }
        own = tests[(tests[frames.IDS] == list(ids)).all(axis=1)].dropna(subset="gain")
        for part in range(1, spec["parts"] + 1):
            gains = own[own["part"] == part]
            seeds = gains.groupby("seed")["gain"].mean()
            told = ids[3] != baseline and len(seeds) == len(group) and not group["diverged"].any()
            row |= {
                f"gain_{part}_mean": seeds.mean() if told else math.nan,
                f"gain_{part}_std": seeds.std() if told else math.nan,
                f"gain_{part}_error": gains["gain"].sem() if told and len(seeds) == 1 else math.nan,
                f"gain_{part}_tests": len(gains),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def _lay_out_paired_gains(frame: pd.DataFrame, spec: Spec) -> Grid:
    """A block a setting. The heads are rounds where the baseline has as many in each."""
    count, rows = spec["parts"], []
    for key in settings_of(frame):
        block = frame[in_setting(frame, key)]
        rows.append(GridRow(title_of(block), [], "group"))
        for _, row in block.iterrows():
            cells = [Cell(_format_gain(row, part)) for part in range(1, count + 1)]
            best = Cell(mean_std(row["best_mean"], row["best_std"], 1))
            rows.append(GridRow(marked_method(row.to_frame().T), [best, *cells]))
    length = frame["baseline_rounds"].dropna().unique()
    heads = [f"part {part} of {count}" for part in range(1, count + 1)]
    if len(length) == 1:
        ends = [math.ceil(part * length[0] / count) for part in range(count + 1)]
        heads = [f"rounds {first + 1} to {last}" for first, last in itertools.pairwise(ends)]
    label = frame.loc[frame["is_baseline"] == 1, "method_label"].iloc[0]
    caption = (
        f"Accuracy of the best round in %, and mean gain over {label} in points, over the rounds in which both were "
        f"tested: {count_words(frame['seeds'])}."
    )
    notes = []
    if frame[[f"gain_{part}_error" for part in range(1, count + 1)]].notna().any(axis=None):
        notes.append("In brackets: the standard error over these tests. It says nothing about other seeds.")
    if (frame["seeds"] > 1).any():
        notes.append("±: the sample standard deviation over seeds.")
    return Grid(
        spec["title"] or f"Gain over {label} in parts of the run",
        caption_of(spec, caption),
        "method",
        [[("best round", 1), (f"gain over {label}", count)], [("", 1), *((head, 1) for head in heads)]],
        rows,
        notes,
    )


def _format_gain(row: pd.Series, part: int) -> str:
    mean, std, error = (row[f"gain_{part}_{key}"] for key in ("mean", "std", "error"))
    if math.isnan(mean):
        return MISSING
    spread = f" ± {format_number(std, 1)}" if not math.isnan(std) else ""
    return format_signed(mean, 1) + spread + (f" ({format_number(error, 1)})" if not math.isnan(error) else "")


KIND = TableKind(
    settings=PairedGainsSettings,
    frame=_paired_gains_frame,
    layout=_lay_out_paired_gains,
    example={"noises": ["sym40"], "parts": 2},
)

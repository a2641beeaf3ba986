"""Tables of gains over a baseline in each part of the run."""

import itertools
import math
from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import Field

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.ranking import find_baseline
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.runs.selection import RunSelection
from workflow_scripts.report.tables.kind import Spec, TableKind
from workflow_scripts.report.text.cells import (
    MISSING,
    Cell,
    Grid,
    GridRow,
    count_words,
    format_number,
    format_signed,
    in_setting,
    marked_method,
    mean_std,
    settings_of,
    title_of,
)
from workflow_scripts.report.text.footnotes import merge_marks


class GainsOverRoundsSettings(RunSelection):
    """Best round, and the mean gain over a baseline in each part of the run, at equal seeds and rounds."""

    baseline: Annotated[
        str | None, Field(description="The method that the others are compared with; null: plain FedAvg.")
    ] = None
    parts: Annotated[
        int, Field(ge=1, le=10, description="Into how many equal parts the baseline's rounds are divided.")
    ] = 3


def _gains_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """A row for each method in a setting.

    Of each part it has the mean gain over the rounds in which both runs were tested, and over the seeds. `_std` is the
    sample standard deviation over the seeds, NaN for one. `_error` is the standard error over the tests of one seed,
    NaN for several. There is no gain where a run of either method diverged, or where a seed has no run of the baseline.
    """
    baseline, names = spec["baseline"] or find_baseline(runs), Names.of_runs(runs)
    results, tests = frames.tabulate_results(runs), frames.load_metric(runs)
    setting, tests = frames.IDS[:3], tests[tests["round"] > 0]
    pair = [*setting, "seed", "round"]
    base = tests[tests["method"] == baseline].set_index(pair)["value"].rename("base")
    rounds = base.reset_index().groupby(setting)["round"].max().rename("rounds")
    tests = tests.join(base, on=pair).join(rounds, on=setting)
    tests["part"] = (tests["round"] - 1) * spec["parts"] // tests["rounds"] + 1
    tests["gain"] = tests["value"] - tests["base"]
    parts = dict(list(tests.dropna(subset="gain").groupby([*frames.IDS, "part"])))
    lost = results[(results["method"] == baseline) & results["diverged"]]
    unknown = set(lost[setting].itertuples(index=False, name=None))
    rows = []
    for ids, group in results.groupby(frames.IDS, sort=False):
        row = {
            **frames.describe_cell(ids, group, names),
            "marks": merge_marks(group["marks"]),
            "is_baseline": int(ids[3] == baseline),
            "baseline_rounds": rounds.get(ids[:3], math.nan),
            "seeds": len(group),
            **frames.summarize_finite(group, ["best"]),
            "diverged": int(group["diverged"].sum()),
        }
        has_baseline = ids[3] != baseline and ids[:3] not in unknown and not group["diverged"].any()
        for part in range(1, spec["parts"] + 1):
            gains = parts.get((*ids, part), tests[:0])
            seeds = gains.groupby("seed")["gain"].mean()
            complete = has_baseline and len(seeds) == len(group)
            row |= {
                f"gain_{part}_mean": seeds.mean() if complete else math.nan,
                f"gain_{part}_std": seeds.std() if complete else math.nan,
                f"gain_{part}_error": gains["gain"].sem() if complete and len(seeds) == 1 else math.nan,
                f"gain_{part}_tests": len(gains),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def _lay_out_gains(frame: pd.DataFrame, spec: Spec) -> Grid:
    """A block for each setting. Methods with fewer tests than the others of their setting are named in a note."""
    heads, rows, fewer = _name_parts(list(frame["baseline_rounds"].dropna().unique()), spec["parts"]), [], []
    for key in settings_of(frame):
        block = frame[in_setting(frame, key)]
        rows.append(GridRow(title_of(block), [], "group"))
        for _, row in block.iterrows():
            cells = [Cell(_format_gain(row, part)) for part in range(1, len(heads) + 1)]
            rows.append(
                GridRow(marked_method(row.to_frame().T), [Cell(mean_std(row["best_mean"], row["best_std"], 1)), *cells])
            )
            for part, head in enumerate(heads, start=1):
                count, most = row[f"gain_{part}_tests"], block[f"gain_{part}_tests"].max()
                if 0 < count < most:
                    fewer.append(f"{row['method_label']} {count:.0f} of {most:.0f} in {head}")
    label = next(iter(frame.loc[frame["is_baseline"] == 1, "method_label"]), "the baseline")
    caption = (
        f"Accuracy of the best round in %, and mean gain over {label} in points, over the rounds in which both were "
        f"tested: {count_words(frame['seeds'])}."
    )
    notes = []
    if frame.filter(regex="_error$").notna().any(axis=None):
        notes.append(
            "In brackets: the standard error over these tests, as if they were independent. It says nothing about "
            "other seeds."
        )
    if (frame["seeds"] > 1).any():
        notes.append("±: the sample standard deviation over seeds.")
    if fewer:
        notes.append(f"Of fewer tests: {'; '.join(dict.fromkeys(fewer))}.")
    notes.append(f"{MISSING} {label} itself, or no tests that can be compared.")
    return Grid(
        spec["title"] or f"Gain over {label} in parts of the run",
        caption,
        "method",
        [[("best round", 1), (f"gain over {label}", len(heads))], [("", 1), *((head, 1) for head in heads)]],
        rows,
        notes,
    )


def _name_parts(lengths: Sequence[float], count: int) -> list[str]:
    """The rounds of each part, where all baselines have equally many."""
    if len(lengths) != 1 or lengths[0] < count:
        return [f"part {part} of {count}" for part in range(1, count + 1)]
    ends = [math.ceil(part * lengths[0] / count) for part in range(count + 1)]
    return [
        f"rounds {first + 1} to {last}" if first + 1 < last else f"round {last}"
        for first, last in itertools.pairwise(ends)
    ]


def _format_gain(row: pd.Series, part: int) -> str:
    mean, std, error = (row[f"gain_{part}_{key}"] for key in ("mean", "std", "error"))
    if math.isnan(mean):
        return MISSING
    text = format_signed(mean, 1) if round(mean, 1) else "0.0"
    text += "" if math.isnan(std) else f" ± {format_number(std, 1)}"
    return text if math.isnan(error) else f"{text} ({format_number(error, 1)})"


KIND = TableKind(
    settings=GainsOverRoundsSettings,
    frame=_gains_frame,
    layout=_lay_out_gains,
    example={"noises": ["sym40"], "parts": 2},
    of_accuracy=True,
)

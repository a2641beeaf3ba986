"""Diagnostics tables: the quality of a method's verdicts, measured with the clean labels."""

import math
from collections.abc import Sequence
from typing import Annotated

import pandas as pd
from pydantic import Field

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.runs.selection import RunSelection
from workflow_scripts.report.tables.kind import Spec, TableKind
from workflow_scripts.report.text.cells import (
    MISSING,
    Cell,
    Grid,
    GridRow,
    format_number,
    in_setting,
    marked_method,
    mean_std,
    seeds_words,
    settings_of,
    title_of,
)
from workflow_scripts.report.text.footnotes import merge_marks

ESTIMATES = {
    "target_noise_rate": "noise after relabelling",
    "suspects_precision": "suspects: precision",
    "suspects_recall": "suspects: recall",
    "noisy_client_auroc": "noisy clients: AUROC",
    "prior_error": "prior: L1 error",
    "T_error": "T: error",
    "T_cosine": "T: cosine",
}
"""Estimates of methods, with their column heads."""


class DiagnosticsSettings(RunSelection):
    """Quality of each method's verdicts after the last round, by the clean labels. "unknown" without clean labels."""

    digits: Annotated[int, Field(ge=0, le=4, description="Decimals shown.")] = 3


def _diagnostics_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """Tabulate the quality of a method's verdicts at the end of a run, by the clean labels.

    `clean_known` is 0 if there are none.
    """
    frame, names = frames.tabulate_results(runs), Names.of_runs(runs)
    for key in ("noise_rate", *ESTIMATES):
        frame[key] = pd.Series([run.summary.get("diagnostics", {}).get(key) for run in runs], dtype=float)
    parts = []
    for ids, group in frame.groupby(frames.IDS, sort=False):
        parts.append(
            {
                **frames.describe_cell(ids, group, names),
                "marks": merge_marks(group["marks"]),
                "clean_known": int(group["clean_known"].all()),
                "seeds": len(group),
                **frames.summarize_values(group, ["noise_rate"]),  # of the given labels, independent of training
                **frames.summarize_finite(group, list(ESTIMATES)),
                **{f"{key}_n": int(group[key].notna().sum()) for key in ESTIMATES},
                "epsilon": group["epsilon"].max(),
                "diverged": int(group["diverged"].sum()),
            }
        )
    return pd.DataFrame(parts)


def _lay_out_diagnostics(frame: pd.DataFrame, spec: Spec) -> Grid:
    """Lay out a block per setting, headed by its mean realised noise rate over seeds. Empty estimates are left out."""
    digits, has_truth = spec["digits"], frame["clean_known"] == 1
    unknown, frame = frame[~has_truth], frame[has_truth].copy()
    same = (frame["target_noise_rate_mean"] - frame["noise_rate_mean"]).abs() < 1e-6  # targets never changed
    frame.loc[same, "target_noise_rate_mean"] = math.nan
    clean = frame["noise_rate_mean"] == 0  # without wrong labels a precision has no meaning
    frame = frame if clean.all() else frame[~clean]
    estimates = [key for key in ESTIMATES if frame[f"{key}_mean"].notna().any()] or list(ESTIMATES)
    says = frame[[f"{key}_mean" for key in estimates]].notna().any(axis=1) | (frame.get("diverged", 0) > 0)
    rows = []
    for key in settings_of(frame[says]):
        block = frame[says & in_setting(frame, key)]
        rate = format_number(block["noise_rate_mean"].iloc[0], digits)
        rows.append(GridRow(f"{title_of(block)}: realised noise rate {rate}", [], "group"))
        for _, row in block.iterrows():
            cells = [Cell(_format_estimate(row, name, digits)) for name in estimates]
            rows.append(GridRow(marked_method(row), cells))
    caption = "What the clean labels say about each method's verdicts after the last round."
    notes = [
        f"{MISSING} the method makes no such estimate; methods without any and settings without wrong labels are left "
        "out. Suspects are samples that the method takes to be mislabelled; AUROC is of the ranking of noisy clients; "
        "the error of an estimated T is half the mean L1 distance of its rows.",
        "The realised noise rate is the share of wrong labels that was drawn, mean of the seeds.",
    ]
    if len(frame):
        caption += f" {seeds_words(frame['seeds']).capitalize()}."
    if any("(n = " in cell.text for row in rows for cell in row.cells):
        notes.append(
            "(n = k): only k of the seeds have the number. In the others there was nothing to tell apart, or the model "
            "was at chance and judged no labels."
        )
    if len(unknown):
        notes.append(f"unknown: nobody knows the clean labels of {', '.join(unknown['dataset_label'].unique())}.")
    return Grid(
        spec["title"] or "Diagnostics",
        caption,
        "method",
        [[(ESTIMATES[key], 1) for key in estimates]],
        rows,
        notes,
    )


def _format_estimate(row: pd.Series, name: str, digits: int) -> str:
    """Format a number of the diagnostics, with the count of seeds if some seeds lack it.

    For instance, the ranking of noisy clients does not exist if all clients or no clients are noisy.
    """
    text, n = mean_std(row[f"{name}_mean"], row[f"{name}_std"], digits, True), row.get(f"{name}_n", row["seeds"])
    return f"{text} (n = {n:.0f})" if 0 < n < row["seeds"] else text


KIND = TableKind(
    settings=DiagnosticsSettings,
    frame=_diagnostics_frame,
    layout=_lay_out_diagnostics,
    example={"methods": ["fedcorr", "feddpcont"]},
)

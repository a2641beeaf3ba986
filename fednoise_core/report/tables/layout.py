"""Table frames -> grids of cells, which `render.py` writes as Markdown or LaTeX and the page template as HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from fednoise_core.report.runs import agreement
from fednoise_core.report.runs.ranking import TIE, best_methods
from fednoise_core.report.tables import reproduction_layout
from fednoise_core.report.text.cells import (
    ACCURACY_DIGITS,
    METRIC_WORDS,
    MISSING,
    PARTS,
    Cell,
    Grid,
    GridRow,
    caption_of,
    count_words,
    diverged_words,
    in_setting,
    levels_of,
    marked_method,
    mean_std,
    method_words,
    number,
    seeds_words,
    settings_of,
    title_of,
)
from fednoise_core.report.text.footnotes import NO_MEMBERS, ORACLE, as_told_notes, notes, together

__all__ = ["grid"]


def grid(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Grid:
    """Lay out the frame of a table (`tables.build`, or its CSV read back); `spec` as in config/schema/table.yaml."""
    made = LAYOUTS[spec["kind"]](frame, spec)
    made.notes += notes(frame) if "marks" in frame else []
    if "diverged" in frame:
        made.notes.append(
            "diverged (k of n): the outputs of k of n runs stopped being finite numbers. They have no accuracy, and "
            "nothing is averaged over the others alone."
        )
    if "versions" in frame:
        made.notes.append(str(frame["versions"].iloc[0]))
    if "dropped_updates" in frame:
        left_out = frame.groupby("method_label", sort=False)["dropped_updates"].sum()
        words = "; ".join(f"{label} {count:,.0f}" for label, count in left_out.items() if count)
        made.notes.append(f"Updates of clients that were not finite numbers, and were left out: {words}.")
    if spec["kind"] == "accuracy" and "test_known" in frame:
        made.notes.append(agreement.note(sorted(set(frame.loc[frame["test_known"] == 0, "dataset"]))))
    return made


def _accuracy(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Grid:
    metric, digits = spec.get("metric", "best"), int(spec.get("digits", ACCURACY_DIGITS))
    main, ceiling = frame[frame["ceiling"] == 0], frame[frame["ceiling"] == 1]
    settings = settings_of(main)
    levels, common = levels_of(main, settings)
    best = {key: best_methods(main[in_setting(main, key)], metric, digits) for key in settings}
    rows = []
    # clean labels do not depend on the noise: the same cell stands under each noise
    for part, ids, ending, style in ((main, (0, 1, 2), "", ""), (ceiling, (0, 2), ", no noise", "ceiling")):
        for method, group in part.groupby("method", sort=False):
            found = {tuple(row[PARTS[one]] for one in ids): row for _, row in group.iterrows()}
            line = []
            for key in settings:
                row = found.get(tuple(key[one] for one in ids))
                line.append(Cell(_pm(row, metric, digits) + _told(row), not style and method in best[key]))
            line.append(Cell(f"{group['beats_round0'].sum():.0f}/{group['seeds'].sum():.0f}"))
            rows.append(GridRow(method_words(group) + ending, line, style))
    for place, level in enumerate(levels):
        level.append(("above round\xa00" if place == len(levels) - 1 else "", 1))
    caption = f"Test accuracy in %, {METRIC_WORDS[metric]}: {seeds_words(frame['seeds'])}."
    if common:
        caption += f" All on {common}."
    notes = [_bold_means(main, len(ceiling) > 0)] if any(best.values()) else []
    notes += as_told_notes(main)
    notes.append("“Above round 0” counts the runs that end above their own accuracy before training.")
    return Grid(spec.get("title") or "Accuracy", caption_of(spec, caption), "method", levels, rows, notes)


COST = {
    "rounds": ("rounds", 0),
    "work": ("work", 1),
    "up_mb": ("MB up", 2),
    "down_mb": ("MB down", 2),
    "seconds": ("seconds", 1),
    "cpu_seconds": ("CPU seconds", 1),
    "peak_memory_mb": ("peak memory, MB", 0),
}


def _cost(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Grid:
    rows, several = [], frame["dataset"].nunique() > 1
    for _, block in frame.groupby("dataset", sort=False):
        if several:
            rows.append(GridRow(block["dataset_label"].iloc[0], [], "group"))
        for _, row in block.iterrows():
            cells = [
                Cell(mean_std(row[f"{key}_mean"], row[f"{key}_std"], digits, True)) for key, (_, digits) in COST.items()
            ]
            sizes = " / ".join(number(float(size), 0) for size in str(row["parameters"]).split(" / ") if size)
            rows.append(GridRow(marked_method(row.to_frame().T), [Cell(sizes or MISSING), *cells]))
    devices = ", ".join(sorted({word for words in frame["device"] for word in str(words).split(", ") if word}))
    caption = (
        f"Cost of one run: mean ± standard deviation over settings and seeds ({count_words(frame['runs'], 'run')})."
    )
    notes = [
        "Work counts passes over samples, in rounds of FedAvg; MB are all clients' traffic over the whole run.",
        f"Time and memory as measured on: {devices or 'unknown'}.",
    ]
    return Grid(
        spec.get("title") or "Cost",
        caption_of(spec, caption),
        "method",
        [[("parameters", 1), *((head, 1) for head, _ in COST.values())]],
        rows,
        notes,
    )


DIAGNOSIS = {
    "target_noise_rate": "noise after relabelling",
    "suspects_precision": "suspects: precision",
    "suspects_recall": "suspects: recall",
    "noisy_client_auroc": "noisy clients: AUROC",
    "prior_error": "prior: L1 error",
    "T_error": "T: error",
    "T_cosine": "T: cosine",
}


def _diagnostics(frame: pd.DataFrame, spec: Mapping[str, Any]) -> Grid:
    """A block a setting, headed by its realised noise rate, mean of the seeds. What has no estimate is left out."""
    digits, known = int(spec.get("digits", 3)), frame["clean_known"] == 1
    unknown, frame = frame[~known], frame[known].copy()
    same = (frame["target_noise_rate_mean"] - frame["noise_rate_mean"]).abs() < 1e-6  # targets never changed
    frame.loc[same, "target_noise_rate_mean"] = math.nan
    clean = frame["noise_rate_mean"] == 0  # nothing to find: a precision there says nothing
    frame = frame if clean.all() else frame[~clean]
    shown = [key for key in DIAGNOSIS if frame[f"{key}_mean"].notna().any()] or list(DIAGNOSIS)
    says = frame[[f"{key}_mean" for key in shown]].notna().any(axis=1) | (frame.get("diverged", 0) > 0)
    rows = []
    for key in settings_of(frame[says]):
        block = frame[says & in_setting(frame, key)]
        rate = number(block["noise_rate_mean"].iloc[0], digits)
        rows.append(GridRow(f"{title_of(block)}: realised noise rate {rate}", [], "group"))
        for _, row in block.iterrows():
            cells = [Cell(_estimate(row, name, digits)) for name in shown]
            rows.append(GridRow(marked_method(row.to_frame().T), cells))
    caption = "What the clean labels say about each method's verdicts after the last round."
    notes = [
        f"{MISSING} the method makes no such estimate; methods without any and settings without wrong labels are left "
        "out. Suspects are samples held for mislabelled; AUROC is of the ranking of noisy clients; the error of an "
        "estimated T is half the mean L1 distance of its rows.",
        "The realised noise rate is the share of wrong labels that was drawn, mean of the seeds.",
    ]
    if len(frame):
        caption += f" {seeds_words(frame['seeds']).capitalize()}."
    if any("(n = " in cell.text for row in rows for cell in row.cells):
        notes.append("(n = k): only k of the seeds have the number; in the others there is nothing to be told apart.")
    if len(unknown):
        notes.append(f"unknown: nobody knows the clean labels of {', '.join(unknown['dataset_label'].unique())}.")
    return Grid(
        spec.get("title") or "Diagnostics",
        caption_of(spec, caption),
        "method",
        [[(DIAGNOSIS[key], 1) for key in shown]],
        rows,
        notes,
    )


def _estimate(row: pd.Series, name: str, digits: int) -> str:
    """A number of the diagnostics, and of how many seeds it is if not of all: some have none, such as the ranking of
    noisy clients where every client is noisy, or none is.
    """
    text, n = mean_std(row[f"{name}_mean"], row[f"{name}_std"], digits, True), row.get(f"{name}_n", row["seeds"])
    return f"{text} (n = {n:.0f})" if 0 < n < row["seeds"] else text


def _bold_means(frame: pd.DataFrame, ceiling: bool) -> str:
    """What bold says, and who takes no part."""
    tie = "" if (frame["seeds"] < 2).all() else f", and what ties with it: {TIE}"
    apart = [mark for mark in together(frame["marks"]) if mark in NO_MEMBERS]
    left_out = [*(["the row without noise"] if ceiling else []), *([" and ".join(apart)] if apart else [])]
    rest = f" Without a part in it: {', '.join(left_out)}." if left_out else ""
    return f"Bold: the highest mean of a column{tie}.{rest}"


def _told(row: pd.Series | None) -> str:
    """The mark behind the number of a method whose own rate is that of the setting."""
    return f" {ORACLE}" if row is not None and row.get("as_told", 0) else ""


LAYOUTS: dict[str, Callable[[pd.DataFrame, Mapping[str, Any]], Grid]] = {
    "accuracy": _accuracy,
    "cost": _cost,
    "diagnostics": _diagnostics,
    "reproduction": reproduction_layout.reproduction,
    "setup": reproduction_layout.setup,
}


def _pm(row: pd.Series | None, metric: str, digits: int) -> str:
    if row is None:
        return MISSING
    return diverged_words(row) or mean_std(row[f"{metric}_mean"], row[f"{metric}_std"], digits)

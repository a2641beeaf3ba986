"""Cost tables: what a run of each method costs."""

from collections.abc import Sequence

import pandas as pd

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun, list_timed
from workflow_scripts.report.runs.selection import RunSelection
from workflow_scripts.report.tables.kind import Spec, TableKind
from workflow_scripts.report.text.cells import (
    MISSING,
    Cell,
    Grid,
    GridRow,
    count_words,
    format_number,
    marked_method,
    mean_std,
)
from workflow_scripts.report.text.footnotes import merge_marks

SHOWN = {
    "rounds": ("rounds", 0),
    "work": ("work", 1),
    "up_mb": ("MB up", 2),
    "down_mb": ("MB down", 2),
    "seconds": ("seconds", 1),
    "cpu_seconds": ("CPU seconds", 1),
    "peak_memory_mb": ("peak memory, MB", 0),
}


class CostSettings(RunSelection):
    """Cost of a run of each method: rounds, work, traffic, parameters, time, memory; means over settings, seeds.

    Time and memory are taken from the runs on CPUs or the runs on GPUs, whichever are more numerous.
    """


def _cost_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """Tabulate the cost of a run of each method, mean and standard deviation over settings and seeds."""
    frame, names = frames.tabulate_results(runs), Names.of_runs(runs)
    frame = frame.assign(up_mb=frame["bytes_up"] / 1e6, down_mb=frame["bytes_down"] / 1e6)
    timed = {run.listed for run in list_timed(runs)}
    times = ("seconds", "cpu_seconds", "seconds_per_round", "peak_memory_mb")
    for key in ("device", *times):
        frame[key] = [run.cost.get(key) if run.listed in timed else None for run in runs]
    frame["timed"] = [run.listed in timed for run in runs]
    numbers = ("rounds", "work", "up_mb", "down_mb", *times)
    frame["parameters"] = [run.summary.get("parameters") or [] for run in runs]
    parts = []
    for (dataset, method), group in frame.groupby(["dataset", "method"], sort=False):
        parts.append(
            {
                "dataset": dataset,
                "dataset_label": names.parts[0][str(dataset)],
                "method": method,
                "method_label": group["method_label"].iloc[0],
                "marks": merge_marks(group["marks"]),
                "runs": len(group),
                "timed": int(group["timed"].sum()),
                "device": ", ".join(sorted(set(group["device"].dropna()))),
                "parameters": " / ".join(map(str, sorted({size for sizes in group["parameters"] for size in sizes}))),
                **frames.summarize_values(group, numbers),
                "epsilon": group["epsilon"].max(),
                "diverged": int(group["diverged"].sum()),
            }
        )
    return pd.DataFrame(parts)


def _lay_out_cost(frame: pd.DataFrame, spec: Spec) -> Grid:
    rows, several = [], frame["dataset"].nunique() > 1
    for _, block in frame.groupby("dataset", sort=False):
        if several:
            rows.append(GridRow(block["dataset_label"].iloc[0], [], "group"))
        for _, row in block.iterrows():
            cells = [
                Cell(mean_std(row[f"{key}_mean"], row[f"{key}_std"], digits, True))
                for key, (_, digits) in SHOWN.items()
            ]
            sizes = " / ".join(format_number(float(size), 0) for size in str(row["parameters"]).split(" / ") if size)
            rows.append(GridRow(marked_method(row), [Cell(sizes or MISSING), *cells]))
    devices = ", ".join(sorted({word for names in frame["device"] for word in str(names).split(", ") if word}))
    caption = (
        f"Cost of one run: mean ± standard deviation over settings and seeds ({count_words(frame['runs'], 'run')})."
    )
    notes = [
        "Work counts passes over samples, in rounds of FedAvg; MB are all clients' traffic over the whole run.",
        f"Time and memory as measured on: {devices or 'unknown'}.",
    ]
    if others := int((frame["runs"] - frame["timed"]).sum()):
        notes.append(f"Time and memory leave out {others} run{'s' * (others > 1)} on another kind of device.")
    return Grid(
        spec["title"] or "Cost",
        caption,
        "method",
        [[("parameters", 1), *((head, 1) for head, _ in SHOWN.values())]],
        rows,
        notes,
    )


KIND = TableKind(settings=CostSettings, frame=_cost_frame, layout=_lay_out_cost, texts=["device", "parameters"])

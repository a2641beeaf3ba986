"""Write the few numbers of a study that git keeps, and the CSVs for `dvc plots`, from run folders.

metrics.json has all of these numbers. headline.json has one number per method, since `dvc metrics show` gives each file
a row and each number a column. The step prints the leading methods, and the workflow prints them again at its end.
"""

import argparse
import math
from typing import Any

import pandas as pd

from fednoise_core.io import ArtifactError, write_json
from workflow_scripts.report.figures.axis_minimum import find_axis_minimum
from workflow_scripts.report.pages.headline import summary_lines
from workflow_scripts.report.runs.csv_files import write_csv
from workflow_scripts.report.runs.frames import IDS, by_round, count_diverged, tabulate_results
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.run import METRICS, RecordedRun, listed_runs, load
from workflow_scripts.report.text.footnotes import append_marks, marks_of
from workflow_scripts.steps.common import add_runs_arguments, run_step


def study_metrics(frame: pd.DataFrame) -> dict[str, Any]:
    """Collect the numbers that git keeps.

    Args:
        frame: `tabulate_results`.

    Returns:
        {method: {dataset/noise/partition: {best, last, last10_mean}}}, means over seeds as fractions with five
        decimals. A dot in an id becomes "_", as DVC reads dots as levels. If a run diverged, two counts, {diverged,
        runs}, replace the means.
    """
    cells: dict[str, Any] = {}
    for (dataset, noise, partition, method), group in frame.groupby(
        ["dataset", "noise", "partition", "method"], sort=True
    ):
        values = {key: round(float(group[key].mean()) / 100, 5) for key in METRICS}
        cell = {key: value for key, value in values.items() if not math.isnan(value)}
        if group["diverged"].any():
            cell = {"diverged": int(group["diverged"].sum()), "runs": len(group)}
        place = f"{dataset}/{noise}/{partition}".replace(".", "_")
        cells.setdefault(str(method).replace(".", "_"), {})[place] = cell
    return cells


def headline_numbers(frame: pd.DataFrame) -> dict[str, float | str]:
    """Collect one number per method.

    Args:
        frame: `tabulate_results`. Runs without noise count only if there are no others.

    Returns:
        {method: mean of the last ten evaluations over seeds and its settings with noise}, fractions with four decimals,
        in the order of the list of runs. If runs of a method diverged, a text such as "diverged (2 of 6)".
    """
    noisy = frame[~frame["noiseless"].astype(bool)]
    numbers: dict[str, float | str] = {}
    for method, group in (noisy if len(noisy) else frame).groupby("method", sort=False):
        name, value = str(method).replace(".", "_"), float(group["last10_mean"].mean()) / 100
        if group["diverged"].any():
            numbers[name] = f"diverged ({group['diverged'].sum()} of {len(group)})"
        elif not math.isnan(value):
            numbers[name] = round(value, 4)
    return numbers


def accuracy_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Make the table of accuracies for `dvc plots`.

    Args:
        frame: `tabulate_results`.

    Returns:
        One row per method and setting, in the order of the list of runs, with means over seeds in %. The method has its
        marks. If a run diverged, the means are empty, and a column `diverged` counts such runs.
    """
    labels = [append_marks(label, marks) for label, marks in zip(frame["method_label"], frame["marks"], strict=True)]
    labels = labels if len(set(labels)) == frame["method"].nunique() else list(frame["method"])
    grouped = frame.assign(method=labels).groupby(IDS, sort=False)
    table = grouped.agg(seeds=("seed", "size"), **{key: (key, "mean") for key in METRICS}, diverged=("diverged", "sum"))
    table.loc[table["diverged"] > 0, list(METRICS)] = math.nan
    table = (table if table["diverged"].any() else table.drop(columns="diverged")).reset_index()
    table.insert(0, "setting", table["dataset"] + "/" + table["noise"] + "/" + table["partition"])
    return table


def curves_table(runs: list[RecordedRun]) -> pd.DataFrame:
    """Make the table of curves for `dvc plots`, which shows what the figure `curves` draws.

    Args:
        runs: The runs of the study.

    Returns:
        One row per method, setting and evaluated round, with means over seeds in %: `accuracy`, and `drawn`, the mean
        of the last ten evaluations. Runs on clean labels are in every setting of their data set and partition. `start`
        is the lower end of the axis. A line ends before a run diverges, and `method` then says so.
    """
    frame, lost = by_round(runs), count_diverged(tabulate_results(runs))
    labels: dict[tuple[str, ...], str] = {}
    for run in runs:
        labels[(*run.listed.setting, run.listed.method)] = append_marks(run.label, marks_of(run.summary))
    labels |= {ids: f"{labels[ids]}, diverged ({count} of {n})" for ids, (count, n) in lost.items()}
    order = {name: place for place, name in enumerate(dict.fromkeys(run.listed.method for run in runs))}
    clean = {run.listed.noise for run in runs if is_noiseless(run.spec.get("noise", {}))}
    grouped = frame.dropna(subset=["value"]).groupby([*IDS, "round"], sort=False)
    table = grouped.agg(work=("work", "mean"), accuracy=("value", "mean"), drawn=("trailing", "mean")).reset_index()
    table = table.sort_values("method", key=lambda names: names.map(order), kind="stable")
    table["method"] = [labels[ids] for ids in table[IDS].itertuples(index=False, name=None)]
    noisy = table[~table["noise"].isin(clean)]
    if len(noisy):
        settings = noisy[IDS[:3]].drop_duplicates()
        none = table[table["noise"].isin(clean)].drop(columns="noise")
        none = settings.merge(none.assign(method=none["method"] + ", no noise"), on=["dataset", "partition"])
        table = pd.concat([noisy, none], ignore_index=True)
    table.insert(0, "setting", table["dataset"] + "/" + table["noise"] + "/" + table["partition"])
    last = table.groupby(["setting", "method"], sort=False).tail(1)
    panels = last.groupby(["dataset", "setting"])["drawn"].agg(list).groupby("dataset")
    table["start"] = table["dataset"].map(panels.agg(lambda lines: find_axis_minimum(*lines) or 0.0))
    return table[["setting", "method", "round", "work", "accuracy", "drawn", "start"]]


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    add_runs_arguments(parser)
    parser.add_argument("--out", required=True, help="metrics.json to write")
    parser.add_argument("--headline", required=True, help="JSON of one number per method")
    parser.add_argument("--accuracy", required=True, help="CSV of accuracies to write")
    parser.add_argument("--curves", required=True, help="CSV of curves to write")
    args = parser.parse_args(argv)

    def write_metrics() -> str:
        runs = load(listed_runs(args.runs_list))
        if not runs:
            raise ArtifactError(f"{args.runs_list}: no runs")
        frame = tabulate_results(runs)
        write_json(args.headline, headline_numbers(frame))
        write_csv(args.accuracy, accuracy_table(frame))
        write_csv(args.curves, curves_table(runs))
        write_json(args.out, study_metrics(frame))
        return "\n".join(summary_lines(runs) or [f"{len(runs)} runs"])

    return run_step("metrics", write_metrics, args)

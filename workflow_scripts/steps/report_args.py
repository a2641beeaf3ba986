"""What the report's command lines share: the runs that they show."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fednoise_core.report.runs.run import ListedRun, listed_runs
from workflow_scripts.steps import common


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """--root, --code, and the runs in one of two ways."""
    common.add_plan_arguments(parser)
    parser.add_argument("--root", default="results/study", help="results folder of the study, e.g. results/quick")
    parser.add_argument(
        "--runs-list",
        help="JSON list of {dataset, noise, partition, method, seed, dir, labels, partition_file, arrays}, or "
        "a study's index.csv; default: ROOT/index.csv",
    )


def shown_runs(args: argparse.Namespace) -> list[ListedRun]:
    """The runs that a command is to show."""
    return listed_runs(args.runs_list or args.root)


def run_report_step(name: str, work: Callable[[], str], args: argparse.Namespace, *, figures: bool = False) -> int:
    """Do the work of the step `name` and print its line; see `step.run`. figures: it draws all pictures of settings."""
    return common.run_step(
        name, work, lambda steps: steps.report_entries(name, steps.setting_figure_kinds() if figures else ()), args
    )

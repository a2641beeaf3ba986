"""What the report's command lines share: the runs that they show."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fednoise_core.report.runs.run import ListedRun, listed_runs
from workflow_scripts.steps import common


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --root, --code, and the two ways to give the runs."""
    common.add_plan_arguments(parser)
    parser.add_argument("--root", default="results/study", help="results folder of the study, e.g. results/quick")
    parser.add_argument(
        "--runs-list",
        help="JSON list of {dataset, noise, partition, method, seed, dir, labels, partition_file, arrays}, or "
        "a study's index.csv; default: ROOT/index.csv",
    )


def shown_runs(args: argparse.Namespace) -> list[ListedRun]:
    """Read the runs that a command is to show."""
    return listed_runs(args.runs_list or args.root)


def run_report_step(name: str, work: Callable[[], str], args: argparse.Namespace, *, figures: bool = False) -> int:
    """Do the work of a report's step and print its line.

    Args:
        name: The name of the step.
        work: Does it and returns the line.
        args: The parsed arguments.
        figures: It draws all figures of settings.

    Returns:
        The exit status.
    """
    return common.run_step(
        name, work, lambda steps: steps.report_entries(name, steps.setting_figure_kinds() if figures else ()), args
    )

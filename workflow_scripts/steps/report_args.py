"""What the report's command lines share: the runs that they show."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from fednoise_core.report.runs.run import ListedRun, listed_runs
from workflow_scripts.steps import common


def runs_arguments(parser: argparse.ArgumentParser) -> None:
    """--root, --code, and the runs in one of two ways."""
    common.plan_arguments(parser)
    parser.add_argument("--root", default="results/study", help="results folder of the study, e.g. results/quick")
    parser.add_argument(
        "--runs-list",
        help="JSON list of {dataset, noise, partition, method, seed, dir, labels, partition_file, arrays}, or "
        "a study's index.csv; default: ROOT/index.csv",
    )


def shown_runs(args: argparse.Namespace) -> list[ListedRun]:
    """The runs that a command is to show."""
    return listed_runs(args.runs_list or args.root)


def run(
    name: str, work: Callable[[], str], args: argparse.Namespace, *, figures: bool = False, tables: Iterable[str] = ()
) -> int:
    """Do the work of the step `name` and print its line; see `common.run`. figures: it draws all pictures of settings.
    tables: the kinds of tables that it makes or shows.
    """
    return common.run(
        name, work, lambda steps: steps.report(name, steps.setting_figures() if figures else (), tables), args
    )

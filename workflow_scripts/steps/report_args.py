"""Arguments that the report's command lines share: the runs that they show."""

import argparse
from collections.abc import Callable, Iterable

from workflow_scripts.provenance.step_code import StepCode
from workflow_scripts.report.runs.run import ListedRun, listed_runs
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


def run_report_step(
    name: str,
    work: Callable[[], str],
    args: argparse.Namespace,
    *,
    settings: bool = False,
    figures: Iterable[str] = (),
    tables: Iterable[str] = (),
) -> int:
    """Do the work of the step `name` and print its line, as `common.run_step`.

    Args:
        name: The step.
        work: Makes its files, and returns the line.
        args: Of the command line.
        settings: Whether it draws all pictures of settings.
        figures: The kinds of figures that it shows.
        tables: The kinds of tables that it makes or shows.
    """

    def entries(steps: StepCode) -> list[str]:
        drawn = steps.setting_figure_kinds() if settings else []
        return steps.report_entries(name, [*drawn, *figures], tables)

    return common.run_step(name, work, entries, args)

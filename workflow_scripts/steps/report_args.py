"""Arguments that the report's command lines share: the runs that they show."""

import argparse
from collections.abc import Callable, Iterable

from workflow_scripts.provenance.step_code import StepCode
from workflow_scripts.steps import common


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a planned step, and the runs that it shows."""
    common.add_plan_arguments(parser)
    parser.add_argument(
        "--runs-list",
        required=True,
        help="JSON list of {dataset, noise, partition, method, seed, dir, labels, partition_file, arrays}, or "
        "a study's index.csv",
    )


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

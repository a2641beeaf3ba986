"""What the report's command lines share: settings as JSON (in the argument, or in a file), and their run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fednoise_core.report.runs import ListedRun, listed_runs
from workflow_scripts import step

__all__ = ["json_argument", "run", "runs_arguments", "shown_runs"]


def json_argument(text: str) -> dict[str, Any]:
    """An argument that is JSON itself or the path of a JSON file; one argument may not exceed 128 KiB on Linux."""
    try:
        value = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"neither JSON nor a JSON file: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def runs_arguments(parser: argparse.ArgumentParser) -> None:
    """--root, --code, and the runs in one of two ways."""
    step.plan_arguments(parser)
    parser.add_argument("--root", default="results/study", help="results folder of the study, e.g. results/quick")
    parser.add_argument(
        "--runs-list",
        help="JSON list of {dataset, noise, partition, method, seed, dir, labels, partition_file, arrays}, or "
        "a study's index.csv; default: ROOT/index.csv",
    )


def shown_runs(args: argparse.Namespace) -> list[ListedRun]:
    """The runs that a command is to show."""
    return listed_runs(args.runs_list or args.root)


def run(name: str, work: Callable[[], str], args: argparse.Namespace, *, figures: bool = False) -> int:
    """Do the work of the step `name` and print its line; see `step.run`. figures: it draws all pictures of settings."""
    return step.run(name, work, lambda steps: steps.report(name, steps.setting_figures() if figures else ()), args)

"""Parts that the steps' command lines share: the check of their own code, errors in one line, exit codes.

Exit codes of every command here:

- 0: done.
- 1: refused, findings, or a defect of the program, which prints a traceback.
- 2: a user's error (settings, files, arguments, or code that changed), described in one line.
- 75: interrupted, or the disk is full or gone. Run the same command to resume.
"""

import argparse
import errno
import json
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.provenance.step_code import ROOT, CodeChanged, StepCode

USER_ERROR = 2
INTERRUPTED = 75  # "try again later"
STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS}  # the disk is full or gone


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the hash of the planned code, and for the list of SHA-256 that marks a finished step."""
    parser.add_argument("--code", default="", help="required hash of the step's code; default: any")
    parser.add_argument("--sums", type=Path, help="file for the SHA-256 of every file in its folder, written last")


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a planned step, and the runs that it shows."""
    add_plan_arguments(parser)
    parser.add_argument(
        "--runs-list",
        required=True,
        help="JSON list of {dataset, noise, partition, method, seed, dir, labels, partition_file, arrays}, or "
        "a study's index.csv",
    )
    parser.add_argument("--place", default="", help="place of the settings in the study's file, for errors")


def make_setting_parser(artifact: str, text: str | None) -> argparse.ArgumentParser:
    """Make the command line of a step that makes an artifact of a setting.

    Args:
        artifact: The name of the artifact.
        text: What the step does.

    Returns:
        The parser, without the arguments of the artifacts that only this step reads.
    """
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--spec", required=True, type=json_argument, help=f"settings of the {artifact} as JSON")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--arrays", required=True, help="arrays artifact of the data set")
    parser.add_argument("--out", required=True, help="artifact to write")
    add_plan_arguments(parser)
    return parser


def json_argument(text: str) -> dict[str, Any]:
    """Parse an argument that is JSON itself or the path of a JSON file.

    Linux allows 128 KiB for one argument, so that long JSON needs a file.

    Args:
        text: The argument.

    Raises:
        ArgumentTypeError: It is neither, or not a JSON object.
    """
    try:
        value = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"neither JSON nor a JSON file: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def run_step(name: str, work: Callable[[], str], args: argparse.Namespace, **names: Iterable[str]) -> int:
    """Run a step and print a line about its result.

    Args:
        name: The name of the step.
        work: Does the step's work and returns the line.
        args: The parsed arguments, see `add_plan_arguments`.
        names: Family → names that the step's code depends on, as in `StepCode.step_entries`.

    Returns:
        The exit status.
    """
    label = ": ".join(filter(None, (name, vars(args).get("place"))))
    try:
        if args.code:
            steps = StepCode(ROOT)
            steps.check_hash(args.code, steps.step_entries(name, **names))
        line = work()
        if args.sums:
            write_sums(args.sums.parent)
        print(line)
    except (SpecError, ArtifactError, CodeChanged, OSError) as error:
        return report_error(label, error)
    except Exception as error:  # the last line names the part of the study, and the line of a user's own code
        traceback.print_exc()
        print(f"{label}: {type(error).__name__}: {error}{_find_line(error)}", file=sys.stderr)
        return 1
    return 0


def _find_line(error: Exception) -> str:
    """Find the innermost line of the project's code that an error passed through: " (file, line 1)", or ""."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).resolve()
        # the project's folder may hold .venv
        if file.is_file() and file.is_relative_to(ROOT) and "site-packages" not in file.relative_to(ROOT).parts:
            return f" ({file.relative_to(ROOT)}, line {frame.lineno})"
    return ""


def report_error(name: str, error: Exception) -> int:
    """Print an error in one line.

    Args:
        name: The name of the step.
        error: A user's error, or an error of the system, such as a full disk or a lost network folder.

    Returns:
        The exit status.
    """
    numbers = {getattr(cause, "errno", None) for cause in (error, error.__cause__)}  # NotSaved: its cause has it
    storage = isinstance(error, OSError) and not numbers.isdisjoint(STORAGE)
    cure = ". The settings are not at fault. Make room on the disk, or mount it again, and run the same command"
    print(f"{name}: {error}{cure if storage else ''}", file=sys.stderr)
    return INTERRUPTED if storage else USER_ERROR

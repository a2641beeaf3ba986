"""What the steps' command lines share: the check of their own code, errors in one line, exit codes.

Exit codes of every command here: 0 done; 2 a user's error (settings, files, arguments, or code that changed), said in
one line; 1 refused, findings, or a defect of the program, which shows where; 75 stopped, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.stepcode import ROOT, CodeChanged, StepCode

__all__ = ["STOPPED", "USER_ERROR", "code_argument", "run", "spec_of"]

USER_ERROR = 2
STOPPED = 75  # "try again later"


def code_argument(parser: argparse.ArgumentParser) -> None:
    """--code."""
    parser.add_argument("--code", default="", help="hash that the step's code must have; without it any will do")


def spec_of(text: str) -> dict[str, Any]:
    """The value of --spec. Raises SpecError if it is no JSON mapping."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise SpecError(f"--spec: {text} is no mapping of settings")
    return found


def run(name: str, work: Callable[[], str], entries: Callable[[StepCode], list[str]], code: str) -> int:
    """Do a step's work and print its line; returns the exit code.

    entries: the files that the step's code hash starts from. code: the hash it must have; "": any.
    """
    try:
        if code:
            steps = StepCode(ROOT)
            steps.check(code, entries(steps))
        print(work())
    except (SpecError, ArtifactError, CodeChanged, json.JSONDecodeError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return USER_ERROR
    return 0

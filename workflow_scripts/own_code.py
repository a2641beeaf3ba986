"""Which code this process runs. A job is planned with one state of the code and may start hours later with another;
then its results would be recorded as made by code that did not make them.

`BEFORE` holds how the project's files were when this process began: `workflow_scripts/__init__.py` imports this module
before anything else is loaded. Files that nobody has touched since then are what Python has loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from workflow_scripts.codehash import PACKAGES, closure

__all__ = ["BEFORE", "ROOT", "CodeChanged", "own_code"]

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "nothing was computed; start it again (a workflow: snakemake)"


class CodeChanged(RuntimeError):
    """The code is not the one that this job was planned with."""


def _state(path: Path) -> tuple[int, ...]:
    """Changes with every write, also one that is undone a moment later: the kernel keeps the time of the last change,
    and no program can set it back.
    """
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _states() -> dict[str, tuple[int, ...]]:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): _state(path) for path in found}


BEFORE = _states()


def own_code(entries: Callable[[Path], tuple[Iterable[str], str]], expected: str = "", *, load: bool = True) -> str:
    """The hash under which this process's results are recorded.

    entries: for the project's folder, the files that a step's code starts from, and their hash (see `StepCode`).
    expected: the hash that the job was planned with; "": any. load: import all of the code first, so that none of it
    is read later. Raises CodeChanged if the code is another one, or was touched since the process began.
    """
    files, code = entries(ROOT)
    if expected and code != expected:
        raise CodeChanged(f"the code has changed since this job was planned (now {code}, then {expected}): {AGAIN}")
    known = [file for file in closure(ROOT, *files) if ":" not in file]
    if load:
        for file in known:
            importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for file in known:
        if file.split("/")[0] not in PACKAGES:  # the user's: looked at first when a job names it, before it is loaded
            BEFORE.setdefault(file, _state(ROOT / file))
        if BEFORE.get(file) != _state(ROOT / file):
            raise CodeChanged(f"{file} was changed while this job started: {AGAIN}")
    return code

"""Say, and record in git, that an edit of the code changes no number, so that nothing is made again.

python -m workflow_scripts.same_numbers --since HEAD --why "renamed a helper"     before or after the commit
python -m workflow_scripts.same_numbers --since HEAD~1 --steps train --why "…"

For every step that the configs use and whose code hash differs from the one at `--since`, a line new, old, step, why is
added to config/same_numbers.csv: results of the new code are then recorded, and found, under the old hash. Before that
the tests that compare numbers with kept ones must pass (TESTS). Another edit of the same code gives another hash, of
which no line speaks. To take it back, remove the lines.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError, atomic
from workflow_scripts.codehash import PACKAGES, closure_hash
from workflow_scripts.config_file import deep_merge, read_yaml
from workflow_scripts.equal_code import COLUMNS, FILE, first_of, recorded
from workflow_scripts.project import Project
from workflow_scripts.runs import net_code
from workflow_scripts.step import USER_ERROR
from workflow_scripts.stepcode import StepCode
from workflow_scripts.study import Study

__all__ = ["add", "differing", "used"]

STEPS = ("download", "noise", "partition", "train")  # tables, figures and pages are made again in seconds
TESTS = {  # what must pass before numbers may be called the same
    "download": ["tests/test_data_official.py", "tests/test_data_digits.py", "tests/test_data_own.py"],
    "noise": ["tests/test_noise_models.py", "tests/test_noise_levels.py", "tests/test_noise_asymmetric.py"],
    "partition": ["tests/test_partition_schemes.py"],
    "train": ["tests/methods/test_contract.py"],
}


def used(folder: Path) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Each step that some study at some scale needs, in words → (its name in STEPS, its arguments)."""
    found: dict[str, tuple[str, tuple[Any, ...]]] = {}
    for study in _studies(folder):
        for run in study.runs:
            spec = run.spec
            source, noise, partition = spec["dataset"]["source"], spec["noise"]["kind"], spec["partition"]["kind"]
            method, nets = spec["method"]["name"], tuple(net_code(spec["train"]))
            public = spec["dataset"].get("public")
            other = f" {public['dataset']}" if isinstance(public, dict) else ""
            found[f"download {source}{other}"] = "download", (spec["dataset"],)
            found[f"noise {noise}"] = "noise", (noise,)
            found[f"partition {partition}"] = "partition", (partition,)
            found[f"train {method} {' '.join(nets)}"] = "train", (method, nets)
    return found


def _studies(folder: Path) -> Iterator[Study]:
    config = read_yaml(folder / "config/config.yaml")
    scales = [read_yaml(path) for path in sorted((folder / "config/scales").glob("*.yaml"))]
    for one in ({**config, "scale": "paper", "overlay": {}}, *(deep_merge(config, scale) for scale in scales)):
        project = Project(one, folder)
        for name in project.names:
            try:
                yield Study(project, name)
            except SpecError as error:  # the user's own data are elsewhere, say
                print(f"same_numbers: {name} at scale {project.scale} is left out: {error}", file=sys.stderr)


def differing(folder: Path, since: Path, steps: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    """(new hash, old hash, name in STEPS, words) of every used step whose code differs from that in `since`."""
    new, old, same = StepCode(folder), StepCode(since), recorded(folder)
    found = []
    for words, (step, arguments) in used(folder).items():
        if step not in steps:
            continue
        try:
            before = first_of(closure_hash(since, *getattr(old, step)(*arguments)), same)
        except FileNotFoundError as error:
            missing = Path(str(error.filename)).relative_to(since)
            raise SpecError(f"{words}: {missing} is not in the older code, so the two cannot be compared") from error
        now = closure_hash(folder, *getattr(new, step)(*arguments))
        if first_of(now, same) != before:
            found.append((now, before, step, words))
    return sorted(set(found), key=lambda row: (row[2], row[3]))


def add(folder: Path, rows: list[tuple[str, str, str, str]], why: str) -> None:
    """Add lines to same_numbers.csv. Raises SpecError if one contradicts a line that is there."""
    path, known = folder / FILE, recorded(folder)
    lines = path.read_text(encoding="utf-8") if path.is_file() else ",".join(COLUMNS) + "\n"
    more = io.StringIO()
    for now, before, _, words in rows:
        if now in known:
            raise SpecError(f"{FILE}: {now} ({words}) is said to be {known[now]} already, not {before}")
        if first_of(before, known) == now:
            raise SpecError(f"{FILE}: {before} ({words}) already stands for {now}: this code is the older one")
        csv.writer(more, lineterminator="\n").writerow((now, before, words, why))
    with atomic(path) as file:
        file.write(lines + more.getvalue())


def _code_at(commit: str, folder: Path, target: Path) -> None:
    """Put the code of a commit into `target`."""
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit, "--", *PACKAGES], cwd=folder, capture_output=True, check=False
    )
    if done.returncode:
        raise SpecError(f"--since {commit}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: recorded, or nothing to record; 1: the tests fail; 2: it cannot be said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", required=True, help="commit whose code gives the same numbers, such as HEAD")
    parser.add_argument("--why", required=True, help="what the edit was, in a line")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    options, folder = parser.parse_args(arguments), Path()
    try:
        if not options.why.strip() or not options.why.isprintable():
            raise SpecError("--why: say in a line what the edit was")
        with tempfile.TemporaryDirectory() as since:
            _code_at(options.since, folder, Path(since))
            rows = differing(folder, Path(since), tuple(options.steps))
        tests = [test for step in STEPS if any(row[2] == step for row in rows) for test in TESTS[step]]
        if tests and subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], check=False).returncode:
            print("same_numbers: these tests must pass first; nothing was recorded", file=sys.stderr)
            return 1
        if rows:
            add(folder, rows, options.why)
    except SpecError as error:
        print(f"same_numbers: {error}", file=sys.stderr)
        return USER_ERROR
    for now, before, _, words in rows:
        print(f"{words}: {now} gives the numbers of {before}")
    print(f"same_numbers: {len(rows)} lines added to {FILE}" + ("; commit it with the edit" if rows else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())

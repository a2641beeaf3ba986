"""Why runs would be made again: keys of their settings with old and new value, or their code.

python -m workflow_scripts.why [TARGET…] [--config scale=cpu …]

Targets are those of `workflow_scripts.plan`; without one the configured studies. Compares what a run's spec.json says
with what the config asks for now. Inputs that changed, tables and figures: `snakemake -n --quiet host` says those.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.io import ArtifactError, SpecError, canonical
from workflow_scripts.config_file import read_yaml
from workflow_scripts.plan import planned_runs
from workflow_scripts.project import Project
from workflow_scripts.runs import PlannedRun, net_code
from workflow_scripts.stepcode import StepCode

__all__ = ["changes", "differences"]

MISSING = object()
MOST = 12


def differences(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """ "method.mu: 0.01 → 0.1" for each key whose value differs; a setting at its default stands in no spec."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from differences(old.get(name, MISSING), new.get(name, MISSING), f"{key}.{name}" if key else name)
    elif not _same(old, new):
        yield f"{key}: {_value(old)} → {_value(new)}"


def _same(old: Any, new: Any) -> bool:
    if old is MISSING or new is MISSING:
        return False
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new))
    return old == new if numbers else canonical(old) == canonical(new)


def _value(value: Any) -> str:
    text = "default" if value is MISSING else canonical(value)
    return text if len(text) <= 60 else text[:59] + "…"


def changes(runs: Iterable[PlannedRun], code: Callable[[PlannedRun], str] | None = None) -> list[str]:
    """One line a difference with the number of its runs, most first. Runs that were never made are one line.

    code: the hash of the code that would train a run, if that is to be compared, too.
    """
    found: Counter[str] = Counter()
    methods: dict[str, set[str]] = {}
    for run in runs:
        path = Path(run.folder, "spec.json")
        try:
            made = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            said = ["not made yet"]
        except (OSError, ValueError):
            said = ["spec.json is not readable"]
        else:
            said = list(differences(made.get("spec", {}), run.spec))
            said += ["code changed"] if code and made.get("code") != code(run) else []
        for line in said:
            found[line] += 1
            methods.setdefault(line, set()).add(run.method)
    lines = [
        f"  {count:>4} run{'s' if count > 1 else ' '}  {line}{_of(methods[line], line)}"
        for line, count in found.most_common(MOST)
    ]
    return [*lines, *([f"        and {len(found) - MOST} more differences"] if len(found) > MOST else [])]


def _of(methods: set[str], line: str) -> str:
    named = ", ".join(sorted(methods)[:4]) + (", …" if len(methods) > 4 else "")
    return "" if line == "not made yet" else f"  ({named})"


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for a mistake in the config or an unknown target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="studies, their parts, or papers (default: the configured studies)")
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="such as scale=cpu")
    args = parser.parse_args(argv)
    try:
        told = {key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in args.config)}
        project, steps = Project({**read_yaml("config/config.yaml"), **told}), StepCode(".")

        def code(run: PlannedRun) -> str:
            return steps.code(steps.train(run.spec["method"]["name"], net_code(run.spec["train"])))

        for name, runs in planned_runs(project, args.targets or project.studies).items():
            lines = changes(runs, code)
            print("\n".join([f"{name}:", *(lines or ["  settings and code of all runs are as they were"])]))
    except (SpecError, ArtifactError) as error:
        print(f"why: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

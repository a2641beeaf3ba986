"""One cell of a paper's table or figure: names → the Snakemake target of its training run, which is then made.

python -m workflow_scripts.cell --paper feddpcont --table 2 --method fedcorr --noise sym40 --seed 0 [--scale cpu]

or `make cell PAPER=feddpcont TABLE=2 METHOD=fedcorr NOISE=sym40 SEED=0`. Names are the ids of the paper's file in
config/papers; data sets have those of the paper at every scale. What the table has only one value of need not be said.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Mapping

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.config_file import hint, read_yaml
from workflow_scripts.project import Project
from workflow_scripts.runs import PlannedRun
from workflow_scripts.step import USER_ERROR
from workflow_scripts.study import Study

__all__ = ["main", "resolve"]

FIELDS = ("dataset", "noise", "partition", "method", "seed")


def resolve(project: Project, wanted: Mapping[str, str | None]) -> PlannedRun:
    """The run that `wanted` (paper, table or figure, FIELDS) names. SpecError says which key names nothing, or which
    is missing.
    """
    paper, part = wanted.get("paper") or "", wanted.get("table") or wanted.get("figure") or ""
    part = f"{'table' if wanted.get('table') else 'figure'}{part}" if part.isdigit() else part
    if not part:
        raise SpecError("say TABLE= or FIGURE=")
    if paper not in project.names:
        raise SpecError(f"PAPER={paper}: no such study{hint(paper, project.names)}")
    study = Study(project, paper)
    shown = {**study.full.get("tables", {}), **study.full.get("figures", {})}
    if part not in shown:
        raise SpecError(f"{study.place.file}: no table or figure is named {part!r}{hint(part, shown)}")
    study.check_present(part)
    runs, where = (
        study.select({**study.tables, **study.figures}[part]),
        f"{study.place.file}: {part}, scale {project.scale}",
    )
    if not runs:
        raise SpecError(f"{where}: {part} shows no run")
    for field in FIELDS:
        known = {name for run in runs for name in _names(study, field, run)}
        value = wanted.get(field)
        if value is not None and value not in known:
            raise SpecError(f"{where}: {field.upper()}={value}: no such run{hint(value, known)}")
        runs = [run for run in runs if value is None or value in _names(study, field, run)]
    for field in FIELDS:
        found = {_names(study, field, run)[0] for run in runs}
        if len(found) != 1:
            raise SpecError(
                f"{where}: {len(runs)} runs are meant: add {field.upper()}=, one of {', '.join(sorted(found))}"
            )
    return runs[0]


def _names(study: Study, field: str, run: PlannedRun) -> list[str]:
    """What a run's field is called: a data set by the paper's ids, whatever stands in for them, and by its own."""
    value = str(getattr(run, field))
    back = [name for name, stand in study.stand_ins.items() if stand == value] if field == "dataset" else []
    return [*back, value]


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for a cell that there is not, else Snakemake's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("paper", "table", "figure", *FIELDS):
        parser.add_argument(f"--{name}", required=name == "paper")
    parser.add_argument("--scale", default="paper", help="paper (default), cpu or smoke")
    parser.add_argument("--show", action="store_true", help="print the command, run nothing")
    args = parser.parse_args(argv)
    try:
        run = resolve(Project({**read_yaml("config/config.yaml"), "scale": args.scale}), vars(args))
    except (SpecError, ArtifactError) as error:
        print(f"cell: {error}", file=sys.stderr)
        return USER_ERROR
    command = [
        "snakemake",
        "--cores",
        "1",
        run.files.run.sums,
        "--config",
        f"scale={args.scale}",
        f"studies=[{args.paper}]",
    ]
    print(shlex.join(command))
    return 0 if args.show else subprocess.run([sys.executable, "-m", *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

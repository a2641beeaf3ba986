"""One cell of a paper's table or figure without the workflow: its files, then its training run, in the workflow's own
run folder. `snakemake` then takes the run as made.

python -m workflow_scripts.cell --paper feddpcont --table 2 --method fedcorr --noise sym40 --seed 0 [--scale cpu]

or `make cell PAPER=feddpcont TABLE=2 METHOD=fedcorr NOISE=sym40 SEED=0`. Names are the ids of the paper's file in
config/papers; data sets have those of the paper at every scale. What the table has only one value of need not be said.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fednoise_core.io import ArtifactError, SpecError, canonical
from workflow_scripts import by_hand
from workflow_scripts.config_file import hint, read_yaml
from workflow_scripts.job_records import job_record
from workflow_scripts.paths import RUN_OUTPUTS
from workflow_scripts.project import Project
from workflow_scripts.runs import PlannedRun
from workflow_scripts.step import USER_ERROR
from workflow_scripts.stepcode import StepCode
from workflow_scripts.study import Study
from workflow_scripts.training import is_finished

__all__ = ["main", "resolve"]

FIELDS = ("dataset", "noise", "partition", "method", "seed")


def resolve(project: Project, wanted: Mapping[str, str | None]) -> tuple[Study, PlannedRun]:
    """The study and the run that `wanted` (paper, table or figure, and FIELDS) names. SpecError says which key names
    nothing, with the nearest name, or which is missing.
    """
    paper, part = wanted.get("paper") or "", _part(wanted)
    if paper not in project.names:
        raise SpecError(f"PAPER={paper}: no such study{hint(paper, project.names)}")
    study = Study(project, paper)
    shown = {**study.full.get("tables", {}), **study.full.get("figures", {})}
    if part not in shown:
        raise SpecError(f"{study.place.file}: no table or figure is named {part!r}{hint(part, shown)}")
    study.check_present(part)
    runs = study.select({**study.tables, **study.figures}[part])
    if not runs:
        raise SpecError(f"{study.place.file}: {part} shows no run at scale {project.scale}")
    for field in FIELDS:
        value = wanted.get(field)
        if value is None:
            continue
        chosen = [run for run in runs if value in _names(study, field, run)]
        if not chosen:
            known = {name for run in runs for name in _names(study, field, run)}
            where = f"{study.place.file}: {part}, scale {project.scale}: {field.upper()}={value}"
            raise SpecError(f"{where}: no such run{hint(value, known)}")
        runs = chosen
    for field in FIELDS:
        found = {getattr(run, field): _names(study, field, run)[0] for run in runs}
        if len(found) > 1:
            meant = f"{len(runs)} runs of {paper}_{part} are meant"
            raise SpecError(f"{meant}: add {field.upper()}=, one of {', '.join(found.values())}")
    return study, runs[0]


def _part(wanted: Mapping[str, str | None]) -> str:
    """The id of a table or figure; a bare number is the paper's."""
    told = [(key, value) for key in ("table", "figure") if (value := wanted.get(key))]
    if len(told) != 1:
        raise SpecError("say TABLE= or FIGURE=, one of the two")
    key, value = told[0]
    return f"{key}{value}" if value.isdigit() else value


def _names(study: Study, field: str, run: PlannedRun) -> list[str]:
    """What a run's field is called: a data set by the paper's ids, whatever stands in for them, and by its own."""
    value = str(getattr(run, field))
    back = [name for name, stand in study.stand_ins.items() if stand == value] if field == "dataset" else []
    return [*back, value]


def train_command(told: Mapping[str, object], device: str) -> list[str]:
    """The training command of a run, as the rule calls it."""
    files = [
        part
        for name in ("arrays", "labels", "partition", "donor", "out", "work")
        if told.get(name)
        for part in (f"--{name}", str(told[name]))
    ]
    spec = canonical(told["spec"])
    command = [sys.executable, "-m", "workflow_scripts.train", "--code", str(told["code"]), "--spec", spec]
    return [*command, "--ids", str(told["ids"]), *files, "--device", device]


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for a cell that there is not, else that of the training command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", required=True, help="feddpcont, fedefc, fedhnl or fedmixcon, or any study")
    parser.add_argument("--table", help="the paper's number, or an id")
    parser.add_argument("--figure", help="the same of a figure")
    for field in FIELDS:
        parser.add_argument(f"--{field}")
    parser.add_argument("--scale", help="paper (default), cpu or smoke")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--show", action="store_true", help="print the commands, run nothing")
    args = parser.parse_args(argv)
    try:
        config = read_yaml("config/config.yaml")
        project = Project({**config, **({"scale": args.scale} if args.scale else {})})
        study, run = resolve(project, vars(args))
        steps = StepCode()
        before, told = by_hand.preparations(project, study, run, steps), by_hand.as_dict(run, steps)
        command = train_command(told, args.device)
        if args.show:
            modules = [["python", "-m", f"workflow_scripts.{one.module}", *one.arguments] for one in before]
            print("\n".join(map(shlex.join, [*modules, ["python", *command[1:]]])))
            return 0
        project.export()
        made, status = by_hand.make(before)
        if status:
            return status
        output = f"{run.folder}/{RUN_OUTPUTS[0]}"
        finished = is_finished(by_hand.as_job(told))
        if finished:
            print(f"{run.folder}: made already")
        else:
            status = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode
            if status:
                return status
        # a record that is there stays: the ledger has it, and would take a second one for tampering
        unknown = [] if finished and job_record(output) else [output]
        if made or unknown:
            by_hand.record([*made, *unknown], project.scale)
        accuracy = json.loads(Path(run.folder, "summary.json").read_text(encoding="utf-8"))["accuracy"]
        print(f"{run.folder}: best {100 * accuracy['best']:.2f} %, last {100 * accuracy['last']:.2f} %")
    except (SpecError, ArtifactError) as error:
        print(f"cell: {error}", file=sys.stderr)
        return USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())

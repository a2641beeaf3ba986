"""Train one cell of a paper's table or figure.

fednoise cell --paper feddpcont --table 2 --method fedcorr --noise sym40 --seed 0 [--scale cpu]

The names are the ids in the paper's file at every scale. If the table has only one id of a kind, it may be left out.
"""

import argparse
import shlex
from collections.abc import Mapping

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import did_you_mean
from workflow_scripts.commands.run import start_snakemake
from workflow_scripts.config.project import Project
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.study import Study

FIELDS = ("dataset", "noise", "partition", "method", "seed")


def resolve_run(project: Project, ids: Mapping[str, str | None]) -> PlannedRun:
    """Find the run that `ids` (paper, table or figure, FIELDS) names. SpecError: no run or several runs match."""
    study, key = Study(project, str(ids["paper"])), "table" if ids.get("table") else "figure"
    part = ids.get(key) or ""
    part = f"{key}{part}" if part.isdigit() else part
    study.check_present(part)
    runs = study.select_runs({**study.tables, **study.figures}[part])
    return find_only_run(study, runs, ids, f"{study.place.file}: {part}")


def find_only_run(study: Study, runs: list[PlannedRun], ids: Mapping[str, str | None], where: str) -> PlannedRun:
    """Find the only run that has the wanted ids.

    Args:
        study: The study of the runs.
        runs: Planned runs.
        ids: Ids by the names in FIELDS. None matches any id.
        where: Beginning of the message.

    Raises:
        SpecError: No run or several runs match.
    """
    for field, value in ((field, ids.get(field)) for field in FIELDS):
        names = {name for run in runs for name in _field_names(study, field, run)}
        runs = [run for run in runs if value is None or value in _field_names(study, field, run)]
        if not runs:
            raise SpecError(f"{where}: {field}: no run has {value!r}{did_you_mean(str(value), names)}")
    for field in FIELDS:
        choices = sorted({_field_names(study, field, run)[0] for run in runs})
        if len(choices) > 1:
            raise SpecError(f"{where}: {len(runs)} runs are left. Add --{field}: one of {', '.join(choices)}")
    return runs[0]


def _field_names(study: Study, field: str, run: PlannedRun) -> list[str]:
    """List the ids that match a run's field: its own, and the data sets that its data set replaces at this scale."""
    value = str(getattr(run, field))
    return [*(name for name, used in study.dataset_substitutes.items() if field == "dataset" and used == value), value]


def main(arguments: list[str] | None = None) -> int:
    """Run the command: start Snakemake for the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("paper", "table", "figure", *FIELDS):
        parser.add_argument(f"--{name}", required=name == "paper", help=f"{name} of the cell")
    parser.add_argument("--scale", default="paper", help="paper, or a file of config/scales (default: paper)")
    parser.add_argument("--show", action="store_true", help="print Snakemake's command line and run nothing")
    args = parser.parse_args(arguments)
    run = resolve_run(Project.load(scale=args.scale), vars(args))
    command = ["--cores", "1", run.plan.sums_file, "--config", f"scale={args.scale}", f"studies=[{args.paper}]"]
    print(shlex.join(["snakemake", *command]), flush=True)
    return 0 if args.show else start_snakemake(command)

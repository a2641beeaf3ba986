"""What targets would take before anything is started: runs, hours on this machine, disk.

python -m workflow_scripts.plan [TARGET…] [--config scale=cpu …] [--cores N]

A target is a study, one of its parts (quick_runs, quick_main), or `papers`; without one the configured studies.
Hours follow from images times the net's rate, which is measured here for a moment (workflow_scripts/rates.py), times
what the method needs more than FedAvg: its processor time in the published study cpu-fmnist, else its passes per step.
Runs that are made already are not counted, whether their settings are the same or not: `snakemake -n` knows that.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.data.facts import FACTS
from fednoise_core.io import ArtifactError, SpecError, canonical
from fednoise_core.methods import METHODS, method_class
from fednoise_core.report.marks import PERSONAL
from fednoise_core.spec import Train
from workflow_scripts.config_file import read_yaml
from workflow_scripts.project import PARTS, Project
from workflow_scripts.rates import Rate, Rates
from workflow_scripts.runs import PlannedRun
from workflow_scripts.study import Study

__all__ = ["Cost", "cost_of", "hours", "images", "planned_runs", "told", "words"]

MEASURED = "cpu-fmnist"  # the study whose published costs say what a method needs more than FedAvg
COSTS = Path("docs/results", MEASURED, "cost.csv")
FORWARD = 1 / 3  # what scoring an image costs of what training on it does
START = 8.0  # seconds until a process has imported torch and read its data
FILES = 200_000  # bytes of a run's small files
PER_SAMPLE = 60  # bytes of a line of suspects.csv
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Cost:
    """Of one run: CPU seconds, bytes on disk."""

    seconds: float
    disk: float


def images(train: Mapping[str, Any], samples: float, tested: int, clients: int) -> tuple[float, float]:
    """(images that steps see, images that evaluations see) in a run of FedAvg with these training settings."""
    rounds = train.get("rounds", Train.rounds)
    seen = rounds * cohort(train, clients) / clients * samples * train.get("epochs", Train.epochs)
    return seen, (1 + rounds / train.get("eval_every", Train.eval_every)) * tested


def cohort(train: Mapping[str, Any], clients: int) -> int:
    """Clients of a round."""
    return max(1, int(clients * train.get("fraction", Train.fraction) + 1e-9))


def cost_of(project: Project, run: PlannedRun, rates: Rates) -> Cost:
    """What a run is expected to take. Clients of several nets count with the mean of the nets' rates."""
    train, name = run.spec["train"], run.spec["method"]["name"]
    shape, classes = _shape(project, run.dataset), project.facts(run.dataset)[1] or 10
    nets = _nets(train)
    found = [rates.of(net, shape, classes, train.get("batch", Train.batch)) for net in nets]
    rate = Rate(*(sum(column) / len(found) for column in zip(*map(_numbers, found), strict=True)))
    known = _measured().get(name)
    trained, scored = _counts(project, run, personal=known is not None and known.personal)
    seconds = START + factor(name) * trained * rate.trained + scored * rate.tested
    models = _clients(run) if known and known.personal else len(nets)
    samples = project.facts(run.dataset)[0] or 60_000
    return Cost(seconds, FILES + PER_SAMPLE * samples + min(4 * rate.parameters * models, 512 << 20))


def _nets(train: Mapping[str, Any]) -> list[Any]:
    nets = train.get("net", Train.net)
    return list(nets) if isinstance(nets, list | tuple) else [nets]


def _clients(run: PlannedRun) -> int:
    return int(run.spec["partition"].get("clients", 10))


def _counts(project: Project, run: PlannedRun, *, personal: bool) -> tuple[float, float]:
    """(images trained on by FedAvg's steps, images scored). An evaluation scores one model an architecture, or those of
    the clients that have trained since the last: the others' scores are known.
    """
    train, partition = run.spec["train"], run.spec["partition"]
    clients = _clients(run)
    samples = (project.facts(run.dataset)[0] or 60_000) * (1 - float(partition.get("validation", 0)))
    trained, scored = images(train, samples, _tested(project, run.dataset), clients)
    if run.pooled:  # in one place, all of them, for FedAvg's work or what the method says
        share = round(train.get("epochs", Train.epochs) * train.get("fraction", Train.fraction))
        trained = train.get("rounds", Train.rounds) * samples * (run.spec["method"].get("epochs") or max(1, share))
    if not personal:
        return trained, scored * len(_nets(train))
    asked = cohort(train, clients) * train.get("eval_every", Train.eval_every)
    return trained, scored * min(clients, asked)


def _numbers(rate: Rate) -> tuple[float, float, float]:
    return rate.trained, rate.tested, rate.parameters


def factor(method: str) -> float:
    """How many times FedAvg's training a method needs."""
    known = _measured().get(method)
    return known.factor if known else float(method_class(method).passes if method in METHODS else 1)


@dataclass(frozen=True)
class Measured:
    """Of a method in the published study. factor: its training's processor time over FedAvg's, its own computing
    included. personal: each client has a model of its own, and these are scored.
    """

    factor: float
    personal: bool


@functools.cache
def _measured() -> dict[str, Measured]:
    """Method's name -> what the published study says; of several entries of a method the first. Nothing where the
    study's costs or its file are gone. A method is compared with FedAvg on the same net.
    """
    try:
        with COSTS.open(encoding="utf-8", newline="") as file:
            rows = {row["method"]: row for row in csv.DictReader(file)}
        project = Project({**read_yaml("config/config.yaml"), "scale": "paper", "overlay": {}})
        runs = {run.method: run for run in Study(project, MEASURED).runs}
    except (OSError, SpecError):
        return {}
    plain: dict[str, float] = {}
    found: dict[str, Measured] = {}
    for method, row in rows.items():  # in the study's order: FedAvg on a net stands before others on it
        if method not in runs:
            continue
        run, seconds = runs[method], float(row["cpu_seconds_mean"])
        name, net, personal = run.spec["method"]["name"], canonical(_nets(run.spec["train"])), PERSONAL in row["marks"]
        trained, scored = _counts(project, run, personal=personal)
        if name == "fedavg":  # seconds of an image
            plain.setdefault(net, seconds / (trained + FORWARD * scored))
        if net in plain and trained:
            times = (seconds / plain[net] - FORWARD * scored) / trained
            found.setdefault(name, Measured(max(1.0, times), personal))  # less is the scatter of measuring
    return found


def _shape(project: Project, dataset: str) -> Shape:
    spec, side = project.datasets[dataset], project.facts(dataset)[2] or 32
    known = FACTS.get(str(spec.get("source")))
    channels = (known.shape[2] if len(known.shape) > 2 else 1) if known else 3
    return channels, side, side


def _tested(project: Project, dataset: str) -> int:
    spec = project.datasets[dataset]
    known = FACTS.get(str(spec.get("source")))
    own = spec.get("test") if isinstance(spec.get("test"), int) else None
    return int(spec.get("subset", {}).get("test") or own or (known.test if known else 2000))


def planned_runs(
    project: Project, targets: Iterable[str], absences: list[str] | None = None
) -> dict[str, list[PlannedRun]]:
    """Study -> its runs that the targets need. Raises SpecError for an unknown target, or for a table or figure whose
    data are not here.

    absences: gets a line for each study that is wanted as a whole and of which data sets are not here.
    """
    found: dict[str, list[PlannedRun]] = {}
    for target in targets:
        names = project.papers if target == "papers" else [target] if target in project.names else []
        for name in names:
            whole = Study(project, name)
            found[name] = whole.runs
            if absences is not None and whole.absent:
                absences.append(f"{name}: {whole.words_of_absence()}")
        if names or target == "papers":
            continue
        owner = max((name for name in project.names if target.startswith(f"{name}_")), key=len, default=None)
        if owner is None:
            raise SpecError(f"{target!r} is no target; studies: {', '.join(project.names)}, and papers")
        study, part = Study(project, owner), target.removeprefix(f"{owner}_")
        if part in study.full.get("tables", {}) or part in study.full.get("figures", {}):
            study.check_present(part)
        shown = {**study.tables, **study.figures}
        if part not in shown and part not in PARTS:
            raise SpecError(f"{target!r} is no target; {owner} has {', '.join([*PARTS, *shown])}")
        chosen = [] if part == "settings" else study.runs if part == "runs" else study.select(shown[part])
        found[owner] = list(dict.fromkeys([*found.get(owner, []), *chosen]))
    return found


def words(project: Project, plan: Mapping[str, list[PlannedRun]], rates: Rates, cores: int) -> list[str]:
    """The plan, a line a study and one for all."""
    lines, total, runs_left, disk, last = [], 0.0, 0, 0.0, 0.0
    for name, runs in plan.items():
        left = _left(runs)
        costs = {run.folder: cost_of(project, run, rates) for run in left}
        seconds = sum(cost.seconds for cost in costs.values())
        size = sum(cost.disk for cost in costs.values())
        made = f" ({len(runs) - len(left)} more are made)" if len(left) < len(runs) else ""
        lines.append(f"{name}: {len(left)} runs{made}, {_time(seconds)} of one core, {size / 1e6:,.0f} MB")
        longest = Counter({run: cost.seconds for run, cost in costs.items()}).most_common(1)
        lines += [f"  longest: {run.split('/runs/')[1]}, {_time(seconds)}" for run, seconds in longest]
        total, runs_left, disk = total + seconds, runs_left + len(left), disk + size
        last = max([last, *(cost.seconds for cost in costs.values())])  # more cores make no run shorter
    hours = _time(max(total / cores, last))
    lines.append(f"all: {runs_left} runs, about {hours} on {cores} cores, {disk / 1e6:,.0f} MB")
    lines.append(_gpu())
    return lines


def hours(project: Project, plan: Mapping[str, list[PlannedRun]], rates: Rates, cores: int) -> float:
    """Hours on this machine of all runs that are left."""
    return sum(cost_of(project, run, rates).seconds for runs in plan.values() for run in _left(runs)) / 3600 / cores


def _left(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    return [run for run in runs if not Path(run.folder, "summary.json").exists()]


def _gpu() -> str:
    measured = sorted(Path("docs/results/gpu").glob("*.json"))
    if not measured:
        return "on a GPU: no rate has been measured yet (benchmarks/gpu_ladder.py measures one)"
    return f"on a GPU: see {', '.join(map(str, measured))}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def told(pair: str) -> tuple[str, Any]:
    """Key and value of a KEY=VALUE of --config."""
    key, sign, value = pair.partition("=")
    try:
        if sign:
            return key, yaml.safe_load(value)
    except yaml.YAMLError:
        pass
    raise SpecError(f"--config: {pair!r} is no KEY=VALUE, such as scale=cpu")


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for a mistake in the config or an unknown target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="studies, their parts, or papers (default: the configured studies)")
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="such as scale=cpu")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="default: all of this machine")
    parser.add_argument("--over", type=float, metavar="HOURS", help="say nothing of what takes less")
    args = parser.parse_args(argv)
    try:
        project = Project({**read_yaml("config/config.yaml"), **dict(map(told, args.config))})
        absences: list[str] = []
        plan = planned_runs(project, args.targets or project.studies, absences)
        rates, cores = Rates(), max(1, args.cores)
        if args.over is None or hours(project, plan, rates, cores) > args.over:
            print("\n".join([*words(project, plan, rates, cores), *absences]))
    except (SpecError, ArtifactError) as error:
        print(f"plan: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

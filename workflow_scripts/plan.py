"""What targets would take before anything is started: runs, hours on this machine, disk.

python -m workflow_scripts.plan [TARGET…] [--config scale=cpu …] [--cores N]

A target is a study, one of its parts (quick_runs, quick_main), or `papers`; without one the configured studies.
Hours follow from images times the net's rate, which is measured here for a moment (workflow_scripts/rates.py), times
what the method needs more than FedAvg: its work in the published study gallery-methods, else its passes per step.
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
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.methods import METHODS, method_class
from fednoise_core.spec import Train
from workflow_scripts.config_file import read_yaml
from workflow_scripts.project import PARTS, Project
from workflow_scripts.rates import Rate, Rates
from workflow_scripts.runs import PlannedRun
from workflow_scripts.study import Study

__all__ = ["Cost", "cost_of", "hours", "images", "planned_runs", "told", "words"]

GALLERY = Path("docs/results/gallery-methods/cost.csv")
START = 8.0  # seconds until a process has imported torch and read its data
FILES = 200_000  # bytes of a run's small files
PER_SAMPLE = 60  # bytes of a line of suspects.csv
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Cost:
    """Of one run: CPU seconds, bytes on disk."""

    seconds: float
    disk: float


def images(train: Mapping[str, Any], samples: int, tested: int, clients: int) -> tuple[float, float]:
    """(images that steps see, images that evaluations see) in a run of FedAvg with these training settings."""
    rounds = train.get("rounds", Train.rounds)
    cohort = max(1, int(clients * train.get("fraction", Train.fraction) + 1e-9))
    seen = rounds * cohort / clients * samples * train.get("epochs", Train.epochs)
    return seen, (1 + rounds / train.get("eval_every", Train.eval_every)) * tested


def cost_of(project: Project, run: PlannedRun, rates: Rates) -> Cost:
    """What a run is expected to take. Clients of several nets count with the mean of the nets' rates."""
    train = run.spec["train"]
    shape, classes = _shape(project, run.dataset), project.facts(run.dataset)[1] or 10
    samples, tested = project.facts(run.dataset)[0] or 60_000, _tested(project, run.dataset)
    clients = run.spec["partition"].get("clients", 10)
    nets = train.get("net", Train.net)
    named = nets if isinstance(nets, list | tuple) else [nets]
    found = [rates.of(net, shape, classes, train.get("batch", Train.batch)) for net in named]
    rate = Rate(*(sum(column) / len(found) for column in zip(*map(_numbers, found), strict=True)))
    trained, scored = images(train, samples, tested, clients)
    views = clients if len(found) > 1 else 1  # models of several nets are personal ones
    seconds = START + factor(run.spec["method"]["name"]) * trained * rate.trained + views * scored * rate.tested
    return Cost(seconds, FILES + PER_SAMPLE * samples + min(4 * rate.parameters * views, 512 << 20))


def _numbers(rate: Rate) -> tuple[float, float, float]:
    return rate.trained, rate.tested, rate.parameters


def factor(method: str) -> float:
    """How many times FedAvg's work a method needs."""
    return _factors().get(method) or float(method_class(method).passes if method in METHODS else 1)


@functools.cache
def _factors() -> dict[str, float]:
    """Method's name -> work of its run in the published gallery, per round and over FedAvg's; no gallery: nothing."""
    if not GALLERY.exists():
        return {}
    defined = yaml.safe_load(Path("config/catalogue.yaml").read_text(encoding="utf-8"))["methods"]
    defined |= yaml.safe_load(Path("config/studies/gallery-methods.yaml").read_text(encoding="utf-8"))["methods"]
    with GALLERY.open(encoding="utf-8", newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    work = {name: float(row["work_mean"]) / float(row["rounds_mean"]) for name, row in rows.items()}
    found: dict[str, float] = {}
    for name in (name for name in work if name in defined):  # of several entries of a method the first, its plain one
        found.setdefault(defined[name]["name"], work[name] / work["fedavg"])
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


def planned_runs(project: Project, targets: Iterable[str]) -> dict[str, list[PlannedRun]]:
    """Study -> its runs that the targets need. Raises SpecError for an unknown target."""
    found: dict[str, list[PlannedRun]] = {}
    for target in targets:
        names = project.papers if target == "papers" else [target] if target in project.names else []
        for name in names:
            found[name] = Study(project, name).runs
        if names or target == "papers":
            continue
        owner = max((name for name in project.names if target.startswith(f"{name}_")), key=len, default=None)
        if owner is None:
            raise SpecError(f"{target!r} is no target; studies: {', '.join(project.names)}, and papers")
        study, part = Study(project, owner), target.removeprefix(f"{owner}_")
        shown = {**study.tables, **study.figures}
        if part not in shown and part not in PARTS:
            raise SpecError(f"{target!r} is no target; {owner} has {', '.join([*PARTS, *shown])}")
        chosen = [] if part == "settings" else study.runs if part == "runs" else study.select(shown[part])
        found[owner] = list({run.folder: run for run in [*found.get(owner, []), *chosen]}.values())
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
        plan = planned_runs(project, args.targets or project.studies)
        rates, cores = Rates(), max(1, args.cores)
        if args.over is None or hours(project, plan, rates, cores) > args.over:
            print("\n".join(words(project, plan, rates, cores)))
    except (SpecError, ArtifactError) as error:
        print(f"plan: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

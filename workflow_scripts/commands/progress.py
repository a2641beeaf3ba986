"""Show how far unfinished runs are, and how much time studies will still take.

fednoise progress                             the configured studies
fednoise progress quick fedmixcon             these studies; papers stands for every paper
fednoise progress papers --config scale=cpu   at another scale
fednoise progress --watch 10                  again every 10 seconds until Ctrl-C
fednoise progress paper-size --calculate      steps, PFLOP and hours of each unfinished run, by a short measurement

Each unfinished run of any study has a line. Remaining times are estimated from finished runs of the same kind. If runs
with other settings or code are finished, a line lists the differences, which are the reason why runs are made again.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from fednoise_core.io import SpecError, canonical_json
from fednoise_core.settings.declare import flatten_settings
from workflow_scripts.config.project import Project
from workflow_scripts.machine.device import visible_gpus
from workflow_scripts.machine.locks import is_locked
from workflow_scripts.provenance.checksums import SUMS
from workflow_scripts.steps.common import INTERRUPTED
from workflow_scripts.steps.training_run import TrainingOptions, set_up_torch
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.study import Study

WORK = Path("work")
SHOWN = 8  # differences between planned and finished runs that are listed


@dataclass(frozen=True)
class Job:
    """An unfinished run.

    Attributes:
        name: Its folder below work/.
        facts: The last line of its progress file.
        age: Seconds since this line was written.
        running: Whether a process holds its lock.
    """

    name: str
    facts: dict[str, Any]
    age: float
    running: bool

    @property
    def seconds_left(self) -> float | None:
        """Seconds left. None before the first round has ended."""
        return self.facts.get("left")

    def format_line(self) -> str:
        """Return a line with rounds, progress in %, time left, accuracy in %, and the age of these facts."""
        done, of = self.facts.get("round", 0), self.facts.get("of", 1)
        parts = [f"round {done} of {of}, {100 * done // max(of, 1)} %" if done else f"in the first round of {of}"]
        if not self.running:
            parts.append("not running. The same command resumes it, or says again why it failed")
        elif self.seconds_left is not None:
            parts.append(f"{_format_duration(self.seconds_left)} left")
        parts += [f"{view} {100 * value:.1f} %" for view, value in self.facts.get("accuracy", {}).items()]
        return f"{self.name}: {', '.join(parts)} ({_format_duration(self.age)} ago)"


def _read_last_line(path: Path) -> dict[str, Any] | None:
    """Read the last complete JSON line of a file that may be written at the same time. None if there is none yet."""
    for line in reversed(path.read_text(encoding="utf-8").splitlines()):
        with suppress(ValueError):
            return dict(json.loads(line))
    return None


def unfinished_jobs() -> list[Job]:
    """List every unfinished run. The run whose progress is oldest comes first."""
    jobs = []
    for path in WORK.rglob("progress.jsonl"):
        with suppress(FileNotFoundError):  # the run has just ended
            age, facts = time.time() - path.stat().st_mtime, _read_last_line(path)
            if facts is not None and facts.get("round", 0) < facts.get("of", 1):
                name, running = path.parent.relative_to(WORK).as_posix(), is_locked(path.with_name("lock"))
                jobs.append(Job(name, facts, age, running))
    return sorted(jobs, key=lambda job: -job.age)


def total_line(name: str, runs: Sequence[PlannedRun], unfinished: Iterable[Job]) -> str:
    """Describe how far a study is.

    The time of a run that has not begun is the mean over runs with its data set, net and method that are done or have
    ended a round. It is assumed that as many runs go in parallel as now.

    Args:
        name: The study's name in the line.
        runs: Its runs.
        unfinished: The unfinished runs of all studies.

    Returns:
        One line: how many runs are done, running and to do, and the time left.
    """
    jobs = {job.name: job for job in unfinished}
    left: list[tuple[str, Job | None]] = []  # kind of a run that is not done, and its job
    times: dict[str, list[float]] = {}
    for run in runs:
        kind, job = (
            canonical_json([run.dataset, run.spec["train"].get("net"), run.spec["method"]["name"]]),
            jobs.get(run.folder),
        )
        if run.plan.is_finished:
            cost = json.loads(Path(run.folder, "cost.json").read_text(encoding="utf-8"))
            times.setdefault(kind, []).append(cost["seconds"])
            continue
        left.append((kind, job))
        if job is not None and job.seconds_left is not None:
            times.setdefault(kind, []).append(job.facts["seconds"] + job.seconds_left)
    running = sum(job.running for _, job in left if job is not None)
    total = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    parts = [f"{name}: {total}, {len(runs) - len(left)} done, {running} running, {len(left) - running} to do"]
    estimates = [
        job.seconds_left if job and job.seconds_left is not None else mean(times[kind])
        for kind, job in left
        if kind in times
    ]
    if estimates:
        left_text = _format_duration(sum(estimates) / max(1, running))
        parts.append(f"about {left_text} left{'' if running else ', one after the other'}")
    if len(estimates) < len(left):
        parts.append(f"no time estimate for {len(left) - len(estimates)}, since no run of this kind is measured yet")
    return "; ".join(parts)


def explain_unfinished(runs: Iterable[PlannedRun]) -> str:
    """Describe how unfinished runs differ from finished ones with the same method, seed, and kind of data.

    Each run is compared with the finished run that has the fewest differences.

    Returns:
        How many runs differ in the code, the versions and each setting, or "" if no such run is finished.
    """
    counts: Counter[str] = Counter()
    for run in runs:
        if not run.plan.is_finished:
            differences = []
            for path in Path(run.folder).parent.glob("*/spec.json"):
                with suppress(ValueError, KeyError):  # a damaged file, which the audit reports
                    if path.with_name(SUMS).exists():
                        differences.append(_list_differences(run, json.loads(path.read_text(encoding="utf-8"))))
            counts.update(*sorted(differences, key=len)[:1])
    listed = ", ".join(f"{name} ({count})" for name, count in counts.most_common(SHOWN))
    return f"  runs to do differ from finished ones in {listed}" if listed else ""


def _list_differences(run: PlannedRun, record: Mapping[str, Any]) -> list[str]:
    """List the differences between a run and a finished one, whose spec.json is given."""
    ours, theirs = dict(flatten_settings(run.spec)), dict(flatten_settings(record["spec"]))
    names = [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]
    names += ["the code"] * (run.plan.code != record["code"])
    names += ["versions of packages"] * (record["versions"] not in run.plan.arguments)
    return names or ["the data or labels"]


def calculate_left(name: str, runs: Sequence[PlannedRun], unfinished: Iterable[Job]) -> Iterator[str]:
    """Calculate the remaining cost of a study's unfinished runs on this machine. Equal training is measured once.

    Args:
        name: The study's name in the last line.
        runs: Its runs.
        unfinished: The unfinished runs of all studies.

    Yields:
        A line for each run that is not finished, and their sum.

    Raises:
        SpecError: Arrays, labels or a partition are not made yet.
    """
    waiting, jobs = [run for run in runs if not run.plan.is_finished], {job.name: job for job in unfinished}
    if missing := [file for run in waiting for file in run.plan.missing_files()]:
        raise SpecError(f"{name}: {missing[0]} is needed. `snakemake {name}_settings` makes what runs read")
    on_cpu = not waiting or waiting[0].store is None or waiting[0].store.project.device == "cpu"
    device = "cpu" if on_cpu or not visible_gpus() else "cuda"
    set_up_torch(TrainingOptions(device))
    from workflow_scripts.commands.calculation import calculate_cost  # it imports torch

    costs: dict[str, Any] = {}
    sums = [0.0, 0.0, 0.0]
    for run in waiting:
        kind = canonical_json([run.dataset, run.partition, run.spec["method"], run.spec["train"]])
        if kind not in costs:
            costs[kind] = calculate_cost(run.spec, run.plan, device)
        facts = jobs[run.folder].facts if run.folder in jobs else {}
        left = [(1 - facts.get("round", 0) / facts.get("of", 1)) * amount for amount in costs[kind]]
        sums = [total + amount for total, amount in zip(sums, left, strict=True)]
        yield f"{run.labels_title}: {_format_cost(*left)}"
    yield f"{name}: {len(waiting)} runs to do: {_format_cost(*sums)} on one {'GPU' if device == 'cuda' else 'core'}"


def _format_cost(steps: float, flop: float, seconds: float) -> str:
    """For instance "25,000 steps, 5.38 PFLOP, 7.4 h"."""
    return f"{steps:,.0f} steps, {flop / 1e15:.3g} PFLOP, {_format_duration(seconds)}"


def report_totals(runs: Sequence[PlannedRun], pause: float = 30.0) -> None:
    """Print the progress of these runs repeatedly until all are done or this process ends.

    Args:
        runs: The runs that this process will make.
        pause: Seconds between the lines.
    """

    def report() -> None:
        while not all(run.plan.is_finished for run in runs):
            time.sleep(pause)
            print(total_line("training", runs, unfinished_jobs()), file=sys.stderr, flush=True)

    threading.Thread(target=report, daemon=True).start()


def _format_duration(seconds: float) -> str:
    """Format seconds in a suitable unit: "40 s", "12 min", "3.4 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def plan_runs(targets: list[str], config: dict[str, Any]) -> dict[str, list[PlannedRun]]:
    """Plan the runs whose totals are shown.

    Args:
        targets: Studies, or `papers`; if empty, the configured studies.
        config: Values that override config/config.yaml.

    Returns:
        Name of a study's results folder → its runs, once each: two methods with equal settings are one run.

    Raises:
        SpecError: The config has a mistake, or a study is unknown.
    """
    project = Project.load(**config)
    studies = [name for target in targets for name in (project.paper_names if target == "papers" else [target])]
    names = studies or project.studies
    planned = {project.results_folder(name).removeprefix("results/"): Study(project, name).runs for name in names}
    return {name: list({run.folder: run for run in runs}.values()) for name, runs in planned.items()}


def _parse_override(pair: str) -> tuple[str, str]:
    """Key and value of a KEY=VALUE of --config."""
    key, sign, value = pair.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, such as scale=cpu, got {pair!r}")
    return key, value


def main(arguments: list[str] | None = None) -> int:
    """Run the command: print the lines, with --watch until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", help="studies whose totals are shown")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--calculate", action="store_true", help="steps, PFLOP and hours of the studies' unfinished runs")
    mode.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=5.0,
        metavar="SECONDS",
        help="update the output repeatedly (default: 5 s)",
    )
    parser.add_argument(
        "--config", nargs="+", default=[], type=_parse_override, metavar="KEY=VALUE", help="override config.yaml"
    )
    args = parser.parse_args(arguments)
    clear = "\x1b[H\x1b[J" if sys.stdout.isatty() and args.watch is not None else ""
    studies = plan_runs(args.studies, dict(args.config))
    try:
        while True:
            jobs = unfinished_jobs()
            text = [job.format_line() for job in jobs] or ["no unfinished job"]
            for name, runs in studies.items():
                text += [total_line(name, runs, jobs), *filter(None, [explain_unfinished(runs)])]
            print(clear + "\n".join(text), flush=True)
            for name, runs in studies.items() if args.calculate else ():
                for line in calculate_left(name, runs, jobs):
                    print(line, flush=True)
            if args.watch is None:
                return 0
            time.sleep(max(args.watch, 0.1))
    except KeyboardInterrupt:  # the normal end of --watch
        return INTERRUPTED if args.watch is None else 0

"""Show how far every unfinished run is, how many runs of the studies are done, and how long the others take.

python -m workflow_scripts.progress [STUDY…] [--watch [SECONDS]] [--work DIR] [--config scale=cpu …]

Reads the last line of each `progress.jsonl` under work/, and who holds the lock beside it; times are those in the
cost.json of finished runs. Without a study the totals are those of the configured studies; `papers` is every paper's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednoise_core.io import ArtifactError, SpecError, canonical
from workflow_scripts.locks import held

if TYPE_CHECKING:  # a training process imports this module, too
    from workflow_scripts.runs import PlannedRun

__all__ = ["Job", "duration", "jobs", "last_line", "lines", "planned", "total"]

SECONDS = 5.0  # between two looks of --watch


@dataclass(frozen=True)
class Job:
    """An unfinished run. name: its folder below work/. left: seconds, None before its first round has ended. age:
    seconds since its last line. running: whether a process holds its lock.
    """

    name: str
    round: int
    of: int
    seconds: float
    left: float | None
    accuracy: dict[str, float]
    phase: str
    age: float
    running: bool

    def line(self, width: int = 0) -> str:
        """One line: rounds, %, seconds a round, time left, accuracy in %, age of the news."""
        percent = f"round {self.round} of {self.of}, {100 * self.round // max(self.of, 1)} %"
        told = [percent if self.left is not None or self.round else f"in the first round of {self.of}"]
        if not self.running:
            told.append("stopped; the same command goes on")
        elif self.left is not None:
            told.append(f"{duration(self.left)} left")
        told += [f"{view} {100 * value:.1f} %" for view, value in self.accuracy.items()]
        return f"{self.name + ':':<{width}} {', '.join(told)} ({duration(self.age)} ago)"


def last_line(path: Path) -> dict[str, Any] | None:
    """The last whole JSON line of a file that may just be written to; None if there is none yet."""
    for line in reversed(path.read_text(encoding="utf-8").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def jobs(work: Path) -> list[Job]:
    """Every unfinished run, longest silent first."""
    found = []
    for path in work.rglob("progress.jsonl"):
        try:
            age, facts = time.time() - path.stat().st_mtime, last_line(path)
        except FileNotFoundError:
            continue  # it has just ended
        if facts is None or facts.get("round", 0) >= facts.get("of", 1):
            continue
        running = held(path.with_name("lock"))
        name = path.parent.relative_to(work).as_posix()
        numbers = facts.get("round", 0), facts.get("of", 1), facts.get("seconds", 0.0), facts.get("left")
        found.append(Job(name, *numbers, facts.get("accuracy", {}), facts.get("phase", ""), age, running))
    return sorted(found, key=lambda job: -job.age)


def lines(work: Path) -> list[str]:
    """One line per unfinished run, longest silent first."""
    found = jobs(work)
    width = max((len(job.name) + 1 for job in found), default=0)
    return [job.line(width) for job in found]


def total(
    name: str, runs: Sequence[PlannedRun], unfinished: Iterable[Job], known: dict[str, float] | None = None
) -> str:
    """One line about a study: how many of its runs are done, running and to do, and the time left.

    A run that has not begun counts as long as those of its data set, net and method that are done or have ended a
    round. As many go side by side as now.

    Args:
        known: Seconds of finished runs by folder, kept between two calls.
    """
    known = {} if known is None else known
    here = {job.name: job for job in unfinished}
    left = [run for run in runs if not _done(run, known)]
    begun = {run.folder: here[run.folder] for run in left if run.folder in here}
    running = sum(job.running for job in begun.values())
    said = [f"{name}: {len(runs)} runs, {len(runs) - len(left)} done, {running} running, {len(left) - running} to do"]
    times: dict[str, list[float]] = {}
    for run in runs:
        job = begun.get(run.folder)
        seconds = known.get(run.folder, 0.0) if job is None else job.seconds + job.left if job.left is not None else 0.0
        if seconds > 0:
            times.setdefault(_alike(run), []).append(seconds)
    found = []
    for run in left:
        job, alike = begun.get(run.folder), times.get(_alike(run))
        if job is not None and job.left is not None:
            found.append(job.left)
        elif alike:
            found.append(sum(alike) / len(alike))
    if found:
        said.append(f"about {duration(sum(found) / max(1, running))}{'' if running else ', one after the other'}")
    if len(found) < len(left):
        said.append(f"no measured run yet of the kind of {len(left) - len(found)}")
    return "; ".join(said)


def _alike(run: PlannedRun) -> str:
    return canonical([run.dataset, run.spec["train"].get("net"), run.spec["method"]["name"]])


def duration(seconds: float) -> str:
    """ "40 s", "12 min", "3.4 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _done(run: PlannedRun, known: dict[str, float]) -> bool:
    if run.folder not in known:
        if not run.files.run.finished:
            return False
        try:
            known[run.folder] = float(json.loads(Path(run.folder, "cost.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError):
            known[run.folder] = 0.0
    return True


def planned(targets: list[str], config: list[str]) -> dict[str, list[PlannedRun]]:
    """Name of a study's results folder -> its runs: of these studies, or of `papers`; of none named, of the configured.

    Raises:
        SpecError: For a mistake in the config or an unknown study.
    """
    from workflow_scripts.config_file import read_yaml
    from workflow_scripts.project import Project
    from workflow_scripts.study import Study

    project = Project({**read_yaml("config/config.yaml"), **dict(map(setting_of, config))})
    studies = [name for target in targets for name in (project.papers if target == "papers" else [target])]
    wanted = studies or project.studies
    return {project.root(name).removeprefix("results/"): Study(project, name).runs for name in wanted}


def setting_of(pair: str) -> tuple[str, Any]:
    """Key and value of a KEY=VALUE of --config."""
    import yaml

    key, sign, value = pair.partition("=")
    try:
        if sign:
            return key, yaml.safe_load(value)
    except yaml.YAMLError:
        pass
    raise SpecError(f"--config: expected KEY=VALUE, such as scale=cpu, got {pair!r}")


def shown(work: Path, studies: Mapping[str, Sequence[PlannedRun]], known: dict[str, float]) -> str:
    """All that the command prints at one look."""
    found = jobs(work)
    width = max((len(job.name) + 1 for job in found), default=0)
    text = [job.line(width) for job in found] or ["no unfinished job"]
    return "\n".join([*text, *(total(name, runs, found, known) for name, runs in studies.items())])


def main(arguments: list[str] | None = None) -> int:
    """Print the lines, with --watch until Ctrl-C; exit status 0, or 2 for a mistake in the config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", help="whose totals; or papers")
    parser.add_argument("--watch", nargs="?", type=float, const=SECONDS, metavar="SECONDS", help="look again and again")
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="such as scale=cpu")
    args = parser.parse_args(arguments)
    known: dict[str, float] = {}
    clear = "\x1b[H\x1b[J" if sys.stdout.isatty() and args.watch is not None else ""
    try:
        studies = planned(args.studies, args.config) if args.studies or _here(args.work) else {}
        while True:
            print(f"{clear}{shown(args.work, studies, known)}", flush=True)
            if args.watch is None:
                return 0
            time.sleep(max(args.watch, 0.1))
    except (SpecError, ArtifactError) as error:
        print(f"progress: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


def _here(work: Path) -> bool:
    return work == Path("work") and Path("config/config.yaml").is_file()


if __name__ == "__main__":
    sys.exit(main())

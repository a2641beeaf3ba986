"""Show how far every unfinished run is, those in their first round among them, and what is left of the studies.

python -m workflow_scripts.progress [STUDY…] [--watch [SECONDS]] [--work DIR] [--config scale=cpu …]

Reads the last line of each `progress.jsonl` under work/, and who holds the lock beside it. Without a study the totals
are those of the configured studies.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.terminal import duration

__all__ = ["Job", "jobs", "last_line", "lines", "total"]

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
        running = _held(path.with_name("lock"))
        name = path.parent.relative_to(work).as_posix()
        numbers = facts.get("round", 0), facts.get("of", 1), facts.get("seconds", 0.0), facts.get("left")
        found.append(Job(name, *numbers, facts.get("accuracy", {}), facts.get("phase", ""), age, running))
    return sorted(found, key=lambda job: -job.age)


def lines(work: Path) -> list[str]:
    """One line per unfinished run, longest silent first."""
    found = jobs(work)
    width = max((len(job.name) + 1 for job in found), default=0)
    return [job.line(width) for job in found]


def _held(path: Path) -> bool:
    """Whether a process holds the lock in this file; a file system without locks counts as held."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)  # gives it back, if it was ours for that moment
    return False


def total(folders: Iterable[str], unfinished: Iterable[Job], known: dict[str, float] | None = None) -> str:
    """One line about all runs of some studies: done, running, stopped, waiting, time left.

    folders: of all planned runs. known: seconds of finished runs, kept between two calls. Runs that have not begun
    count with the mean of those that are done or far enough to tell; as many go side by side as now.
    """
    folders, known = list(folders), {} if known is None else known
    planned = set(folders)
    here = [job for job in unfinished if job.name in planned]
    done = [folder for folder in folders if _done(folder, known)]
    running = [job for job in here if job.running]
    waiting = len(planned - set(done) - {job.name for job in running})
    said = f"{len(folders)} runs: {len(done)} done, {len(running)} running, {waiting} waiting"
    whole = [known[folder] for folder in done if known[folder] > 0]
    whole += [job.seconds + job.left for job in here if job.left is not None]
    if not running or not whole:
        return said
    mean = sum(whole) / len(whole)
    left = sum(mean if job.left is None else job.left for job in running) + waiting * mean
    return f"{said}; about {duration(left / len(running))} left"


def _done(folder: str, known: dict[str, float]) -> bool:
    if folder not in known:
        if not Path(folder, "summary.json").exists():
            return False
        try:
            known[folder] = float(json.loads(Path(folder, "cost.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError):
            known[folder] = 0.0
    return True


def planned(studies: list[str], config: list[str]) -> list[str]:
    """Folders of all runs of these studies; of none named, of the configured ones.

    Raises SpecError for a mistake in the config or an unknown study.
    """
    from workflow_scripts.config_file import read_yaml
    from workflow_scripts.plan import planned_runs, told
    from workflow_scripts.project import Project

    project = Project({**read_yaml("config/config.yaml"), **dict(map(told, config))})
    found = planned_runs(project, studies or project.studies).values()
    return list(dict.fromkeys(run.folder for runs in found for run in runs))  # runs of equal settings are one


def shown(work: Path, folders: list[str], known: dict[str, float]) -> str:
    """All that the command prints at one look."""
    found = jobs(work)
    width = max((len(job.name) + 1 for job in found), default=0)
    text = [job.line(width) for job in found] or ["no unfinished job"]
    return "\n".join([*text, *([total(folders, found, known)] if folders else [])])


def main(arguments: list[str] | None = None) -> int:
    """Print the lines, with --watch until Ctrl-C; exit status 0, or 2 for a mistake in the config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", help="whose totals")
    parser.add_argument("--watch", nargs="?", type=float, const=SECONDS, metavar="SECONDS", help="look again and again")
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="such as scale=cpu")
    args = parser.parse_args(arguments)
    known: dict[str, float] = {}
    clear = "\x1b[H\x1b[J" if sys.stdout.isatty() and args.watch is not None else ""
    try:
        folders = planned(args.studies, args.config) if args.studies or _here(args.work) else []
        while True:
            print(f"{clear}{shown(args.work, folders, known)}", flush=True)
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

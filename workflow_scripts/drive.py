"""Work through the papers' runs on one machine, in the order that settles most, for so many minutes a call.

python -m workflow_scripts.drive --minutes 25               the next runs of config/order.yaml; the same command goes on
python -m workflow_scripts.drive --export FILE              write the runs and what makes their files into FILE, and
python -m workflow_scripts.drive --plan FILE --minutes 25   work through it without Snakemake, DVC and the config

Runs that are alike share one training process (`train --specs`): many side by side where nets are small. What is made
is never made again; a run that the time cut off goes on from its checkpoint. Exit codes: 0 all made; 75 time is over or
SIGTERM came, and the same command goes on; 1 or 2 runs went wrong, said above, and all others are made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError, write_json
from workflow_scripts import by_hand
from workflow_scripts.by_hand import Preparation
from workflow_scripts.device import gpus
from workflow_scripts.runs import check_spec, nets_of
from workflow_scripts.step import STOPPED, USER_ERROR
from workflow_scripts.training import is_finished

__all__ = ["main"]

ORDER = "config/order.yaml"
LARGE = ("resnet", "mobilenet", "shufflenet")  # beginnings of the names of nets that fill a GPU sooner
TOGETHER = {True: 4, False: 12}  # runs side by side on a GPU, of large nets and of small ones
AT_ONCE = 24  # runs that one process is given: the next ones wait for the slowest
FOLDER = Path("work/drive")
SHORTEST = 5.0  # seconds left that are worth starting a process for
Entry = Mapping[str, Any]  # a run as `train --specs` reads it, and "before": what makes its files


def exported(order: str, scale: str | None) -> list[dict[str, Any]]:
    """The runs in their order with all that they need. Only this reads the config, and needs PyYAML and jsonschema."""
    from workflow_scripts.config_file import read_yaml
    from workflow_scripts.order import ordered
    from workflow_scripts.project import Project
    from workflow_scripts.stepcode import StepCode

    project = Project({**read_yaml("config/config.yaml"), **({"scale": scale} if scale else {})})
    project.export()
    steps = StepCode()
    return [
        {
            **by_hand.as_dict(run, steps),
            "before": [asdict(one) for one in by_hand.preparations(project, study, run, steps)],
        }
        for study, run in ordered(project, order)
    ]


def read_plan(path: Path) -> list[Entry]:
    """The runs of an exported file. Raises SpecError, naming it, if it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        for number, entry in enumerate(found):
            check_spec(entry["spec"], f"{path}: run {number}: spec")
            by_hand.as_job(entry)
            _before(entry)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{path}: not written by --export ({type(error).__name__}: {error})") from error
    return list(found)


def _before(entry: Entry) -> list[Preparation]:
    return [Preparation(one["module"], tuple(one["arguments"]), one["out"]) for one in entry["before"]]


def alike(entry: Entry) -> tuple[bool, str]:
    """Runs that are equal in this can share a process: how large their nets are, and torch's precision."""
    train = entry["spec"]["train"]
    return any(name.startswith(LARGE) for name in nets_of(train)), str(train.get("precision", "fp32"))


def batches(entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], int]]:
    """The runs in their order, as many to a process as are alike and fit; with how many are to run side by side."""
    for (large, _), found in groupby(entries, alike):
        group = list(found)
        for start in range(0, len(group), AT_ONCE):
            yield group[start : start + AT_ONCE], TOGETHER[large]


class Driver:
    """One call: what it may take, and whether it was asked to stop."""

    def __init__(self, minutes: float, options: Sequence[str], together: int) -> None:
        self.end = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.reserve = min(45.0, 6 * minutes)  # seconds kept for the round that is on when time is over
        self.options, self.together = list(options), together
        self.asked = False
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def left(self) -> float:
        """Seconds that training may still take."""
        return self.end - self.reserve - time.monotonic()

    def ask(self, number: int, _: object) -> None:
        """SIGTERM or Ctrl-C: the process that trains ends after its rounds."""
        self.asked = True
        if self.child is not None:
            self.child.send_signal(number)

    def over(self) -> bool:
        """Whether to start nothing more."""
        return self.asked or self.left < min(SHORTEST, self.reserve)

    def batch(self, entries: Sequence[Entry], together: int) -> list[str]:
        """Train some runs; returns the folders of those that went wrong. Those that are cut off are not among them."""
        ready: list[Entry] = []
        wrong: list[str] = []
        for entry in entries:
            if self.over():
                return wrong
            if by_hand.make(_before(entry))[1]:
                wrong.append(entry["out"])
            else:
                ready.append(entry)
        if not ready or self.over():
            return wrong
        files = []
        for entry in ready:
            path = FOLDER / f"{entry['out'].replace('/', '+')}.json"
            write_json(path, {key: value for key, value in entry.items() if key != "before"})
            files.append(str(path))
        self.train(files, together)
        if self.over():
            return wrong  # those that are not made were cut off, or nobody knows
        return [*wrong, *(entry["out"] for entry in ready if not is_finished(by_hand.as_job(entry)))]

    def train(self, files: Sequence[str], together: int) -> None:
        """One training process. If its round outlasts the reserve it is ended; it goes on from its last checkpoint."""
        command = [sys.executable, "-m", "workflow_scripts.train", "--together", str(self.together or together)]
        command += [*self.options, *([f"--minutes={max(0.01, self.left / 60):.4f}"] if self.end < float("inf") else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen([*command, "--specs", *files], env=environment, start_new_session=True) as child:
            self.child = child
            if self.asked:  # in the moment before it began
                child.terminate()
            try:
                child.wait(None if self.end == float("inf") else max(0.1, self.end - time.monotonic()))
            except subprocess.TimeoutExpired:
                print("drive: a round outlasts the time kept in reserve; it is begun again next time", file=sys.stderr)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        self.child = None


def drive(entries: Sequence[Entry], driver: Driver) -> int:
    """Work through the runs; returns the exit code."""
    left = [entry for entry in entries if not is_finished(by_hand.as_job(entry))]
    print(f"drive: {len(entries) - len(left)} of {len(entries)} runs are made", flush=True)
    wrong: list[str] = []
    for batch, together in batches(left):
        if driver.over():
            break
        wrong += driver.batch(batch, together)
    unmade = [entry["out"] for entry in left if not is_finished(by_hand.as_job(entry))]
    print(f"drive: {len(entries) - len(unmade)} of {len(entries)} runs are made", flush=True)
    for folder in wrong:
        print(f"drive: {folder}: went wrong, see above", file=sys.stderr)
    if set(unmade) - set(wrong):
        print(f"drive: {'asked to stop' if driver.asked else 'time is over'}; the same command goes on", flush=True)
        return STOPPED
    return 1 if wrong else 0


@contextlib.contextmanager
def _listening(driver: Driver) -> Iterator[None]:
    before = {number: signal.signal(number, driver.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0, help="end before so long; 0 (default): when all is made")
    parser.add_argument("--order", default=ORDER, help=f"which runs, in which order (default: {ORDER})")
    parser.add_argument("--scale", help="paper (default), cpu or smoke")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the runs into a file, and train nothing")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="take the runs from a file that --export wrote")
    parser.add_argument(
        "--together", type=int, default=0, help="runs side by side (default: 1 on a CPU, else by the nets)"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--executor", default="auto", help="as of workflow_scripts.train")
    parser.add_argument("--fast", action="store_true", help="as of workflow_scripts.train")
    args = parser.parse_args(argv)
    options = ["--device", args.device, "--executor", args.executor, *(["--fast"] if args.fast else [])]
    try:
        if args.minutes < 0 or args.together < 0:
            raise SpecError("--minutes and --together: not below 0")
        together = args.together or (1 if args.device == "cpu" or not gpus() else 0)
        driver = Driver(args.minutes, options, together)
        entries: Sequence[Entry] = read_plan(args.plan) if args.plan else exported(args.order, args.scale)
        if args.export:
            write_json(args.export, entries)
            print(f"{args.export}: {len(entries)} runs")
            return 0
        with _listening(driver):
            return drive(entries, driver)
    except (SpecError, ArtifactError) as error:
        print(f"drive: {error}", file=sys.stderr)
        return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())

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
import ctypes
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
from workflow_scripts import by_hand, locks
from workflow_scripts.by_hand import Preparation
from workflow_scripts.device import gpus
from workflow_scripts.job_records import job_record
from workflow_scripts.paths import RUN_OUTPUTS
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
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RECORDING = 90.0  # seconds that recording may take; with less left it is for the next call
Entry = Mapping[str, Any]  # a run as `train --specs` reads it, and "before": what makes its files


def exported(order: str, scale: str | None) -> list[dict[str, Any]]:
    """The runs in their order with all that they need. Only this reads the config, and needs PyYAML and jsonschema."""
    from workflow_scripts.config_file import read_yaml
    from workflow_scripts.order import ordered
    from workflow_scripts.project import Project
    from workflow_scripts.stepcode import StepCode

    project = Project({**read_yaml("config/config.yaml"), **({"scale": scale} if scale else {})})
    project.export()
    steps, runs = StepCode(), ordered(project, order)
    for study in {study.name: study for study, _ in runs}.values():
        if study.absent:
            print(f"drive: {study.name}: {study.words_of_absence()}", file=sys.stderr)
    return [
        {
            **by_hand.as_dict(run, steps),
            "before": [asdict(one) for one in by_hand.preparations(project, study, run, steps)],
        }
        for study, run in runs
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


def is_made(entry: Entry) -> bool:
    """Whether the run is made, of these settings, code and inputs. One whose inputs or record cannot be read is not:
    the inputs are made, and of the record the training process says what is wrong.
    """
    try:
        return is_finished(by_hand.as_job(entry))
    except (FileNotFoundError, SpecError):
        return False


def is_held(entry: Entry) -> bool:
    """Whether another process trains this run at this moment."""
    path = Path(entry["work"], "lock")
    if not path.is_file():
        return False
    try:
        number = locks.hold(path)
    except SpecError:
        return False  # the training process says it
    if number is not None:
        locks.release(path, number)
    return number is None


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
        self.held: set[str] = set()  # folders of runs that another process trains
        self.made: list[str] = []  # files that were made before training
        self.trained: set[str] = set()  # folders of runs that were given to a training process
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def left(self) -> float:
        """Seconds that training may still take."""
        return self.end - self.reserve - time.monotonic()

    def ask(self, number: int, _: object) -> None:
        """SIGTERM, Ctrl-C, or the terminal is gone: the process that trains ends after its rounds."""
        self.asked = True
        if self.child is not None:  # of which a SIGHUP would be the end at once
            self.child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

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
            if is_held(entry):
                self.held.add(entry["out"])
            elif self.make(entry):
                ready.append(entry)
            else:
                wrong.append(entry["out"])
        if not ready or self.over():
            return wrong
        files = []
        for entry in ready:
            path = FOLDER / f"{entry['out'].replace('/', '+')}.json"
            write_json(path, {key: value for key, value in entry.items() if key != "before"})
            files.append(str(path))
        self.train(files, together)
        self.trained |= {entry["out"] for entry in ready}
        if self.over():
            return wrong  # those that are not made were cut off, or nobody knows
        unmade = [entry for entry in ready if not is_made(entry)]
        held = {entry["out"] for entry in unmade if is_held(entry)}
        self.held |= held
        return [*wrong, *(entry["out"] for entry in unmade if entry["out"] not in held)]

    def make(self, entry: Entry) -> bool:
        """Make the files that a run reads; False if that failed, which is said."""
        try:
            made, status = by_hand.make(_before(entry))
        except Exception as error:  # a defect, or a full disk: the other runs may go well
            print(f"drive: {entry['out']}: {type(error).__name__}: {error}", file=sys.stderr)
            return False
        self.made += made
        return not status

    def train(self, files: Sequence[str], together: int) -> None:
        """One training process. If its round outlasts the reserve it is ended; it goes on from its last checkpoint."""
        command = [sys.executable, "-m", "workflow_scripts.train", "--together", str(self.together or together)]
        command += [*self.options, *([f"--minutes={max(0.01, self.left / 60):.4f}"] if self.end < float("inf") else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        told = [*command, "--specs", *files]
        with subprocess.Popen(told, env=environment, start_new_session=True, preexec_fn=_end_with_me) as child:
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


def _end_with_me() -> None:
    """Of the process that trains: have it asked to stop when the driver is gone, however that ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def record(entries: Sequence[Entry], unmade: Sequence[Entry], driver: Driver, scale: str) -> None:
    """Have the workflow record what was made here and what has no record yet (see by_hand.record), if time is left."""
    if driver.asked or driver.end - time.monotonic() < RECORDING:
        return
    left = {entry["out"] for entry in unmade}
    wanted: dict[str, bool] = {}  # file → whether it was made in this call
    for entry in entries:
        finished = entry["out"] not in left
        for file in (one["out"] for one in entry["before"]):
            if finished or file in driver.made:
                wanted[file] = file in driver.made
        if finished:
            wanted[f"{entry['out']}/{RUN_OUTPUTS[0]}"] = entry["out"] in driver.trained
    files = [file for file, new in wanted.items() if new or job_record(file) is None]
    if files:
        by_hand.record(files, scale)


def drive(entries: Sequence[Entry], driver: Driver, scale: str | None = None) -> int:
    """Work through the runs; returns the exit code. scale: that of the config, None without one."""
    left = [entry for entry in entries if not is_made(entry)]
    print(f"drive: {len(entries) - len(left)} of {len(entries)} runs are made", flush=True)
    if scale:
        record(entries, left, driver, scale)  # what an earlier call was too late for
    wrong: list[str] = []
    for batch, together in batches(left):
        if driver.over():
            break
        wrong += driver.batch(batch, together)
    still = [entry for entry in left if not is_made(entry)]
    unmade = [entry["out"] for entry in still]
    if scale:
        record(entries, still, driver, scale)
    print(f"drive: {len(entries) - len(unmade)} of {len(entries)} runs are made", flush=True)
    for folder in wrong:
        print(f"drive: {folder}: went wrong, see above", file=sys.stderr)
    for folder in sorted(driver.held & set(unmade)):
        print(f"drive: {folder}: another process trains it", file=sys.stderr)
    if set(unmade) - set(wrong):
        why = "asked to stop" if driver.asked else "time is over" if driver.over() else "others are at work"
        print(f"drive: {why}; the same command goes on", flush=True)
        return STOPPED
    return 1 if wrong else 0


@contextlib.contextmanager
def _listening(driver: Driver) -> Iterator[None]:
    before = {number: signal.signal(number, driver.ask) for number in STOPPING}
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
        scale = None if args.plan else args.scale or "paper"
        with _listening(driver):
            return drive(entries, driver, scale)
    except (SpecError, ArtifactError) as error:
        print(f"drive: {error}", file=sys.stderr)
        return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())

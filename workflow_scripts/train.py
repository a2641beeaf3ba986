"""Training runs: arrays, labels, partition and a spec in, the run's result files out. Goes on from a checkpoint after a
kill.

One run:      python -m workflow_scripts.train --spec SPEC --arrays F --labels F --partition F --out DIR --work DIR
Several runs: python -m workflow_scripts.train --specs a.json b.json … [--minutes N], sharing one process and its lanes;
each file holds
              {"spec": …, "arrays": F, "labels": F, "partition": F, "out": DIR, "work": DIR} and, if wanted, "donor",
              "code", "versions".

A spec is {"method": {…}, "train": {…}, "seed": N} and, if wanted, "dataset", "noise", "partition": all that decides a
run's numbers, and nothing else. Works as plain Python wherever torch is installed; Snakemake, DVC and cleanlab are not
needed.

Exit codes: 0 all done; 2 wrong settings, other code than expected, or a damaged file, said in one line; 1 anything else
that went wrong; 75 stopped by SIGTERM, SIGINT or --minutes after a round: the same command goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.spec import Train
from workflow_scripts import training_jobs
from workflow_scripts.device import claim, gpus
from workflow_scripts.progress import last_line
from workflow_scripts.runs import net_code
from workflow_scripts.step import STOPPED, USER_ERROR
from workflow_scripts.stepcode import ROOT, CodeChanged, StepCode
from workflow_scripts.sums import SUMS
from workflow_scripts.training import TrainingJob, TrainingOptions, is_finished, set_up_torch, shared_lanes, train

__all__ = ["main"]

PATIENCE = 10.0  # seconds: workers of a run that was killed may live, and hold its lock, a moment longer


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", help="the run spec as JSON, or a file that holds it")
    parser.add_argument("--specs", nargs="+", type=Path, help="files that each hold one run")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="stop cleanly after so long; the same command goes on next time"
    )
    parser.add_argument(
        "--together", type=int, default=0, help="runs at once with --specs (default: 1 on a CPU, 4 on a GPU)"
    )
    parser.add_argument("--arrays", type=Path, help="arrays artifact of the data set")
    parser.add_argument("--labels", type=Path, help="labels artifact")
    parser.add_argument("--partition", type=Path, help="partition artifact")
    parser.add_argument("--donor", type=Path, help="arrays artifact whose images replace some (open-set noise)")
    parser.add_argument("--out", type=Path, help="folder for the result files")
    parser.add_argument("--work", type=Path, help="folder for the checkpoint and the progress lines")
    parser.add_argument("--versions", default="", help="of torch and numpy that must be installed; default: any")
    parser.add_argument(
        "--code", default="", help="hash that the code must have; default: any, and its own is recorded"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--executor", default="auto", help="auto, sequential, workers[:N] or lanes[:N]")
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads; more than one moves the last bits of sums"
    )
    parser.add_argument(
        "--fast", action="store_true", help="on a GPU: allow kernels whose sums are not in a fixed order"
    )
    parser.add_argument("--checkpoint-seconds", type=float, default=20.0)
    parser.add_argument(
        "--keep-mb", type=int, default=1024, help="memory for what clients keep; the rest goes to a file in --work"
    )
    parser.add_argument("--checkpoint-rounds", type=int, default=0, help="also every so many rounds")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = arguments().parse_args(argv)
    try:
        jobs = training_jobs.several(args.specs) if args.specs else [training_jobs.one(args)]
        steps, on_gpu = StepCode(ROOT), _on_gpu(args)
        jobs = [replace(job, code=_code(job, steps, on_gpu)) for job in jobs]
        options = _prepare(args)
        together = args.together or (4 if options.device == "cuda" else 1)
        if options.device == "cuda" and together > 1:
            training_jobs.one_precision(jobs)
        pool = shared_lanes(options, together) if args.specs and together > 1 else None
    except (SpecError, ArtifactError, CodeChanged, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("train: stopped before the first round; the same command goes on", file=sys.stderr)
        return STOPPED
    end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    with _asked_to_stop() as asked:

        def attempt(job: TrainingJob) -> int:
            return _attempt(job, options, pool, lambda: asked.is_set() or time.monotonic() > end, bool(args.specs))

        if together == 1 or len(jobs) == 1:
            return _worst(attempt(job) for job in jobs)
        with ThreadPoolExecutor(together) as threads:
            return _worst(threads.map(attempt, jobs))


def _worst(codes: Iterable[int]) -> int:
    """The exit code of several runs: an error before a stop, since the same command would not go on from it."""
    found = set(codes)
    return next((code for code in (1, USER_ERROR, STOPPED) if code in found), 0)


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM (clusters send it before they kill) and SIGINT (Ctrl-C) set. A second one ends the process
    at once.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, _: Any) -> None:
        asked.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_gpu(args: argparse.Namespace) -> bool:
    """Whether code that only runs on a GPU use decides these runs."""
    wanted = args.device == "cuda" or args.executor.startswith("lanes")
    return wanted or (args.device == "auto" and bool(gpus()))


def _code(job: TrainingJob, steps: StepCode, on_gpu: bool) -> str:
    """The hash of the code that trains this run. One planned where there is no GPU may run where there is one."""
    method, nets = str(job.spec["method"].get("name")), net_code(job.spec["train"])
    return steps.check(job.code, *(steps.train(method, nets, gpu=gpu) for gpu in (on_gpu, not on_gpu)))


def _prepare(args: argparse.Namespace) -> TrainingOptions:
    """Claim a device, then import torch (which looks for GPUs when it is imported) and set it up."""
    for package in ("pyarrow", "safetensors"):
        if importlib.util.find_spec(package) is None:  # the results are written at the very end
            raise SpecError(f"{package} is missing: pip install {package}")
    options = TrainingOptions(
        claim(args.device),
        args.executor,
        args.threads,
        args.fast,
        args.checkpoint_seconds,
        args.checkpoint_rounds,
        args.keep_mb,
    )
    set_up_torch(options)
    return options


def _attempt(job: TrainingJob, options: TrainingOptions, pool: Any, stop: Callable[[], bool], several: bool) -> int:
    """One run; what goes wrong with it does not touch the others."""
    from fednoise_core.engine.loop import Stopped

    if stop():
        return STOPPED
    try:
        if several and is_finished(job):
            return 0  # by an earlier call
        again = (job.out / SUMS).exists()  # Snakemake starts no job for a finished folder, unless it is forced
        with _alone(job.work):
            if not again and is_finished(job):
                print(f"{job.out}: finished by another process", flush=True)  # which held the lock
                return 0
            (job.out / SUMS).unlink(missing_ok=True)  # so that half-written files never count as finished
            _begin(job)
            train(job, options, pool, stop)
    except Stopped as stopped:
        print(stopped, flush=True)  # says that the same command goes on
        return STOPPED
    except (SpecError, ArtifactError, FileNotFoundError) as error:
        print(f"train: {job.out}: {error}" if several else f"train: {error}", file=sys.stderr)
        return USER_ERROR
    except Exception as error:
        if not several:
            raise
        print(f"train: {job.out}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _begin(job: TrainingJob) -> None:
    """A line for `workflow_scripts.progress` before the first round ends. An earlier attempt's last line says better
    how many rounds there are: methods with phases of their own count them otherwise than the setting.
    """
    path = job.work / "progress.jsonl"
    before = (last_line(path) if path.is_file() else None) or {}
    of = before.get("of", job.spec["train"].get("rounds", Train.rounds))
    row = {"round": before.get("round", 0), "of": of, "phase": "begun", "time": round(time.time(), 1)}
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:  # what is wrong, the run says
        file.write(json.dumps(row) + "\n")


@contextlib.contextmanager
def _alone(work: Path) -> Iterator[None]:
    """While no other process trains in this folder: two would overwrite each other's checkpoints."""
    from workflow_scripts.locks import hold, release

    work.mkdir(parents=True, exist_ok=True)
    lock = hold(work / "lock", PATIENCE)
    if lock is None:
        raise SpecError(f"{work}: another process trains here")
    try:
        yield
    finally:
        release(work / "lock", lock)


if __name__ == "__main__":
    sys.exit(main())

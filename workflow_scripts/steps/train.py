"""One training run: arrays, labels, partition and a spec in, the run's result files out.

A killed run resumes from its checkpoint.

python -m workflow_scripts.steps train --spec SPEC --arrays F --labels F --partition F --out DIR --work DIR

A spec is {"method": {…}, "train": {…}, "seed": N}. The keys "dataset", "noise" and "partition" are optional. A spec has
everything that decides a run's numbers, and nothing else. The step needs torch, but not Snakemake, DVC or cleanlab.

Exit codes: 0 done; 1 an unexpected error; 2 wrong settings, unexpected code or a damaged file, described in one line;
75 interrupted by SIGTERM or SIGINT after a round, or by a full disk. After 75, run the same command to resume.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.settings.train import Train
from workflow_scripts.config.nets import net_code
from workflow_scripts.machine.device import acquire_gpu
from workflow_scripts.machine.locks import acquire_lock
from workflow_scripts.provenance.checksums import SUMS
from workflow_scripts.provenance.step_code import ROOT, CodeChanged, StepCode
from workflow_scripts.steps.common import INTERRUPTED, json_argument, report_error
from workflow_scripts.steps.training_run import RunFiles, TrainingOptions, set_up_torch, train_job

LOCK_PATIENCE = 10.0  # seconds; workers of a killed run may hold its lock a moment longer

SPEC_KEYS = ("dataset", "noise", "partition", "method", "train", "seed")  # all that a run's spec may say
REQUIRED_KEYS = ("method", "train", "seed")


def _make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", required=True, type=json_argument, help="the run spec: JSON or a JSON file")
    parser.add_argument("--arrays", type=Path, required=True, help="arrays artifact of the data set")
    parser.add_argument("--labels", type=Path, required=True, help="labels artifact")
    parser.add_argument("--partition", type=Path, required=True, help="partition artifact")
    parser.add_argument("--donor", nargs="?", type=Path, help="arrays artifact that open-set noise takes images from")
    parser.add_argument("--out", type=Path, required=True, help="folder for the result files")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoint and the progress lines")
    parser.add_argument("--versions", default="", help="required versions of torch and numpy; default: any")
    parser.add_argument("--code", default="", help="required hash of the code, which is recorded; default: any")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--executor", default="sequential", help="sequential or workers[:N]")
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads; more than one changes the last bits of sums"
    )
    parser.add_argument(
        "--fast", action="store_true", help="on a GPU: allow kernels whose sums are not in a fixed order"
    )
    parser.add_argument("--checkpoint-seconds", type=float, default=20.0)
    parser.add_argument(
        "--keep-mb", type=int, default=1024, help="MiB of memory for clients' state; the rest goes to a file in --work"
    )
    parser.add_argument("--checkpoint-rounds", type=int, default=0, help="rounds between further checkpoints; 0: none")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    args = _make_parser().parse_args(argv)
    try:
        spec = _check_spec(args.spec)
        files = RunFiles(args.arrays, args.labels, args.partition, args.out, args.work, args.donor)
        options = _prepare_device(args, _check_code(spec, args))
        return _run_job(spec, files, options, _stop_on_signals())
    except (SpecError, ArtifactError, CodeChanged, OSError) as error:
        return report_error("train", error)
    except KeyboardInterrupt:
        print("train: interrupted before the first round; run the same command to resume", file=sys.stderr)
        return INTERRUPTED


def _check_code(spec: dict[str, Any], args: argparse.Namespace) -> str:
    """The hash of the code that trains this run."""
    steps = StepCode(ROOT)
    named = {"method": [str(spec["method"].get("name"))], "net": net_code(spec["train"])}
    return steps.check_hash(args.code, steps.step_entries("training_run", **named))


def _stop_on_signals() -> Callable[[], bool]:
    """Return a function that says if SIGTERM (of a cluster) or SIGINT (Ctrl-C) came. A second one ends the process."""
    asked = threading.Event()

    def request_stop(number: int, _: Any) -> None:
        asked.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    return asked.is_set


def _prepare_device(args: argparse.Namespace, code: str) -> TrainingOptions:
    """Claim a device, then import torch (which looks for GPUs when it is imported) and set it up."""
    for package in ("pyarrow", "safetensors"):
        if importlib.util.find_spec(package) is None:  # fail now, not when results are written
            raise SpecError(f"{package} is missing: pip install {package}")
    options = TrainingOptions(
        acquire_gpu(args.device),
        args.executor,
        args.threads,
        args.fast,
        args.checkpoint_seconds,
        args.checkpoint_rounds,
        args.keep_mb,
        code,
        args.versions,
    )
    set_up_torch(options)
    return options


def _run_job(spec: dict[str, Any], files: RunFiles, options: TrainingOptions, stop: Callable[[], bool]) -> int:
    from fednoise_core.engine.loop import Stopped

    sums = files.out / SUMS
    again = sums.exists()  # Snakemake starts no job for a finished folder, unless it is forced
    with _training_lock(files.work):
        if sums.exists() and not again:
            print(f"{files.out}: finished by another process", flush=True)  # the one that held the lock
            return 0
        sums.unlink(missing_ok=True)  # so that half-written files never count as finished
        _write_start_record(files.work / "progress.jsonl", spec)
        try:
            train_job(spec, files, options, stop)
        except Stopped as stopped:
            print(stopped, flush=True)  # says how to resume
            return INTERRUPTED
    return 0


def _write_start_record(path: Path, spec: dict[str, Any]) -> None:
    """Write a first line for `fednoise progress`, unless an earlier attempt has left lines."""
    path.touch()
    if not path.stat().st_size:
        row = {"round": 0, "of": spec["train"].get("rounds", Train.rounds), "phase": "begun"}
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _training_lock(work: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, since two processes in it would overwrite each other's checkpoints."""
    work.mkdir(parents=True, exist_ok=True)
    lock = acquire_lock(work / "lock", LOCK_PATIENCE)
    if lock is None:
        raise SpecError(f"{work}: another process trains here. Wait for it")
    try:
        yield
    finally:
        os.close(lock)


def _check_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Check a run's spec from a command line.

    Raises SpecError for a missing or unknown key. A key that decides no number would give equal runs different specs.
    """
    missing, unknown = [key for key in REQUIRED_KEYS if key not in spec], [key for key in spec if key not in SPEC_KEYS]
    if missing:
        raise SpecError(f"--spec: the key {missing[0]!r} is missing")
    if unknown:
        raise SpecError(f"--spec: {unknown[0]}: unknown key; known: {', '.join(SPEC_KEYS)}")
    return spec

"""A planned run without the workflow: the files it needs, made by the commands of the rules, and its training job.

Used by `cell` and `drive`. Nothing here imports torch, Snakemake or DVC, nor what only reads the config.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from fednoise_core import noise as noises
from fednoise_core import partition as partitions
from fednoise_core.io import canonical, digest, sha256_file, write_json
from workflow_scripts.job_records import job_record
from workflow_scripts.runs import PlannedRun, net_code, weights_of
from workflow_scripts.step import USER_ERROR
from workflow_scripts.stepcode import StepCode
from workflow_scripts.training import TrainingJob

if TYPE_CHECKING:
    from workflow_scripts.project import Project
    from workflow_scripts.study import Study

__all__ = ["Preparation", "as_dict", "as_job", "make", "preparations", "record"]

DECISIVE = ("--spec", "--code")  # arguments that are params of the rules, as they are
READ = ("--arrays", "--labels", "--partition", "--donor")  # arguments that are files a step reads
FILES = ("arrays", "labels", "partition", "out", "work", "donor")
MADE = Path("work/by_hand.json")  # what was made here: file → its SHA-256, and what decided it


@dataclass(frozen=True)
class Preparation:
    """A step before training: a module of workflow_scripts, its arguments, and the file that it makes."""

    module: str
    arguments: tuple[str, ...]
    out: str

    @property
    def key(self) -> str:
        """What decides the file's content: the command, and what is in the files that it reads."""
        read = {file: _sha256(file) for file in self._read}
        return digest([self.module, *self.arguments], read)

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.arguments, self.arguments[1:], strict=False))

    @property
    def _read(self) -> list[str]:
        return [file for flag, file in self._pairs if flag in READ]

    def is_made(self) -> bool:
        """Whether the file is here and of these settings, this code and these inputs: by the record of what was made
        here while the file is still that one, else by Snakemake's, which counts only while no input is newer.
        """
        held = _sha256(self.out)
        if held is None:
            return False
        own, theirs = _made().get(self.out), job_record(self.out) or {}
        if isinstance(own, dict) and own.get("sha256") == held:
            if own.get("key") == self.key:
                return True
            if (theirs.get("endtime") or 0) < os.stat(self.out).st_mtime:
                return False  # their record is of the file before ours
        params = set(theirs.get("params") or [])
        decisive = {repr(value) for flag, value in self._pairs if flag in DECISIVE}
        return bool(params) and decisive <= params and all(_older(file, self.out) for file in self._read)


def _sha256(file: str) -> str | None:
    """SHA-256 of a file, None if it is not there."""
    try:
        told = os.stat(file)
        return _hashed(file, told.st_mtime_ns, told.st_size, told.st_ino)
    except FileNotFoundError:
        return None


@functools.lru_cache(1024)  # a driver asks for the same arrays before every run
def _hashed(file: str, *_: int) -> str:
    return sha256_file(file)


def _older(file: str, out: str) -> bool:
    try:
        return os.stat(file).st_mtime_ns <= os.stat(out).st_mtime_ns
    except FileNotFoundError:
        return False


def _made() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(MADE.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def preparations(project: Project, study: Study, run: PlannedRun, steps: StepCode) -> list[Preparation]:
    """What makes the files that a run reads, in order: arrays, weights, labels and partition."""

    def command(module: str, entries: Iterable[str], out: str, *arguments: str) -> Preparation:
        return Preparation(module, ("--code", steps.code(entries), *arguments, "--out", out), out)

    noise, partition, seed = study.noise(run.noise), study.partition(run.partition), str(run.seed)
    found = []
    for name in dict.fromkeys(filter(None, [run.dataset, noises.needs_donor(noise)])):
        spec = project.normal_dataset(name)
        arrays = project.arrays(name)
        found.append(command("download", steps.download(spec), arrays, "--spec", canonical(spec)))
    for file in weights_of(run.spec["train"]):
        net = Path(file).stem
        found.append(command("pretrained", steps.pretrained(net), file, "--net", net))
    shared = ("--seed", seed, "--arrays", run.arrays)
    given = ("--partition", run.partition_file) if noises.needs_partition(noise) else ()
    images = ("--donor", run.donor) if run.donor else ()
    labels = command(
        "inject_noise", steps.noise(noise["kind"]), run.labels, "--spec", canonical(noise), *shared, *given, *images
    )
    over = ("--labels", run.labels) if partitions.needs_labels(partition) else ()
    told = ("--spec", canonical(partition), *shared, *over)
    spread = command("partition", steps.partition(partition["kind"]), run.partition_file, *told)
    return [*found, *([spread, labels] if given else [labels, spread])]


def as_dict(run: PlannedRun, steps: StepCode) -> dict[str, Any]:
    """A run as a file for `train --specs` holds it."""
    code = steps.code(steps.train(run.spec["method"]["name"], net_code(run.spec["train"])))
    return {
        "spec": dict(run.spec),
        "arrays": run.arrays,
        "labels": run.labels,
        "partition": run.partition_file,
        **({"donor": run.donor} if run.donor else {}),
        "out": run.folder,
        "work": run.work,
        "ids": f"{run.dataset}/{run.noise}/{run.partition}/{run.method}",
        "code": code,
    }


def as_job(told: Mapping[str, Any]) -> TrainingJob:
    """The training job of such a mapping."""
    files: dict[str, Any] = {name: Path(told[name]) for name in FILES if told.get(name)}
    return TrainingJob(told["spec"], **files, ids=tuple(told["ids"].split("/")), code=told["code"])


def make(steps: Iterable[Preparation]) -> tuple[list[str], int]:
    """Make what is not made yet; returns the files made, and the exit code of the first step that failed, or 0."""
    made: list[str] = []
    for step in steps:
        if step.is_made():
            continue
        Path(step.out).parent.mkdir(parents=True, exist_ok=True)
        key = step.key
        status = importlib.import_module(f"workflow_scripts.{step.module}").main(list(step.arguments))
        if status:
            return made, int(status)
        MADE.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{MADE}.lock"):  # others may make other files at this moment
            write_json(MADE, {**_made(), step.out: {"key": key, "sha256": _sha256(step.out)}})
        made.append(step.out)
    return made, 0


def record(files: list[str], scale: str) -> int:
    """Have Snakemake, where it is installed, write its records of files that were made here by the rules' commands:
    without them it would take the files as they are, but see no later change of their settings. Returns an exit code.
    """
    if importlib.util.find_spec("snakemake") is None or not Path("Snakefile").is_file():
        return 0
    command = [sys.executable, "-m", "snakemake", "--touch", "--force", "--cores", "1", "--quiet", "all"]
    command += ["--config", f"scale={scale}", "--", *files]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        why = (told.stderr.strip().splitlines() or ["no word"])[-1]
        print(f"the workflow could not record them: {why}", file=sys.stderr)
    return USER_ERROR if told.returncode else 0

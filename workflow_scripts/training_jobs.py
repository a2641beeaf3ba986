"""Training jobs from a command line or from files. A mistake is one SpecError that names the argument or file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError
from workflow_scripts.runs import check_spec
from workflow_scripts.training import TrainingJob

__all__ = ["one", "one_precision", "several"]

FILES = ("arrays", "labels", "partition", "out", "work")


def one(args: argparse.Namespace) -> TrainingJob:
    """The run that the command line's words describe."""
    missing = [f"--{name}" for name in ("spec", *FILES) if getattr(args, name) is None]
    if missing:
        raise SpecError(f"missing {', '.join(missing)}")
    text = args.spec if args.spec.lstrip().startswith("{") else Path(args.spec).read_text(encoding="utf-8")
    files = {name: getattr(args, name) for name in (*FILES, "donor")}
    return TrainingJob(check_spec(_json(text, "--spec"), "--spec"), **files, code=args.code, versions=args.versions)


def several(paths: list[Path]) -> list[TrainingJob]:
    """The runs that files describe. Raises SpecError, naming the file, if two would write to one folder."""
    jobs: list[TrainingJob] = []
    for path in paths:
        found = _json(path.read_text(encoding="utf-8"), str(path))
        missing = [name for name in ("spec", *FILES) if name not in found]
        if missing:
            raise SpecError(f"{path}: the key {missing[0]!r} is missing")
        files = {name: Path(found[name]) for name in (*FILES, "donor") if found.get(name)}
        for key in ("out", "work"):
            if any(files[key].resolve() == getattr(other, key).resolve() for other in jobs):
                raise SpecError(f"{path}: {key}: {files[key]} belongs to another of these runs")
        jobs.append(
            TrainingJob(
                check_spec(found["spec"], f"{path}: spec"),
                **files,
                code=found.get("code", ""),
                versions=found.get("versions", ""),
                where=str(path),
            )
        )
    return jobs


def one_precision(jobs: list[TrainingJob]) -> None:
    """Refuse runs that would switch TF32 on and off under each other: torch has one switch for a process."""
    exact = [job.spec["train"].get("precision", "fp32") == "fp32" for job in jobs]
    if any(exact) and not all(exact):
        odd = jobs[exact.index(not exact[0])]
        raise SpecError(
            f"{odd.where}: spec.train.precision: runs in fp32 and in tf32 or bf16 cannot share a GPU process; "
            "start them apart, or one after the other with --together 1"
        )


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(f"{where}: not readable as JSON ({error})") from error

"""What Snakemake prints in this folder: one line a job as it ends, failures with their log, and no shell commands.

Used by rules/common.smk while `quiet` holds "reason" (profiles/default); `snakemake --quiet host` is Snakemake's own
account, with reasons. Its file in .snakemake/log stays as it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["OneLine", "attach", "duration"]

HANDLER = "DefaultStreamHandler"
LEFT_OUT = (
    "Assuming unrestricted",
    "Building DAG",
    "Config file ",  # "… is extended by additional config specified via the command line": the reader typed it
    "Reasons:",
    "Rules with provenance",
    "Select jobs",
    "Singularity containers: ignored",
    "Some jobs were triggered",
    "This was a dry-run",
    "Using shell",
)
SILENT = ("JOB_STARTED", "RESOURCES_INFO", "SHELLCMD")  # events without news: "Execute 1 jobs...", "Provided cores: 2"
STOPPED = "the same command goes on"  # what a training process says at its end when it was asked to stop
UNFINISHED = "At least one job did not complete successfully"  # Snakemake's last words, of a failure and of Ctrl-C
LOG_LINES = 12


class OneLine(logging.Formatter):
    """Filter and formatter of Snakemake's messages on the terminal. `changed` adds lines to a dry run's table."""

    def __init__(self, inner: logging.Formatter | None, *, dryrun: bool, changed: Callable[[], list[str]]) -> None:
        super().__init__()
        self.inner, self.dryrun, self.changed = inner or logging.Formatter(), dryrun, changed
        self.messages: dict[int, str] = {}
        self.runs: set[int] = set()
        self.ended: list[int] = []
        self.planned = self.trained = self.failed = 0
        self.stopped: set[int] = set()
        self.began: float | None = None
        self.counted = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is shown; job infos are kept until the job ends."""
        event = _event(record)
        if event == "JOB_INFO":
            self._started(record.__dict__)
        elif event == "JOB_FINISHED":
            self.ended.append(record.__dict__["job_id"])
            self.stopped.discard(record.__dict__["job_id"])  # a second try
        elif event == "RUN_INFO":
            first, self.counted = not self.counted, True  # a dry run says it before and after
            self.planned = record.__dict__.get("stats", {}).get("train", 0)
            return first
        elif event in (None, "ERROR"):
            text = str(record.msg or "").lstrip()
            repeated = text.startswith("RuleException:") and "CalledProcessError" in text  # the whole command again
            return not repeated and not text.startswith(LEFT_OUT)
        return event not in ("JOB_INFO", "JOB_FINISHED", *SILENT)

    def format(self, record: logging.LogRecord) -> str:
        """The text of a message; "" prints nothing."""
        event = _event(record)
        if event == "PROGRESS":
            return self._progress(record.__dict__["done"], record.__dict__["total"])
        if event == "JOB_ERROR":
            return self._failure(record.__dict__)
        if event == "RUN_INFO" and self.dryrun:
            return "\n".join([self.inner.format(record).rstrip(), *self.changed()])
        if self.stopped and not self.failed and UNFINISHED in str(record.msg):
            return f"Nothing failed: runs stopped after a round, {len(self.stopped)}; {STOPPED}."
        return self.inner.format(record)

    def _started(self, job: dict[str, Any]) -> None:
        self.messages[job["jobid"]] = job.get("rule_msg") or ""
        if job.get("rule_name") == "train":
            self.runs.add(job["jobid"])
            self.began = self.began or time.monotonic()

    def _progress(self, done: int, total: int) -> str:
        ended, self.ended = self.ended, []
        self.trained += sum(job in self.runs for job in ended)
        told = [message for job in ended if (message := self.messages.get(job))]
        head = f"{done:>{len(str(total))}}/{total}  {100 * done // max(total, 1):3d} %{self._left()}"
        return "\n".join(f"{head}  {message}" for message in told)

    def _left(self) -> str:
        """The time that the runs still need, if they go on at the rate of those that ended."""
        waiting = self.planned - self.trained
        if self.began is None or not self.trained or waiting < 1:
            return ""
        return f"  about {duration((time.monotonic() - self.began) / self.trained * waiting)} left"

    def _failure(self, job: dict[str, Any]) -> str:
        name = job.get("rule_msg") or self.messages.get(job.get("jobid", -1)) or job.get("rule_name")
        logs = [Path(str(file)) for file in job.get("log") or ()]
        lines = [line for log in logs if log.is_file() for line in log.read_text("utf-8", "replace").splitlines()]
        if lines and STOPPED in lines[-1]:
            self.stopped.add(job.get("jobid", -1))
            return f"stopped: {lines[-1]}"
        self.failed += 1
        shown = [f"    {line[:400]}" for line in lines[-LOG_LINES:]]
        return "\n".join([f"FAILED: {name}", *(f"  log: {log}" for log in logs), *shown])


def attach(logger: logging.Logger, *, dryrun: bool, changed: Callable[[], list[str]]) -> None:
    """Have Snakemake's terminal handler speak so; a logger without that handler (a plugin's) is left alone."""
    for handler in logger.handlers:
        if handler.name == HANDLER:
            made = OneLine(handler.formatter, dryrun=dryrun, changed=changed)
            handler.addFilter(made.filter)
            handler.setFormatter(made)


def duration(seconds: float) -> str:
    """"40 s", "12 min", "3.4 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _event(record: logging.LogRecord) -> str | None:
    return getattr(getattr(record, "event", None), "name", None)

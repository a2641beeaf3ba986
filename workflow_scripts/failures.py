"""One line for each failed job, for the end of Snakemake's output, where it is easy to find."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["last_words"]

FAILED = re.compile(r"^ +jobid: (\d+)\n(?: +(?:input|output): .*\n)* +log: ([^\s,]+).* \(check log file", re.M)
FINISHED = re.compile(r"^Finished jobid: (\d+)", re.M)


def last_words(logs: Iterable[str]) -> list[str]:
    """The last line of each failed job's log, after the log's name. A job that succeeded in a second try is left out.

    Args:
        logs: Snakemake's own logs of the workflow, as `onerror` has them.
    """
    text = "\n".join(Path(log).read_text(encoding="utf-8", errors="replace") for log in logs)
    finished = set(FINISHED.findall(text))
    files = [Path(log) for job, log in dict(FAILED.findall(text)).items() if job not in finished]
    return [f"{file}: {_last_line(file)}" for file in files]


def _last_line(file: Path) -> str:
    if not file.is_file():
        return "no such file; the job ended before its command began"
    lines = file.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    return lines[-1].strip() if lines else "empty"

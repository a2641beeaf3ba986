"""The lines about failed jobs, from Snakemake's log and the jobs' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflow_scripts.failures import last_words

FAILED = """\
Error in rule train:
    message: None
    jobid: {job}
    input: data/raw/digits.npz
    output: a/summary.json, a/cost.json
    log: {log}{more} (check log file(s) for error details)
    shell:
"""


def failed(job: int, log: str, more: str = "") -> str:
    return FAILED.format(job=job, log=log, more=more)


def test_the_last_line_of_each_failed_jobs_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both tries of a job are one line; a job that succeeded in its second try is none."""
    monkeypatch.chdir(tmp_path)
    Path("one.log").write_text("round 1\ntrain: mine.yaml: lr: expected a number\n\n")
    Path("two.log").write_text("round 60\n")
    Path("three.log").touch()
    tries = failed(1, "one.log", ", slurm/1.log") * 2 + failed(2, "two.log")
    tries += failed(3, "three.log") + failed(14, "gone")
    Path("snakemake.log").write_text(tries + "Finished jobid: 2 (Rule: train)\nFinished jobid: 4 (Rule: train)\n")
    assert last_words(["snakemake.log"]) == [
        "one.log: train: mine.yaml: lr: expected a number",
        "three.log: empty",
        "gone: no such file; the job ended before its command began",
    ]
    assert last_words([]) == []

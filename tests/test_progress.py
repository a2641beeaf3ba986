"""The progress command, without any run."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from workflow_scripts import progress
from workflow_scripts.runs import PlannedRun, RunFiles
from workflow_scripts.store import Plan

ROOT = Path(__file__).parents[1]


def job(work: Path, name: str, *lines: str, age: float = 0) -> Path:
    """The progress file of a job."""
    path = work / name / "progress.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (path.stat().st_mtime - age, path.stat().st_mtime - age))
    return path.parent


def after(number: int, of: int = 8) -> str:
    row = {"run": "x", "round": number, "of": of, "phase": "train", "accuracy": {"global": 0.51234}}
    return json.dumps({**row, "seconds": 10.0 * number, "left": 10.0 * (of - number)})


def test_last_whole_line_of_every_unfinished_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path, "results/quick/a", after(1), after(2), '{"round": 3, "of"')  # a line is just being written
    job(tmp_path, "results/quick/long-name", after(1), age=100)
    job(tmp_path, "results/quick/first", '{"round": 0, "of": 60, "phase": "begun", "time": 1.0}', age=50)
    job(tmp_path, "results/quick/done", '{"round": 9, "of": 9}')
    job(tmp_path, "results/quick/empty")
    assert progress.main(["--work", str(tmp_path)]) == 0
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    stopped = "stopped; the same command goes on"
    assert told == [
        f"results/quick/long-name: round 1 of 8, 12 %, {stopped}, global 51.2 % (2 min ago)",
        f"results/quick/first: in the first round of 60, {stopped} (50 s ago)",
        f"results/quick/a: round 2 of 8, 25 %, {stopped}, global 51.2 % (0 s ago)",
    ]


def test_a_job_that_holds_its_lock_is_running(tmp_path: Path) -> None:
    folder = job(tmp_path, "results/quick/a", after(2))
    with (folder / "lock").open("w") as file:
        assert [one.running for one in progress.jobs(tmp_path)] == [False]
        fcntl.flock(file, fcntl.LOCK_EX)
        (held,) = progress.jobs(tmp_path)
        assert held.running
        assert "round 2 of 8, 25 %, 60 s left, global 51.2 %" in held.line()
    assert [one.running for one in progress.jobs(tmp_path)] == [False]  # looking took nothing from it


def run(method: str, seed: int = 0) -> PlannedRun:
    """A planned run of one setting."""
    ids = {"dataset": "digits", "noise": "sym40", "partition": "iid", "method": method, "seed": seed}
    planned = PlannedRun("results/quick", **ids, spec={"train": {"net": "mlp"}, "method": {"name": method}})
    empty = Plan("store", "")
    folder = f"store/runs/digits/sym40/iid/{method}-seed{seed}"
    planned.__dict__["files"] = RunFiles(Plan(folder, ""), empty, empty, empty)  # what the store would answer
    return planned


def test_the_total_counts_runs_that_have_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five runs one took 100 s, one has 60 s to go of 80, one is in its first round: two wait. The mean is 90 s, so
    60 + 90 + 2 · 90 = 330 s on the two that go side by side. Another method's run says nothing about these.
    """
    monkeypatch.chdir(tmp_path)
    runs = [run("fedavg", seed) for seed in range(5)]
    made = tmp_path / runs[0].folder
    made.mkdir(parents=True)
    (made / "cost.json").write_text('{"seconds": 100.0}')
    (made / "SHA256SUMS").write_text("")
    half = tmp_path / runs[3].folder  # it was killed while it wrote its files
    half.mkdir(parents=True)
    for name in ("summary.json", "metrics.parquet", "cost.json"):
        (half / name).write_text('{"seconds": 1000.0}')
    begun = '{"round": 0, "of": 8, "phase": "begun"}'
    held = [job(tmp_path / "work", runs[1].folder, after(2)), job(tmp_path / "work", runs[2].folder, begun)]
    job(tmp_path / "work", "results/other/x", after(1))  # another study's: not counted
    files = [(folder / "lock").open("w") for folder in held]
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX)
    said = progress.total("quick", runs, progress.jobs(tmp_path / "work"))
    assert said == "quick: 5 runs, 1 done, 2 running, 2 to do; about 3 min"
    said = progress.total("quick", [*runs, run("sce")], progress.jobs(tmp_path / "work"))
    assert said == "quick: 6 runs, 1 done, 2 running, 3 to do; about 3 min; no measured run yet of the kind of 1"
    for file in files:
        file.close()
    said = progress.total("quick", runs, progress.jobs(tmp_path / "work"))
    assert said == "quick: 5 runs, 1 done, 0 running, 4 to do; about 6 min, one after the other"
    said = progress.total("quick", [run("sce")], [])
    assert said == "quick: 1 runs, 0 done, 0 running, 1 to do; no measured run yet of the kind of 1"


def test_watch_ends_at_an_interrupt(tmp_path: Path, monkeypatch, capsys) -> None:
    job(tmp_path, "a", after(2))
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.time, "sleep", sleep)
    assert progress.main(["--work", str(tmp_path), "--watch", "3"]) == 0
    assert slept == [3.0, 3.0]
    assert capsys.readouterr().out.count("a: round 2 of 8") == 2


def test_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.main(["--work", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == "no unfinished job\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with this project's config and no result."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_totals_are_of_the_configured_studies(project: Path) -> None:
    """quick has two seeds, its smoke size one."""
    whole, smoke = progress.planned([], []), progress.planned([], ["scale=smoke"])
    assert progress.planned(["quick"], []) == whole
    assert 2 * len(smoke["quick-smoke"]) == len(whole["quick"])


def test_a_mistake_in_the_config_is_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.main(["--config", "scale"]) == 2
    assert capsys.readouterr().err.startswith("progress: --config: expected KEY=VALUE, such as scale=cpu, got 'scale'")

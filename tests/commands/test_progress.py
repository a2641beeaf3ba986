"""The progress command, without any run."""

import fcntl
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from workflow_scripts.commands import calculation, main, progress
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.planned_run import PlannedRun

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder: this project's config and no result."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)


def job(name: str, *lines: str, age: float = 0) -> Path:
    """The folder of a job with its progress file."""
    path = Path("work", name, "progress.jsonl")
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (path.stat().st_mtime - age, path.stat().st_mtime - age))
    return path.parent


def after(number: int, of: int = 8) -> str:
    row = {"run": "x", "round": number, "of": of, "phase": "train", "accuracy": {"global": 0.51234}}
    return json.dumps({**row, "seconds": 10.0 * number, "left": 10.0 * (of - number)})


def test_last_whole_line_of_every_unfinished_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job("quick/a", after(1), after(2), '{"round": 3, "of"')  # a line is just being written
    job("quick/long-name", after(1), age=100)
    job("quick/first", '{"round": 0, "of": 60, "phase": "begun", "time": 1.0}', age=50)
    job("quick/done", '{"round": 9, "of": 9}')
    job("quick/empty")
    now = time.time()
    monkeypatch.setattr(progress.time, "time", lambda: now)  # on a busy machine planning takes seconds
    assert progress.main([]) == 0
    stopped = "not running. The same command resumes it, or says again why it failed"
    *lines, total = capsys.readouterr().out.splitlines()
    assert lines == [
        f"quick/long-name: round 1 of 8, 12 %, {stopped}, global 51.2 % (2 min ago)",
        f"quick/first: in the first round of 60, {stopped} (50 s ago)",
        f"quick/a: round 2 of 8, 25 %, {stopped}, global 51.2 % (0 s ago)",
    ]
    assert total.startswith("quick: ")


def test_a_job_that_holds_its_lock_is_running() -> None:
    folder = job("quick/a", after(2))
    with (folder / "lock").open("w") as file:
        assert [listed.running for listed in progress.unfinished_jobs()] == [False]
        fcntl.flock(file, fcntl.LOCK_EX)
        (running_job,) = progress.unfinished_jobs()
        assert running_job.running
        assert "round 2 of 8, 25 %, 60 s left, global 51.2 %" in running_job.format_line()
    assert [listed.running for listed in progress.unfinished_jobs()] == [False]  # reading did not take the lock


def run(method: str, seed: int = 0) -> PlannedRun:
    """A planned run of one setting."""
    ids = {"dataset": "digits", "noise": "sym40", "partition": "iid", "method": method, "seed": seed}
    spec = {"train": {"net": "mlp"}, "method": {"name": method}, "noise": {"kind": "x"}, "partition": {"kind": "y"}}
    planned = PlannedRun("results/quick", **ids, spec=spec, label=method.upper())
    folder = f"store/runs/digits/sym40/iid/{method}-seed{seed}"
    planned.__dict__["plan"] = Plan(folder, "")  # instead of the store
    return planned


def test_the_total_counts_runs_that_have_not_begun() -> None:
    """Of five runs one took 100 s, one has 60 s to go of 80, one is in its first round: two wait. The mean is 90 s, so
    60 + 90 + 2 · 90 = 330 s on the two that go side by side. Another method's run says nothing about these.
    """
    runs = [run("fedavg", seed) for seed in range(5)]
    for folder, seconds in ((runs[0].folder, 100.0), (runs[3].folder, 1000.0)):
        Path(folder).mkdir(parents=True)
        Path(folder, "cost.json").write_text(json.dumps({"seconds": seconds}))
    Path(runs[0].folder, "SHA256SUMS").write_text("")  # the other was killed while it wrote its files
    begun = '{"round": 0, "of": 8, "phase": "begun"}'
    folders = [job(runs[1].folder, after(2)), job(runs[2].folder, begun)]
    job("other/x", after(1))  # another study's: not counted
    files = [(folder / "lock").open("w") for folder in folders]
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX)
    line = progress.total_line("quick", runs, progress.unfinished_jobs())
    assert line == "quick: 5 runs, 1 done, 2 running, 2 to do; about 3 min left"
    line = progress.total_line("quick", [*runs, run("sce")], progress.unfinished_jobs())
    assert line == (
        "quick: 6 runs, 1 done, 2 running, 3 to do; about 3 min left; "
        "no time estimate for 1, since no run of this kind is measured yet"
    )
    for file in files:
        file.close()
    line = progress.total_line("quick", runs, progress.unfinished_jobs())
    assert line == "quick: 5 runs, 1 done, 0 running, 4 to do; about 6 min left, one after the other"


def plan_seed(seed: int, digest: str, lr: float, code: str = "a", versions: str = "torch 2") -> PlannedRun:
    """A planned run in the folder of its seed."""
    planned = run("fedavg", seed)
    planned.__dict__["spec"] = {**planned.spec, "train": {"lr": lr}}
    planned.__dict__["plan"] = Plan(f"store/runs/seed{seed}/{digest}", code, arguments=("--versions", versions))
    return planned


def test_a_line_says_in_what_runs_to_do_differ_from_finished_ones() -> None:
    for seed in range(4):
        for finished in (plan_seed(seed, "old", 0.1), plan_seed(seed, "older", 0.3, "b", "torch 1")):
            record = {"spec": finished.spec, "code": finished.plan.code, "versions": finished.plan.arguments[1]}
            Path(finished.folder).mkdir(parents=True)
            Path(finished.folder, "spec.json").write_text(json.dumps(record))
            Path(finished.folder, "SHA256SUMS").touch()
    to_do = [
        plan_seed(0, "new", 0.2),
        plan_seed(1, "new", 0.2, "c"),
        plan_seed(2, "new", 0.1, versions="torch 3"),
        plan_seed(3, "new", 0.1),  # only its inputs differ
        plan_seed(4, "new", 0.1),  # no run of its seed is finished
    ]
    assert progress.explain_unfinished([plan_seed(0, "old", 0.1)]) == progress.explain_unfinished(to_do[-1:]) == ""
    assert progress.explain_unfinished(to_do) == (
        "  runs to do differ from finished ones in train.lr (2), the code (1), versions of packages (1), "
        "the data or labels (1)"
    )


def test_the_cost_of_unfinished_runs_is_calculated_once_for_equal_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the first run is done, and nothing of the others. Seeds differ in no setting."""
    asked = []

    def calculate(spec: Mapping[str, Any], *_: Any) -> tuple[float, float, float]:
        asked.append(spec["method"]["name"])
        return 1600.0, 4e15, 7200.0

    monkeypatch.setattr(calculation, "calculate_cost", calculate)
    runs = [run("fedavg", 0), run("fedavg", 1), run("sce")]
    job(runs[0].folder, after(2))
    assert list(progress.calculate_left("quick", runs, progress.unfinished_jobs())) == [
        "digits · sym40 · iid · FEDAVG, seed 0: 1,200 steps, 3 PFLOP, 1.5 h",
        "digits · sym40 · iid · FEDAVG, seed 1: 1,600 steps, 4 PFLOP, 2.0 h",
        "digits · sym40 · iid · SCE, seed 0: 1,600 steps, 4 PFLOP, 2.0 h",
        "quick: 3 runs to do: 4,400 steps, 11 PFLOP, 5.5 h on one core",
    ]
    assert asked == ["fedavg", "sce"]


def test_a_calculation_needs_what_the_runs_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["progress", "quick", "--calculate"]) == 2
    assert "is needed. `snakemake quick_settings` makes what runs read\n" in capsys.readouterr().err


def test_totals_are_repeated_until_all_runs_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines that Snakemake's own terminal gets."""
    planned, printed = run("fedavg"), ""
    progress.report_totals([planned], pause=0.01)
    (reports,) = (thread for thread in threading.enumerate() if thread.daemon and thread.name.endswith("(report)"))
    while printed.count("training: 1 run, 0 done, 0 running, 1 to do") < 2:
        printed += capsys.readouterr().err
    Path(planned.folder).mkdir(parents=True)
    Path(planned.folder, "cost.json").write_text(json.dumps({"seconds": 1.0}))
    Path(planned.folder, "SHA256SUMS").write_text("")
    reports.join(60)
    assert not reports.is_alive()


def test_watch_ends_at_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.time, "sleep", sleep)
    assert progress.main(["--watch", "3"]) == 0
    assert slept == [3.0, 3.0]
    assert capsys.readouterr().out.count("no unfinished job") == 2


def test_totals_are_of_the_configured_studies() -> None:
    """quick has two seeds, its smoke size one."""
    full, smoke = progress.plan_runs([], {}), progress.plan_runs([], {"scale": "smoke"})
    assert progress.plan_runs(["quick"], {}) == full
    assert 2 * len(smoke["quick-smoke"]) == len(full["quick"])
    assert len({run.folder for run in full["quick"]}) == len(full["quick"])  # equal settings are one run


def test_an_unknown_study_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["progress", "quik"]) == 2
    assert capsys.readouterr().err == "progress: unknown study 'quik'; did you mean 'quick'?\n"

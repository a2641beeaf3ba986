"""What the terminal says: one line a job, failures by their log, changed settings, winners."""

from __future__ import annotations

import json
import logging
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fednoise_core.report.best import TIE
from fednoise_core.report.marks import MARKS
from workflow_scripts import terminal, why, winners
from workflow_scripts.runs import PlannedRun, RunFiles
from workflow_scripts.store import Plan


class Shown(logging.Handler):
    """Snakemake's terminal handler, by its name; keeps what it would print."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.text = "DefaultStreamHandler", []

    def emit(self, record: logging.LogRecord) -> None:
        self.text += [line for line in [self.format(record)] if line]


def speak(*, dryrun: bool = False, changed: Any = list) -> tuple[Any, list[str]]:
    """(say(event, message, …), what was printed)."""
    logger, handler = logging.Logger("stand-in"), Shown()
    logger.addHandler(handler)
    terminal.attach(logger, dryrun=dryrun, changed=changed)

    def say(event: str | None, message: str | None = None, **facts: Any) -> None:
        logger.error(message, extra={**facts, **({"event": types.SimpleNamespace(name=event)} if event else {})})

    return say, handler.text


def test_one_line_a_job_as_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    say, text = speak()
    say(None, "Select jobs to execute...")
    say("RESOURCES_INFO", "Provided cores: 2")
    say("JOB_STARTED", "Execute 1 jobs...", jobs=[0])
    say("RUN_INFO", "Job stats: …", stats={"train": 4, "all": 1, "total": 5})
    for number in range(2):
        say("JOB_INFO", jobid=number, rule_name="train", rule_msg=f"train run {number}")
        say("SHELLCMD", "python -m …")
    assert text == ["Job stats: …"]
    clock[0] = 30.0
    say("JOB_FINISHED", "Finished jobid: 1", job_id=1)
    say("PROGRESS", done=1, total=5)
    assert text[1:] == ["1/5   20 %  about 2 min left  train run 1"]  # 30 s a run, three to go: 90 s
    say("JOB_INFO", jobid=9, rule_name="all", rule_msg=None)
    say("JOB_FINISHED", "Finished jobid: 9", job_id=9)
    say("PROGRESS", done=2, total=5)
    assert len(text) == 2  # what only collects is not told


def test_a_failure_names_its_log_and_no_command(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"line {number}\n" for number in range(50)) + "train: lr must be above 0\n")
    say, text = speak()
    say("JOB_INFO", jobid=3, rule_name="train", rule_msg="train run 3")
    say("JOB_ERROR", jobid=3, rule_name="train", rule_msg=None, log=[str(log)], shellcmd="python " + 9000 * "x")
    for event in (None, "ERROR"):
        say(event, "RuleException:\nCalledProcessError: Command python " + 9000 * "x")
    say("ERROR", "RuleException:\nKeyError: a defect of a rule")
    said, defect = text
    assert "a defect of a rule" in defect
    assert said.startswith(f"FAILED: train run 3\n  log: {log}\n")
    assert said.endswith("train: lr must be above 0")
    assert "xxx" not in said
    assert len(said.splitlines()) == 2 + terminal.LOG_LINES


def test_a_stop_is_no_failure(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("a round\nmine/seed0: stopped after round 123; the same command goes on\n")
    say, text = speak()
    say("JOB_ERROR", jobid=3, rule_name="train", rule_msg=None, log=[str(log)])
    assert text == ["stopped: mine/seed0: stopped after round 123; the same command goes on"]
    last = "WorkflowError:\nAt least one job did not complete successfully."
    say("ERROR", last)
    assert text[1:] == ["Nothing failed: runs stopped after a round, 1; the same command goes on."]
    say("JOB_ERROR", jobid=4, rule_name="train", rule_msg=None, log=[])
    say("ERROR", last)
    assert text[-1] == last  # beside a stop something failed


def test_a_dry_run_says_the_table_once_with_the_changes() -> None:
    say, text = speak(dryrun=True, changed=lambda: ["method.mu: 0.01 → 0.1"])
    for _ in range(2):
        say("RUN_INFO", "Job stats:\njob count\n", stats={"train": 1})
    assert text == ["Job stats:\njob count\nmethod.mu: 0.01 → 0.1"]


def test_another_handler_is_left_alone() -> None:
    logger, handler = logging.Logger("stand-in"), Shown()
    handler.name = "a plugin's"
    logger.addHandler(handler)
    terminal.attach(logger, dryrun=False, changed=list)
    assert handler.formatter is None
    assert handler.filters == []


def planned(tmp_path: Path, method: str, seed: int = 0, **more: Any) -> PlannedRun:
    named = {"dataset": "digits", "noise": "sym40", "partition": "iid", "method": method, "seed": seed}
    own = Plan(f"store/runs/{more.get('noise', 'sym40')}/{method}/seed{seed}/0", "")
    store: Any = SimpleNamespace(run=lambda run: RunFiles(own, own, own, own))
    return PlannedRun("results/quick", **{**named, **more}, store=store)


def made(run: PlannedRun, **files: Any) -> None:
    Path(run.folder).mkdir(parents=True)
    for name, content in files.items():
        Path(run.folder, f"{name}.json").write_text(json.dumps(content))


def test_changed_keys_with_old_and_new_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = {"method": {"name": "fedprox", "mu": 0.01}, "train": {"rounds": 60, "net": "mlp"}, "seed": 0}
    new = {"method": {"name": "fedprox", "mu": 0.1}, "train": {"rounds": 60.0, "net": "mlp", "clip": 1}, "seed": 0}
    runs = [planned(tmp_path, name, spec=new) for name in ("fedprox", "again", "never")]
    for run in runs[:2]:
        made(run, spec={"spec": old, "code": "abc"})
    assert [" ".join(line.split()) for line in why.changes(runs)] == [
        "2 runs method.mu: 0.01 → 0.1 (again, fedprox)",
        "2 runs train.clip: default → 1 (again, fedprox)",
        "1 run not made yet",
    ]
    assert why.changes(runs[:1], lambda run: "abc") == why.changes(runs[:1])
    assert "code changed" in why.changes(runs[:1], lambda run: "def")[-1]
    made_again = {"spec": new, "code": "abc"}
    Path(runs[0].folder, "spec.json").write_text(json.dumps(made_again))
    assert why.changes(runs[:1], lambda run: "abc") == []


def run_of(
    tmp_path: Path, method: str, seed: int, value: float | None, view: str = "global", **more: Any
) -> PlannedRun:
    run = planned(tmp_path, method, seed, **more)
    told = {"diverged": value is None, "headline_view": view, "classes": 10}
    made(run, summary={"accuracy": {"last10_mean": value}, **told})
    return run


def test_the_winner_of_each_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 ± 14.1 and 55 tie; 40 does not. Who was told the rate does not count."""
    monkeypatch.chdir(tmp_path)
    found = {"fedavg": (0.4, 0.4), "sce": (0.7, 0.5), "gce": (0.55, 0.55), "oracle": (0.9, 0.9), "pooled": (0.95, 0.95)}
    runs = []
    for method, values in found.items():
        marks = {"oracle_rate": method == "oracle", "pooled": method == "pooled", "label": method.upper()}
        view = "personal" if method == "gce" else "global"
        runs += [run_of(tmp_path, method, seed, value, view, **marks) for seed, value in enumerate(values)]
    tie = "SCE 60.0 ± 14.1 % = GCE § 55.0 ± 0.0 % (tie)"
    assert winners.closing("results/quick-smoke", runs) == [
        "quick-smoke: accuracy, mean of the last ten evaluations",
        f"  digits · sym40 · iid: {tie}; next FEDAVG 40.0 ± 0.0 %; n = 2",
        f"  (tie) {TIE}",
        "  § the mean over personal models, not one global model",
        "  page: results/quick-smoke/report.html",
    ]
    pages = [f"build/labels/{k}.html" for k in range(14)]
    assert winners.closing("results/quick", runs, pages)[4:] == [
        "  page: results/quick/report.html",
        *(f"  suspect labels: {page}" for page in pages[:12]),
        "  and 2 more pages of suspects",
    ]
    private = run_of(tmp_path, "private", 0, 0.99)
    summary = json.loads(Path(private.folder, "summary.json").read_text())
    Path(private.folder, "summary.json").write_text(json.dumps({**summary, "epsilon": 0.8109}))
    lines = winners.closing("results/quick", [*runs, private])
    assert [line for line in lines if line.startswith("  ‡")] == [f"  ‡ {MARKS['‡']} (ε = 0.811)"]
    assert winners.winner([("A", [50.0]), ("B", [49.9])]) == "A 50.0 % leads; next B 49.9 %; n = 1"
    assert winners.winner([("A", [50.0, 50.0]), ("B", [9.0, 9.0])]).startswith(
        "A 50.0 ± 0.0 % leads in the mean; next B"
    )
    assert winners.winner([("A", [50.0] * 3), ("B", [9.0] * 3)]).startswith("A 50.0 ± 0.0 % wins; next B")


def test_nobody_wins_without_a_rival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diverged seed leaves no mean; one method alone, clean labels, and a rate that happens to be right are said."""
    monkeypatch.chdir(tmp_path)
    failed = {"once": (0.9, None), "never": (0.5, 0.5), "always": (None, None)}
    runs = [run_of(tmp_path, name, seed, value) for name, values in failed.items() for seed, value in enumerate(values)]
    alone = "  digits · sym40 · iid: never 50.0 ± 0.0 %: nothing to compare; n = 2; diverged in a seed: always, once"
    assert winners.closing("results/quick", runs)[1] == alone
    assert winners.closing("results/quick", runs[4:])[1] == "  digits · sym40 · iid: diverged in a seed: always"
    noises = {"sym40": {"kind": "symmetric", "rate": 0.4}, "clean": {"kind": "none"}}
    runs = []
    for noise, spec in noises.items():
        for value, method in enumerate(("fedavg", "sce", "guess")):
            whole = {"noise": spec, "method": {"name": "coteaching", "forget_rate": 0.4} if method == "guess" else {}}
            runs.append(run_of(tmp_path, method, 0, 0.5 + value / 10, noise=noise, spec=whole))
    lines = winners.closing("results/quick", runs)
    assert lines[:3] == [
        "quick: accuracy, mean of the last ten evaluations, all on digits · iid",
        "  symmetric 0.4: sce 60.0 % leads; next fedavg 50.0 %; n = 1; "
        "not compared, as its own rate is the setting's: guess",
        "  no noise: fedavg 50.0 %, sce 60.0 %, guess 70.0 %: the ceiling; n = 1",
    ]

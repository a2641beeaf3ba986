"""Runs without the workflow, as the workflow's own: one cell, and a driver that is stopped and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_workflow import ENV, RUN, Workflow, lay_out

pytestmark = pytest.mark.workflow

TOY = "config/studies/toy.yaml"
KEPT = ("spec.json", "metrics.parquet", "diagnostics.parquet", "summary.json", "model.safetensors", "suspects.csv")
BARE = """\
import sys

class Absent:  # as where only torch and what the library itself needs is installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("yaml", "jsonschema", "snakemake", "dvc", "cleanlab", "pandas", "matplotlib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def fresh(tmp_path: Path) -> Workflow:
    """The toy study, of which nothing is made."""
    lay_out(tmp_path / "fresh")
    return Workflow(tmp_path / "fresh")


def python(workflow: Workflow, *command: str) -> str:
    return workflow(sys.executable, "-m", *command)


def test_a_cell_by_hand_is_the_workflows_run(fresh: Workflow, finished: Path) -> None:
    """To the byte; the workflow takes it as made, and sees a later change of its settings."""
    cell = ("workflow_scripts.cell", "--paper", "toy", "--table", "main", "--method", "feddpcont", "--device", "cpu")
    said = python(fresh, *cell)
    run = RUN.format("sym40/open/feddpcont", "")
    assert f"{run.rstrip('/')}: best " in said
    for name in KEPT:
        assert fresh.path(run + name).read_bytes() == (finished / run / name).read_bytes(), name
    target = run + "summary.json"
    assert fresh.stale(target) == {}
    with fresh.edited(TOY, "beta: 1.0", "beta: 0.5"):
        assert fresh.stale(target) == {"train": 1}
    assert "made already" in python(fresh, *cell)
    assert fresh.stale("toy_runs")["train"] == 3  # the others
    fresh.snakemake("toy_runs")
    assert fresh.audit() == []


def test_the_driver_stops_and_goes_on(fresh: Workflow, finished: Path, tmp_path: Path) -> None:
    """Where there is neither Snakemake nor DVC nor what reads the config: the runs come from a file."""
    text = fresh.path(TOY).read_text()
    text = text.replace("methods:\n", "methods:\n  slow: {name: fedavg, train: {rounds: 150}}\n", 1)
    fresh.path(TOY).write_text(text.replace("methods: [fedavg]}", "methods: [fedavg, slow]}", 1))
    fresh.path("config/order.yaml").write_text("blocks: [{study: toy, methods: [slow]}, {study: toy}]\n")
    assert "plan.json: 5 runs" in python(fresh, "workflow_scripts.drive", "--export", "plan.json")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/sitecustomize.py").write_text(BARE)
    environment = {**ENV, "PYTHONPATH": str(tmp_path / "bare")}
    command = [sys.executable, "-m", "workflow_scripts.drive", "--plan", "plan.json", "--device", "cpu"]

    def drive(*more: str) -> tuple[int, str]:
        done = subprocess.run(
            [*command, *more], cwd=fresh.folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    status, said = drive("--minutes", "0.001")
    assert status == 75, said
    assert "0 of 5 runs are made" in said
    assert "time is over; the same command goes on" in said

    slow = RUN.format("random20/even/slow", "")
    progress = fresh.path(f"work/{slow}progress.jsonl")
    running = subprocess.Popen(command, cwd=fresh.folder, env=environment, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 240
    while not (progress.is_file() and progress.read_text().count("\n") > 3):
        assert running.poll() is None, "the driver ended before it could be stopped"
        assert time.monotonic() < end, "no progress line"
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait(timeout=120) == 75
    assert fresh.path(f"work/{slow}checkpoint.pt").is_file()
    assert not fresh.path(f"{slow}summary.json").exists()

    status, said = drive("--minutes", "60")
    assert status == 0, said
    assert "5 of 5 runs are made" in said
    assert json.loads(fresh.path(f"{slow}cost.json").read_text())["resumed"] > 0  # the round it went on from
    run = RUN.format("sym40/open/feddpcont", "")
    for name in KEPT:
        assert fresh.path(run + name).read_bytes() == (finished / run / name).read_bytes(), name
    before = fresh.path(f"{run}summary.json").stat().st_mtime_ns
    status, said = drive()
    assert (status, said.count("5 of 5 runs are made")) == (0, 2)
    assert fresh.path(f"{run}summary.json").stat().st_mtime_ns == before
    fresh.path("plan.json").write_text("[{}]")
    status, said = drive()
    assert (status, said) == (2, "drive: plan.json: not written by --export (KeyError: 'spec')\n")

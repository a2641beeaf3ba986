"""The driver: runs that cannot be read, are held by others or go wrong; what it records; that it leaves no orphan."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fednoise_core.io import write_json
from workflow_scripts import drive, locks
from workflow_scripts.drive import Driver

TRAINER = """\
#!/bin/sh
trap 'echo asked > asked; exit' TERM
echo begun > begun
while :; do sleep 0.05; done
"""
PARENT = """\
import sys
from workflow_scripts.drive import Driver, _listening
sys.executable = sys.argv[1]
driver = Driver(0, [], 1)
with _listening(driver):
    driver.train([], 1)
"""


def entry(name: str) -> dict[str, Any]:
    spec = {"method": {"name": "fedavg"}, "train": {"net": "mlp"}, "seed": 0}
    files = {key: f"{name}.{key}" for key in ("arrays", "labels", "partition")}
    told = {"ids": "a/b/c/d", "code": "0", "out": f"results/toy/runs/{name}", "work": f"work/{name}"}
    return {"spec": spec, **files, **told, "before": [{"module": name, "arguments": [], "out": f"{name}.labels"}]}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """In an empty folder; nothing is trained."""
    monkeypatch.chdir(tmp_path)
    made = Driver(0, [], 1)
    monkeypatch.setattr(made, "train", lambda files, together: None)
    return made


def test_a_finished_run_whose_inputs_are_gone_is_made_again(driver: Driver) -> None:
    one = entry("one")
    write_json(f"{one['out']}/spec.json", {"spec": one["spec"], "code": "0", "inputs": {}})
    write_json(f"{one['out']}/summary.json", {})
    assert not drive.is_made(one)
    for key in ("arrays", "labels", "partition"):
        Path(one[key]).write_text(key)
    write_json(
        f"{one['out']}/spec.json", {"spec": one["spec"], "code": "0", "inputs": drive.by_hand.as_job(one).inputs()}
    )
    assert drive.is_made(one)
    Path(one["out"], "spec.json").write_text("{")
    assert not drive.is_made(one)


def test_one_that_goes_wrong_and_one_that_is_held_end_nothing_else(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(steps: list[Any]) -> tuple[list[str], int]:
        if steps[0].module == "broken":
            raise ZeroDivisionError("no client")
        return [steps[0].out], 0

    monkeypatch.setattr(drive.by_hand, "make", make)
    entries = [entry(name) for name in ("broken", "held", "well")]
    Path("work/held").mkdir(parents=True)
    number = locks.hold(Path("work/held/lock"))
    assert number is not None
    assert drive.drive(entries, driver) == 75
    said = capsys.readouterr()
    assert "drive: results/toy/runs/broken: ZeroDivisionError: no client" in said.err
    assert "drive: results/toy/runs/held: another process trains it" in said.err
    assert "drive: results/toy/runs/held: went wrong" not in said.err
    assert "others are at work; the same command goes on" in said.out
    assert driver.trained == {"results/toy/runs/well"}
    locks.release(Path("work/held/lock"), number)
    assert drive.drive(entries, driver) == 1  # nothing was trained, and no one holds them
    assert driver.trained == {"results/toy/runs/well", "results/toy/runs/held"}


def test_what_is_made_is_recorded_and_what_has_no_record_yet(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(drive.by_hand, "record", lambda files, scale: asked.append(files))
    monkeypatch.setattr(drive, "job_record", lambda file: {} if "noted" in file else None)
    entries = [entry(name) for name in ("noted", "again", "new", "unmade")]
    driver.trained, driver.made = {entries[1]["out"]}, []
    drive.record(entries, entries[3:], driver, "paper")
    folders = "results/toy/runs/again/spec.json", "results/toy/runs/new/spec.json"
    assert asked == [["again.labels", folders[0], "new.labels", folders[1]]]
    monkeypatch.setattr(drive, "job_record", lambda file: {})
    drive.record(entries, entries[3:], driver, "paper")
    assert asked[1:] == [[folders[0]]]
    driver.end = time.monotonic() + drive.RECORDING / 2
    drive.record(entries, entries[3:], driver, "paper")
    assert len(asked) == 2


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_the_training_process_does_not_outlive_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    trainer = tmp_path / "trainer"
    trainer.write_text(TRAINER)
    trainer.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", PARENT, str(trainer)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as running:

        def wait(there: Callable[[], bool]) -> None:
            end = time.monotonic() + 120
            while not there():
                assert time.monotonic() < end
                time.sleep(0.05)

        wait((tmp_path / "begun").is_file)
        running.send_signal(number)
        wait((tmp_path / "asked").is_file)
        assert running.wait() == (0 if number == signal.SIGHUP else -number)

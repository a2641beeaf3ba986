"""`python -m workflow_scripts.steps train`: interrupts, refusals and records."""

import contextlib
import errno
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
from filelock import FileLock

import fednoise_core as fn
from fednoise_core.api import checks, simulate
from fednoise_core.engine import loop
from fednoise_core.io import SpecError
from fednoise_core.testing.test_contract import FILES
from workflow_scripts.provenance.step_code import StepCode
from workflow_scripts.steps import train

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Restore the handlers of SIGTERM and SIGINT, which the command replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def words(
    folder: Path, inputs: dict[str, str], *options: str, name: str = "fedavg", **changes: dict[str, Any]
) -> list[str]:
    """The command line of a run. changes: of its spec."""
    method, settings = toy.settings(name)
    spec = {"method": method, "train": settings, "seed": 0, **changes}
    files = [f"--{key}={file}" for key, file in inputs.items()]
    where = [f"--out={folder / 'out'}", f"--work={folder / 'work'}"]
    return ["--device=cpu", "--checkpoint-seconds=1000", "--spec", json.dumps(spec), *files, *where, *options]


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "out" / name).read_bytes() for name in FILES}


def at_round(monkeypatch: pytest.MonkeyPatch, number: int, act: Any) -> None:
    """Call `act` when that many rounds were reported."""
    report, seen = loop.Progress.report_round, []

    def watched(self: Any, *args: Any) -> None:
        report(self, *args)
        seen.append(1)
        if len(seen) == number:
            act()

    monkeypatch.setattr(loop.Progress, "report_round", watched)


@pytest.mark.parametrize(("name", "number"), [("fedavg", "TERM"), ("scaffold", "INT")])
def test_a_signal_stops_after_the_round_and_the_next_call_finishes(name, number, inputs, tmp_path, monkeypatch, capsys):
    assert train.main(words(tmp_path / "whole", inputs, name=name)) == 0
    with monkeypatch.context() as patch:
        at_round(patch, 2, lambda: os.kill(os.getpid(), getattr(signal, f"SIG{number}")))
        assert train.main(words(tmp_path / "broken", inputs, name=name)) == train.INTERRUPTED
    printed = capsys.readouterr()
    assert re.search(r"^\S+/broken/out: paused after round 2; run the same command to resume$", printed.out, re.M)
    assert printed.err == ""
    assert list(tmp_path.rglob("checkpoint.pt"))
    assert train.main(words(tmp_path / "broken", inputs, name=name)) == 0
    assert "resumed from round 2" in capsys.readouterr().out
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")
    assert not list(tmp_path.rglob("checkpoint.pt"))
    assert not list(tmp_path.rglob("progress.jsonl"))


def test_ctrl_c_of_the_plain_command_is_one_line(inputs, tmp_path):
    """There is no traceback, and the checkpoint is saved."""
    _, settings = toy.settings("fedavg", rounds=5000)
    command = [sys.executable, "-m", "workflow_scripts.steps", "train", *words(tmp_path, inputs, train=settings)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    progress = tmp_path / "work/progress.jsonl"
    while not (progress.exists() and progress.read_text().count("\n") > 2):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == train.INTERRUPTED
    assert re.fullmatch(r".*: paused after round \d+; run the same command to resume", out.splitlines()[-1])
    assert err == ""
    assert (tmp_path / "work/checkpoint.pt").exists()


def test_blocked_paths_and_a_deep_spec_are_one_line(inputs, tmp_path, capsys):
    (tmp_path / "work/checkpoint.pt").mkdir(parents=True)
    assert train.main(words(tmp_path, inputs, "--checkpoint-rounds=1")) == 2
    (tmp_path / "b").mkdir()
    (tmp_path / "b/work").touch()
    assert train.main(words(tmp_path / "b", inputs)) == 2
    checkpoint, work = capsys.readouterr().err.splitlines()
    assert "work/checkpoint.pt" in checkpoint
    assert work.endswith("b/work'")
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    with pytest.raises(SystemExit, match="2"):
        train.main(words(tmp_path, inputs, "--spec", str(tmp_path / "deep.json")))
    assert "neither JSON nor a JSON file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": {"name": "scaffold", "no": 1}}, "no: unknown key"),
        ({"label": "x"}, "--spec: label: unknown key"),  # it decides no number
    ],
)
def test_a_wrong_spec_is_one_line(change, message, inputs, tmp_path, capsys):
    assert train.main(words(tmp_path, inputs, **change)) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "out/summary.json").exists()


@pytest.mark.parametrize("name", ["workers:x", "workers:0", "sequential:2", "replay"])
def test_a_wrong_executor_is_one_line(name, inputs, tmp_path, capsys):
    assert train.main(words(tmp_path, inputs, f"--executor={name}")) == 2
    assert "train: executor: " in capsys.readouterr().err


@pytest.mark.parametrize("package", ["pyarrow", "safetensors"])
def test_packages_for_writing_results_are_checked_first(package, inputs, tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: None if name == package else find(name, *args))
    assert train.main(words(tmp_path, inputs)) == 2
    assert f"pip install {package}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_second_process_in_a_work_folder_is_refused(inputs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "LOCK_PATIENCE", 0.1)
    (tmp_path / "work").mkdir()
    with FileLock(tmp_path / "work/lock"):
        assert train.main(words(tmp_path, inputs)) == 2
    assert f"{tmp_path / 'work'}: another process trains here" in capsys.readouterr().err


def test_a_run_that_another_process_finishes_meanwhile_is_left_alone(inputs, tmp_path, monkeypatch):
    """The process of a killed Snakemake holds the lock and finishes the run; then this process gets the lock."""
    alone = train._training_lock

    @contextlib.contextmanager
    def after_another(work: Path) -> Iterator[None]:
        monkeypatch.setattr(train, "_training_lock", alone)
        assert train.main(words(tmp_path, inputs)) == 0
        monkeypatch.setattr(train, "train_job", None)
        with alone(work):
            yield

    monkeypatch.setattr(train, "_training_lock", after_another)
    assert train.main(words(tmp_path, inputs)) == 0
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["lock"]


def test_a_finished_run_that_is_trained_again_is_unfinished_meanwhile(inputs, tmp_path, monkeypatch):
    """Snakemake forces it. A run by hand has no planned code and records its own."""
    assert train.main(words(tmp_path, inputs)) == 0
    steps, record = StepCode(ROOT), tmp_path / "out/spec.json"
    assert json.loads(record.read_text())["code"] == steps.hash_entries(
        steps.step_entries("training_run", method=["fedavg"], net=["mlp"])
    )
    sums, there, again = tmp_path / "out/SHA256SUMS", [], train.train_job
    monkeypatch.setattr(train, "train_job", lambda *args: (there.append(sums.exists()), again(*args)))
    monkeypatch.setattr(train, "_check_code", lambda *_: "def")
    assert train.main(words(tmp_path, inputs)) == 0
    assert there == [False]
    assert json.loads(record.read_text())["code"] == "def"


def test_executor_and_threads_are_those_asked_for(inputs, tmp_path, capsys, monkeypatch):
    import torch

    seen = []
    at_round(monkeypatch, 1, lambda: seen.append(torch.get_num_threads()))
    assert train.main(words(tmp_path, inputs, "--executor=workers:2", "--threads=2")) == 0
    torch.set_num_threads(1)
    assert seen == [2]
    assert "workers x 2, cpu" in capsys.readouterr().out


def fail_writing(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Let the disk be full from this file on; files are counted from 1."""
    fsync, seen = os.fsync, []

    def sync(file: int) -> None:
        seen.append(file)
        if len(seen) >= first:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.parametrize(("first", "named", "resumed"), [(2, "checkpoint.pt", 1), (5, "suspects.csv", 2)])
def test_a_full_disk_costs_nothing_that_was_finished(first, named, resumed, inputs, tmp_path, capsys, monkeypatch):
    assert train.main(words(tmp_path / "whole", inputs)) == 0
    with monkeypatch.context() as patch:
        fail_writing(patch, first)
        assert train.main(words(tmp_path / "full", inputs, "--checkpoint-rounds=1")) == 75
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"train: .*No space left on device: '.*{named}'\. The settings .*run the same command", line)
    assert train.main(words(tmp_path / "full", inputs)) == 0
    assert f"resumed from round {resumed}" in capsys.readouterr().out
    assert files_of(tmp_path / "full") == files_of(tmp_path / "whole")


def test_a_file_in_place_of_a_folder_is_one_line(inputs, tmp_path, capsys):
    for name in ("work", "out"):
        (tmp_path / name).write_text("")
        assert train.main(words(tmp_path, inputs)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("train: ")
        assert str(tmp_path / name) in line
        (tmp_path / name).unlink()


def test_in_python_a_finished_run_is_not_lost(tmp_path, monkeypatch):
    world = toy.arrays(), toy.toy_labels(), toy.toy_partition()
    with monkeypatch.context() as patch:
        fail_writing(patch, 1)
        with pytest.warns(UserWarning, match=r"No space left on device: '.*metrics\.parquet'; the run is not lost"):
            run = fn.run(*world, "fedavg", toy.TRAIN, out=tmp_path / "full")
    run.save(tmp_path / "other")
    assert fn.load(tmp_path / "other").curve == run.curve
    monkeypatch.setattr(simulate, "run_loop", None)  # nothing is trained
    with pytest.raises(SpecError, match=r"out: expected a folder that can be written to, got .*No such file"):
        fn.run(*world, "fedavg", toy.TRAIN, out="/proc/nothing")
    monkeypatch.setattr(checks.tempfile, "TemporaryFile", lambda dir: Path("/dev/full").write_bytes(b"x"))
    with pytest.raises(OSError, match="No space left"):
        fn.run(*world, "fedavg", toy.TRAIN, out=tmp_path / "full")


UNWANTED = {"pandas", "sklearn", "scipy", "torchvision", "matplotlib", "snakemake", "pyarrow", "dvc", "cleanlab", "PIL"}


def test_a_training_process_imports_only_what_it_needs_until_its_results_are_written(inputs, tmp_path):
    """Imports are checked after each round. The parquet files that are written at the end need pyarrow."""
    code = (
        "import sys, json; from fednoise_core.engine import loop; from workflow_scripts.steps import train\n"
        "report = loop.Progress.report_round\n"
        "def watched(self, *args):\n"
        "    report(self, *args); print('LOADED', json.dumps(sorted({m.split('.')[0] for m in sys.modules})))\n"
        "loop.Progress.report_round = watched\n"
        "sys.exit(train.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *words(tmp_path, inputs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT).stdout
    loaded = set(json.loads(next(line for line in printed.splitlines() if line.startswith("LOADED")).split(" ", 1)[1]))
    assert "torch" in loaded
    assert not loaded & UNWANTED

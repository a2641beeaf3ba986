"""`train --specs`: several runs in one process, stopped in between by the clock or by SIGTERM, one of them broken."""

from __future__ import annotations

import contextlib
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

from fednoise_core.engine import loop
from workflow_scripts import train
from workflow_scripts.stepcode import StepCode
from workflow_scripts.training import TrainingOptions

ROOT = Path(__file__).parents[1]
KEPT = [
    *("metrics.parquet", "diagnostics.parquet", "suspects.csv", "sites.csv", "confusion.csv"),
    *("model.safetensors", "spec.json", "summary.json"),
]
NAMES = ("fedavg", "scaffold", "feddpcont")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("inputs")
    parts = {"arrays": toy.arrays(), "labels": toy.labels(), "partition": toy.partition()}
    for name, part in parts.items():
        part.save(folder / f"{name}.npz")
    return {name: str(folder / f"{name}.npz") for name in parts}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The command takes SIGTERM and SIGINT for itself, and gives them back."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def specs(folder: Path, inputs: dict[str, str], names: tuple[str, ...] = NAMES, **changes: dict[str, Any]) -> list[str]:
    """One file per run; changes: other entries of the run of that name."""
    files = []
    for name in names:
        method, how = toy.settings(name)
        spec = {"method": method, "train": how, "seed": 0}
        job = {
            "spec": spec,
            **inputs,
            "out": str(folder / name / "out"),
            "work": str(folder / name / "work"),
        }
        file = folder / f"{name}.json"
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**job, **changes.get(name, {})}))
        files.append(str(file))
    return files


def call(files: list[str], *more: str) -> int:
    return train.main(["--device=cpu", "--checkpoint-seconds=1000", *more, "--specs", *files])


def files_of(folder: Path, names: tuple[str, ...] = NAMES) -> dict[str, bytes]:
    return {f"{name}/{kept}": (folder / name / "out" / kept).read_bytes() for name in names for kept in KEPT}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, str]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    assert call(specs(folder, inputs)) == 0
    return files_of(folder)


def test_runs_of_one_process_are_those_of_processes_of_their_own(inputs, whole, tmp_path):
    for name in NAMES:
        job = json.loads(Path(specs(tmp_path, inputs, (name,))[0]).read_text())
        words = [f"--{key}={job[key]}" for key in ("arrays", "labels", "partition", "out", "work")]
        assert train.main(["--device=cpu", "--spec", json.dumps(job["spec"]), *words]) == 0
    assert files_of(tmp_path) == whole


def at_round(monkeypatch: pytest.MonkeyPatch, wanted: int, act: Any) -> None:
    """Call `act` when that many rounds were reported, whichever run they belong to."""
    report, seen = loop.Progress.round, []

    def watched(self: Any, *args: Any) -> None:
        report(self, *args)
        seen.append(1)
        if len(seen) == wanted:
            act()

    monkeypatch.setattr(loop.Progress, "round", watched)


@pytest.mark.parametrize("how", ["--together=1", "--together=3"])
@pytest.mark.parametrize(("after", "number"), [(1, "TERM"), (2, "INT"), (4, "TERM"), (5, "INT")])
def test_a_signal_stops_after_the_round_and_the_next_call_finishes(
    how, after, number, inputs, whole, tmp_path, monkeypatch, capsys
):
    files = specs(tmp_path, inputs)
    with monkeypatch.context() as patch:
        at_round(patch, after, lambda: os.kill(os.getpid(), getattr(signal, f"SIG{number}")))
        assert call(files, how) == train.STOPPED
    said = capsys.readouterr()
    assert re.search(r"^\S+/\w+/out: stopped after round \d; the same command goes on$", said.out, re.M)
    assert said.err == ""
    assert list(tmp_path.rglob("checkpoint.pt"))
    assert call(files, how) == 0
    assert files_of(tmp_path) == whole
    assert not list(tmp_path.rglob("checkpoint.pt"))
    assert not list(tmp_path.rglob("progress.jsonl"))


def test_the_clock_stops_after_the_round_and_the_next_calls_finish(inputs, whole, tmp_path, monkeypatch):
    files, clock = specs(tmp_path, inputs), [0.0]
    at = train.time.monotonic
    monkeypatch.setattr(train.time, "monotonic", lambda: at() + clock[0])
    with monkeypatch.context() as patch:
        at_round(patch, 2, lambda: clock.__setitem__(0, 1e6))
        assert call(files, "--minutes=100") == train.STOPPED
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == 1
    assert call(files, "--minutes=100") == 0
    assert files_of(tmp_path) == whole


def test_no_time_at_all_starts_nothing(inputs, tmp_path):
    assert call(specs(tmp_path, inputs), "--minutes=1e-9") == train.STOPPED
    assert not list(tmp_path.glob("*/out"))


def test_lanes_shared_by_runs_give_the_results_of_lanes_alone(inputs, tmp_path):
    for k, how in enumerate((["--together=3", "--executor=lanes:2"], ["--together=1", "--executor=lanes:1"])):
        assert call(specs(tmp_path / str(k), inputs), *how) == 0
    assert files_of(tmp_path / "0") == files_of(tmp_path / "1")


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize(
    "change", [{"spec": {"method": {"name": "scaffold", "no": 1}, "train": {}, "seed": 0}}, {"labels": "no.npz"}]
)
def test_a_broken_run_is_named_and_does_not_stop_the_others(together, change, inputs, whole, tmp_path, capsys):
    files = specs(tmp_path, inputs, scaffold=change)
    assert call(files, f"--together={together}") == 2
    error = capsys.readouterr().err
    print(error)  # for a failure's report
    assert "no.npz" in error or "no: unknown key" in error
    assert str(tmp_path / "scaffold" / "out") in error
    good = ("fedavg", "feddpcont")
    assert files_of(tmp_path, good) == {k: v for k, v in whole.items() if not k.startswith("scaffold")}
    assert not (tmp_path / "scaffold" / "out" / "summary.json").exists()
    assert call(specs(tmp_path, inputs), f"--together={together}") == 0  # mended: the others are not done again
    assert files_of(tmp_path) == whole


def test_an_error_inside_a_run_is_told_with_its_folder(inputs, tmp_path, capsys, monkeypatch):
    from fednoise_core.methods.scaffold import Scaffold

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Scaffold, "merge", fails)
    assert call(specs(tmp_path, inputs), "--together=3", "--executor=lanes:2") == 1
    assert f"{tmp_path / 'scaffold' / 'out'}: ZeroDivisionError: oh" in capsys.readouterr().err
    assert files_of(tmp_path, ("fedavg", "feddpcont"))


def single(folder: Path, inputs: dict[str, str]) -> list[str]:
    """The command line of one run."""
    job = json.loads(Path(specs(folder, inputs, ("fedavg",))[0]).read_text())
    words = [f"--{key}={job[key]}" for key in ("arrays", "labels", "partition", "out", "work")]
    return ["--device=cpu", "--spec", json.dumps(job["spec"]), *words]


def test_a_run_that_another_process_finishes_meanwhile_is_left_alone(inputs, tmp_path, monkeypatch):
    """The process of a Snakemake that was killed holds the lock, ends, and this one gets it."""
    alone = train._alone

    @contextlib.contextmanager
    def after_another(work: Path) -> Iterator[None]:
        monkeypatch.setattr(train, "_alone", alone)
        assert train.main(single(tmp_path, inputs)) == 0
        monkeypatch.setattr(train, "train", None)
        with alone(work):
            yield

    monkeypatch.setattr(train, "_alone", after_another)
    assert train.main(single(tmp_path, inputs)) == 0


def test_a_finished_run_that_is_trained_again_is_unfinished_meanwhile(inputs, tmp_path, monkeypatch):
    assert train.main(single(tmp_path, inputs)) == 0
    sums = tmp_path / "fedavg/out/SHA256SUMS"
    before, there = sums.read_text(), []
    again = train.train
    monkeypatch.setattr(train, "train", lambda *args: (there.append(sums.exists()), again(*args)))
    assert train.main(single(tmp_path, inputs)) == 0
    assert there == [False]
    assert sums.read_text().splitlines()[0] == before.splitlines()[0]


def test_finished_runs_are_left_alone_but_those_of_other_settings_or_code_are_not(inputs, tmp_path, monkeypatch):
    files = specs(tmp_path, inputs, ("fedavg",))
    assert call(files) == 0
    cost = tmp_path / "fedavg" / "out" / "cost.json"
    first = cost.read_text()
    assert call(files) == 0
    assert cost.read_text() == first
    monkeypatch.setattr(train, "_code", lambda *_: "def")
    assert call(files) == 0
    assert cost.read_text() != first
    assert json.loads((tmp_path / "fedavg" / "out" / "spec.json").read_text())["code"] == "def"


def test_a_missing_key_is_named_before_anything_runs(inputs, tmp_path, capsys):
    files = specs(tmp_path, inputs)
    job = json.loads(Path(files[1]).read_text())
    del job["work"]
    Path(files[1]).write_text(json.dumps(job))
    assert call(files) == 2
    assert "the key 'work' is missing" in capsys.readouterr().err
    assert not list(tmp_path.glob("*/out"))


def test_runs_that_would_switch_tf32_under_each_other_do_not_share_a_gpu(inputs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "_prepare", lambda args: TrainingOptions("cuda"))
    files = specs(tmp_path, inputs)
    job = json.loads(Path(files[1]).read_text())
    job["spec"]["train"]["precision"] = "bf16"
    Path(files[1]).write_text(json.dumps(job))
    assert train.main(["--specs", *files]) == 2
    assert f"{files[1]}: spec.train.precision: " in capsys.readouterr().err
    assert not list(tmp_path.glob("*/out"))
    monkeypatch.setattr(train, "_prepare", lambda args: TrainingOptions("cpu"))
    assert train.main(["--specs", *files]) == 0


@pytest.mark.parametrize("key", ["out", "work"])
def test_runs_of_one_folder_are_refused(key, inputs, tmp_path, capsys):
    files = specs(tmp_path, inputs)
    jobs = [json.loads(Path(file).read_text()) for file in files]
    Path(files[2]).write_text(json.dumps({**jobs[2], key: f"{jobs[0][key]}/."}))
    assert call(files) == 2
    assert f"{files[2]}: {key}: " in capsys.readouterr().err
    assert not list(tmp_path.glob("*/out"))


def test_a_second_process_in_a_work_folder_is_refused(inputs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "PATIENCE", 0.1)
    (file,) = specs(tmp_path, inputs, ("fedavg",))
    work = tmp_path / "fedavg" / "work"
    work.mkdir(parents=True)
    with FileLock(work / "lock"):
        assert call([file]) == 2
    assert f"{work}: another process trains here" in capsys.readouterr().err
    assert call([file]) == 0
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("package", ["pyarrow", "safetensors"])
def test_what_writing_the_results_needs_is_asked_for_first(package, inputs, tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest))
    assert call(specs(tmp_path, inputs, ("fedavg",))) == 2
    assert f"pip install {package}" in capsys.readouterr().err
    assert not list(tmp_path.glob("*/out"))


@pytest.mark.parametrize("count", ["x", "0", "33"])
def test_a_wrong_number_of_lanes_is_one_line(count, inputs, tmp_path, capsys):
    assert call(specs(tmp_path, inputs), f"--executor=lanes:{count}", "--together=2") == 2
    assert "train: executor: " in capsys.readouterr().err


def test_the_command_says_how_it_runs(inputs, tmp_path, capsys):
    assert call(specs(tmp_path, inputs, ("fedavg",)), "--executor=workers:2") == 0
    assert "workers x 2, cpu" in capsys.readouterr().out


UNWANTED = {"pandas", "sklearn", "scipy", "torchvision", "matplotlib", "snakemake", "pyarrow", "dvc", "cleanlab", "PIL"}


def test_a_training_process_imports_only_what_it_needs_until_its_results_are_written(inputs, tmp_path):
    """Looked at after each round; parquet files, written at the end, need pyarrow."""
    code = (
        "import sys, json; from fednoise_core.engine import loop; from workflow_scripts import train\n"
        "report = loop.Progress.round\n"
        "def watched(self, *args):\n"
        "    report(self, *args); print('LOADED', json.dumps(sorted({m.split('.')[0] for m in sys.modules})))\n"
        "loop.Progress.round = watched\n"
        "sys.exit(train.main(sys.argv[1:]))"
    )
    (file,) = specs(tmp_path, inputs, ("fedavg",))
    command = [sys.executable, "-c", code, "--device=cpu", "--specs", file]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT).stdout
    loaded = set(json.loads(next(line for line in said.splitlines() if line.startswith("LOADED")).split(" ", 1)[1]))
    assert "torch" in loaded
    assert not loaded & UNWANTED


def test_ctrl_c_of_the_plain_command_is_one_line(inputs, tmp_path):
    """Not a traceback, and the checkpoint is there."""
    (file,) = specs(tmp_path, inputs, ("fedavg",))
    job = json.loads(Path(file).read_text())
    job["spec"]["train"]["rounds"] = 5000
    Path(file).write_text(json.dumps(job))
    command = [sys.executable, "-m", "workflow_scripts.train", "--device=cpu", "--specs", file]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    progress = tmp_path / "fedavg" / "work" / "progress.jsonl"
    while not (progress.exists() and progress.read_text().count("\n") > 2):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == train.STOPPED
    assert re.fullmatch(r".*: stopped after round \d+; the same command goes on", out.splitlines()[-1])
    assert err == ""
    assert (tmp_path / "fedavg" / "work" / "checkpoint.pt").exists()


def test_the_code_of_a_run_started_by_hand_is_recorded(inputs, tmp_path):
    assert call(specs(tmp_path, inputs, ("fedavg",))) == 0
    steps = StepCode(ROOT)
    said = json.loads((tmp_path / "fedavg" / "out" / "spec.json").read_text())["code"]
    assert said == steps.code(steps.train("fedavg", ["mlp"]))


def test_a_spec_holds_what_decides_numbers_and_nothing_else(inputs, tmp_path, capsys):
    for other in ("study", "ids", "label"):
        (file,) = specs(tmp_path, inputs, ("fedavg",))
        job = json.loads(Path(file).read_text())
        job["spec"][other] = "x"
        Path(file).write_text(json.dumps(job))
        assert call([file]) == 2
        assert f"{file}: spec: {other}: unknown key" in capsys.readouterr().err


def test_threads_reach_torch(inputs, tmp_path, monkeypatch):
    import torch

    seen = []
    at_round(monkeypatch, 1, lambda: seen.append(torch.get_num_threads()))
    assert call(specs(tmp_path, inputs, ("fedavg",)), "--threads=2") == 0
    torch.set_num_threads(1)
    assert seen == [2]

"""The progress command, and the choice of a device, without any run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fednoise_core.io import SpecError
from workflow_scripts import device, progress


def job(work: Path, name: str, *lines: str, age: float = 0) -> None:
    """The progress file of a job."""
    path = work / name / "progress.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (path.stat().st_mtime - age, path.stat().st_mtime - age))


def test_last_whole_line_of_every_unfinished_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [
        json.dumps({"run": "x", "round": n, "of": 9, "accuracy": {"global": 0.51234}, "left": 3.5}) for n in (1, 2)
    ]
    job(tmp_path, "results/quick/a", *rounds, '{"round": 3, "of"')  # a line is just being written
    job(tmp_path, "results/quick/b", rounds[0], age=100)
    job(tmp_path, "results/quick/done", '{"round": 9, "of": 9}')
    job(tmp_path, "results/quick/empty")
    assert progress.main(["--work", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("results/quick/b: round 1, of 9")
    assert told[0].endswith("(100 s ago)")
    assert told[1].startswith("results/quick/a: round 2, of 9, accuracy global 0.5123, left 3.5")
    assert len(told) == 2


def test_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.main(["--work", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == "no unfinished job\n"


def test_device_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device.gpus() == []
    assert device.claim("auto") == "cpu"
    with pytest.raises(SpecError, match="no GPU is visible"):
        device.claim("cuda")
    with pytest.raises(SpecError, match="'tpu' is not one of"):
        device.claim("tpu")


def test_gpus_are_the_allowed_ones_else_those_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, GPU-abc,-1")
    assert device.gpus() == ["0", "GPU-abc"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tool.write_text("#!/bin/sh\necho 'GPU 0: Some card (UUID: GPU-11-aa)'\necho 'GPU 1: Some card (UUID: GPU-22-bb)'\n")
    tool.chmod(0o755)
    assert device.gpus() == ["GPU-11-aa", "GPU-22-bb"]
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: Card (UUID: GPU-11-aa)'\necho '  MIG 1g.10gb Device 0: (UUID: MIG-33-cc)'\n"
    )
    assert device.gpus() == ["MIG-33-cc"]  # a GPU cut into parts is used by its parts
    tool.unlink()
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
    monkeypatch.setattr(device, "DRIVER", tmp_path / "gpus")
    monkeypatch.setattr(device.shutil, "which", lambda name: None)
    assert device.gpus() == ["0", "1"]  # in a container without the tool

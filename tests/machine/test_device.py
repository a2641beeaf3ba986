"""The GPU that a process takes: by UUID, one run at a time, and a message instead of a hang."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fednoise_core.io import SpecError
from workflow_scripts.machine import device, locks

ROOT = Path(__file__).parents[2]
CODE = """
import os, sys, time
from workflow_scripts.machine.device import acquire_gpu
print(acquire_gpu('cuda'), os.environ['CUDA_VISIBLE_DEVICES'], flush=True)
time.sleep(600)
"""
SCHEDULED = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}
Start = Callable[..., subprocess.Popen[str]]


def nvidia_smi(folder: Path, *uuids: str) -> Path:
    """A stand-in for nvidia-smi that lists these GPUs; gives the folder for PATH."""
    folder.mkdir()
    lines = "\n".join(f"GPU {k}: Some GPU (UUID: {uuid})" for k, uuid in enumerate(uuids))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<END\n{lines}\nEND\n")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that claim a GPU on a machine with these, and ends them."""
    begun: list[subprocess.Popen[str]] = []
    removed = ("CUDA_VISIBLE_DEVICES", *device.SCHEDULERS)
    base_env = {key: value for key, value in os.environ.items() if key not in removed}

    def claim(*uuids: str, **env: str) -> subprocess.Popen[str]:
        path = nvidia_smi(tmp_path / f"bin{len(begun)}", *uuids)
        env = {**base_env, "XDG_CACHE_HOME": str(tmp_path), "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", **env}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen([sys.executable, "-c", CODE], cwd=ROOT, env=env, **pipes))
        return begun[-1]

    yield claim
    for process in begun:
        process.kill()
        process.communicate()


def answer(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 60.0)
    return process.stdout.readline().split() if ready else []


def waits(process: subprocess.Popen[str]) -> str:
    """The line in which a process says what it waits for. It must not have a GPU."""
    assert process.stdout is not None
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], 60.0)
    line = process.stderr.readline() if ready else ""
    assert not select.select([process.stdout], [], [], 1.0)[0]
    return line


def test_numbers_become_uuids_and_no_gpu_is_given_twice(start: Start) -> None:
    """A killed process frees its GPU. A process that waits says so."""
    first = start("GPU-a", "GPU-b", CUDA_VISIBLE_DEVICES="0")
    assert answer(first) == ["cuda", "GPU-a"]
    assert answer(start("GPU-a", "GPU-b")) == ["cuda", "GPU-b"]
    third = start("GPU-a", "GPU-b", CUDA_VISIBLE_DEVICES="GPU-a,1")
    assert "waiting for a GPU: other runs of yours have all 2 GPUs (locks in " in waits(third)
    first.kill()
    assert answer(third) == ["cuda", "GPU-a"]
    third.kill()
    assert third.communicate()[1] == ""  # said once


def test_a_scheduler_s_gpu_is_taken_as_it_is(start: Start) -> None:
    """A scheduler may give one GPU to several jobs on purpose. Of several GPUs each run still takes another."""
    for _ in range(2):
        assert answer(start("GPU-a", **SCHEDULED)) == ["cuda", "GPU-a"]
    allocation = {**SCHEDULED, "CUDA_VISIBLE_DEVICES": "0,1"}
    assert [answer(start("GPU-c", "GPU-d", **allocation))[1] for _ in range(2)] == ["GPU-c", "GPU-d"]


def test_slots(start: Start) -> None:
    taken = [answer(start("GPU-a", FEDNOISE_GPU_SLOTS="2"))[1] for _ in range(2)]
    assert taken == ["GPU-a", "GPU-a"]
    assert "all 1 x 2 places" in waits(start("GPU-a", FEDNOISE_GPU_SLOTS="2"))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without a GPU."""
    for variable in ("CUDA_VISIBLE_DEVICES", *device.SCHEDULERS, device.SLOTS):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(device, "DRIVER", tmp_path / "driver")
    return monkeypatch


def test_without_a_gpu(bare: pytest.MonkeyPatch) -> None:
    assert device.acquire_gpu("auto") == "cpu"
    with pytest.raises(SpecError, match="no GPU is visible"):
        device.acquire_gpu("cuda")
    bare.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert device.acquire_gpu("auto") == "cpu"
    bare.setenv("CUDA_VISIBLE_DEVICES", "0")
    for asked in ("auto", "cuda"):
        with pytest.raises(SpecError, match=r"^CUDA_VISIBLE_DEVICES=0 names a GPU, but .* has none .*`device: cpu`"):
            device.acquire_gpu(asked)
    assert device.acquire_gpu("cpu") == "cpu"


def test_gpus_are_the_allowed_ones_else_those_listed(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("PATH", str(nvidia_smi(tmp_path / "bin", "GPU-11-aa", "GPU-22-bb")) + os.pathsep + "/bin")
    assert device.visible_gpus() == ["GPU-11-aa", "GPU-22-bb"]
    bare.setenv("CUDA_VISIBLE_DEVICES", "1, GPU-11,-1,0")  # nothing counts after -1
    assert device.visible_gpus() == ["GPU-22-bb", "GPU-11-aa"]
    tool = tmp_path / "bin/nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: Card (UUID: GPU-1-a)'\necho '  MIG 1g.10gb Device 0: (UUID: MIG-3-c)'\n")
    bare.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert device.visible_gpus() == ["0"]  # the part that a number means is unknown
    bare.delenv("CUDA_VISIBLE_DEVICES")
    assert device.visible_gpus() == ["MIG-3-c"]  # of a partitioned GPU the parts are used
    tool.unlink()
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "driver/gpus" / bus).mkdir(parents=True)
    assert device.visible_gpus() == ["0", "1"]  # as in a container without nvidia-smi


@pytest.mark.parametrize("slots", ["0", "two", "1.5"])
def test_slots_are_a_number_from_1_on(bare: pytest.MonkeyPatch, slots: str) -> None:
    bare.setenv(device.SLOTS, slots)
    with pytest.raises(SpecError, match=r"^FEDNOISE_GPU_SLOTS: expected a whole number from 1 on, got .*$"):
        device.slots_per_gpu()


def test_a_lock_is_held_by_forked_children_to_their_end(tmp_path: Path) -> None:
    """The workers of a killed run live a moment longer. Until they end its folder is not free."""
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom workflow_scripts.machine.locks import acquire_lock\n"
        "assert acquire_lock(Path(sys.argv[1])) is not None\n"
        "if os.fork() == 0:\n    print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    path = tmp_path / "lock"
    parent = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.stdout.close()
    parent.kill()
    parent.wait()
    try:
        assert locks.acquire_lock(path) is None
        assert locks.is_locked(path)
    finally:
        os.kill(child, signal.SIGKILL)
    assert locks.acquire_lock(path, patience=10) is not None
    begun = time.monotonic()
    assert locks.acquire_lock(path, patience=0.5) is None  # also for the process that has it
    assert 0.4 < time.monotonic() - begun < 10

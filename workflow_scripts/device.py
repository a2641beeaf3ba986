"""Which device a training process runs on, decided before torch is imported. Snakemake counts GPUs but hands none out.

One lock file per GPU and slot, local to the machine. The kernel frees a lock when its process dies, however it dies,
and a child that outlives it still holds it, so a restarted workflow cannot put two runs on one GPU.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from filelock import FileLock, Timeout

from fednoise_core.io import SpecError

__all__ = ["claim", "gpus"]

HELD: list[FileLock] = []  # a lock that nobody refers to would be released
POLL_SECONDS = 0.5
DRIVER = Path("/proc/driver/nvidia/gpus")


def gpus() -> list[str]:
    """Names of the GPUs this process may use, as CUDA_VISIBLE_DEVICES takes them: its entries, or else nvidia-smi's, or
    else numbers, one for each that the driver shows.
    """
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:  # in some containers
        return [str(k) for k, _ in enumerate(sorted(DRIVER.glob("*")))]
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    names = re.findall(r"UUID: ((?:GPU|MIG)-[\w/-]+)", listed)
    parts = [name for name in names if name.startswith("MIG-")]
    return parts or names  # a GPU cut into parts is used by its parts


def claim(device: str) -> str:
    """The device to hand to torch, "cpu" or "cuda", for `device` "auto", "cpu" or "cuda". Call it before torch comes.

    For CUDA it waits until a GPU has a free slot (FEDNOISE_GPU_SLOTS runs per GPU, default 1), keeps that slot until
    the process ends, and makes it the only visible GPU. Raises SpecError if "cuda" is asked for and there is none.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise SpecError(f"device: {device!r} is not one of auto, cpu, cuda")
    names = [] if device == "cpu" else gpus()
    if not names:
        if device == "cuda":
            raise SpecError("device: cuda was asked for, but no GPU is visible")
        return "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = _wait_for_slot(names, int(os.environ.get("FEDNOISE_GPU_SLOTS", "1")))
    return "cuda"


def _wait_for_slot(names: list[str], slots: int) -> str:
    folder = Path(tempfile.gettempdir(), f"fednoise-gpu-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    while True:
        for slot in range(slots):  # an idle GPU before a second run on a busy one
            for name in names:
                lock = FileLock(folder / f"{name.replace('/', '_')}-{slot}.lock")
                try:
                    lock.acquire(blocking=False)
                except Timeout:
                    continue
                HELD.append(lock)
                return name
        time.sleep(POLL_SECONDS)

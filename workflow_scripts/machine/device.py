"""Choose the device of a training process before torch is imported. Snakemake counts GPUs but does not assign them.

There is one lock file per GPU and slot. It is named by the GPU's UUID, because inside a container or a job's cgroup
every GPU has number 0. The kernel releases a lock when its process and all forked children have ended, so a restarted
workflow cannot put two runs on one GPU. If a scheduler has assigned one GPU to this job, no lock is needed.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from fednoise_core.io import SpecError
from workflow_scripts.machine.locks import acquire_lock

HELD_LOCKS: list[int] = []  # locks, kept until the process ends
POLL_SECONDS = 0.5
SLOTS = "FEDNOISE_GPU_SLOTS"
DRIVER = Path("/proc/driver/nvidia")
SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "KUBERNETES_SERVICE_HOST")  # set in their jobs


def visible_gpus() -> list[str]:
    """List the GPUs that this process may use.

    Returns:
        Names for CUDA_VISIBLE_DEVICES: UUIDs if they are known, else numbers.

    Raises:
        SpecError: The environment names a GPU, but the machine has none.
    """
    allowed, gpus = os.environ.get("CUDA_VISIBLE_DEVICES"), _list_gpus()
    if allowed is None:
        return gpus
    names = [name.strip() for name in allowed.split(",")]
    names = names[: next((k for k, name in enumerate(names) if name in ("", "-1", "NoDevFiles")), None)]
    if names and not gpus:
        raise SpecError(
            f"CUDA_VISIBLE_DEVICES={allowed} names a GPU, but {socket.gethostname()} has none with a driver "
            "(nvidia-smi lists none). Run on a machine with one, say `device: cpu`, or unset CUDA_VISIBLE_DEVICES"
        )
    return [_gpu_uuid(name, gpus) for name in names]


def slots_per_gpu() -> int:
    """Read from FEDNOISE_GPU_SLOTS how many runs share one GPU.

    Returns:
        The number, 1 if the variable is not set.

    Raises:
        SpecError: The variable is not a whole number from 1 on.
    """
    setting = os.environ.get(SLOTS, "1")
    if not (setting.isascii() and setting.isdigit() and int(setting) > 0):
        raise SpecError(f"{SLOTS}: expected a whole number from 1 on, got {setting!r}")
    return int(setting)


def acquire_gpu(device: str) -> str:
    """Choose the device for torch. This must be called before torch is imported.

    For CUDA it waits for a GPU with a free slot, keeps that slot until the process ends, and makes this GPU the only
    visible one. A job with one GPU from a scheduler uses that GPU.

    Args:
        device: "auto", "cpu" or "cuda".

    Returns:
        "cpu" or "cuda".

    Raises:
        SpecError: "cuda" is asked for and no GPU is visible, or an environment variable is wrong.
    """
    names = [] if device == "cpu" else visible_gpus()
    if not names:
        if device == "cuda":
            raise SpecError("device: cuda was asked for, but no GPU is visible")
        return "cpu"
    count = slots_per_gpu()
    by_scheduler = len(names) == 1 and any(os.environ.get(variable) for variable in SCHEDULERS)
    os.environ["CUDA_VISIBLE_DEVICES"] = names[0] if by_scheduler else _wait_for_slot(names, count)
    return "cuda"


def _list_gpus() -> list[str]:
    """List UUIDs from nvidia-smi, or numbers if a container lacks it. A GPU with MIG is listed by its instances."""
    if shutil.which("nvidia-smi") is None:
        return [str(k) for k, _ in enumerate(sorted(DRIVER.glob("gpus/*")))]
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60).stdout
    names = re.findall(r"UUID: ((?:GPU|MIG)-[\w/-]+)", listing)
    return [name for name in names if name.startswith("MIG-")] or names


def _gpu_uuid(name: str, gpus: list[str]) -> str:
    """Return the UUID of a GPU that is named by number or by a prefix. Numbers of MIG instances are left to CUDA."""
    if name.isdigit() and int(name) < len(gpus) and not gpus[0].startswith("MIG-"):
        return gpus[int(name)]
    return next((gpu for gpu in gpus if gpu.startswith(name)), name)


def _wait_for_slot(names: list[str], count: int) -> str:
    # one folder per machine, since machines may share a home folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder, printed = cache / "fednoise" / f"gpu-{socket.gethostname()}", False
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        for slot in range(count):  # first an idle GPU, then a second run on a busy one
            for name in names:
                lock = acquire_lock(folder / f"{name.replace('/', '_')}-{slot}.lock")
                if lock is not None:
                    HELD_LOCKS.append(lock)
                    return name
        if not printed:
            places = f"{len(names)} x {count} places" if count > 1 else f"{len(names)} GPUs"
            print(
                f"device: waiting for a GPU: other runs of yours have all {places} (locks in {folder})", file=sys.stderr
            )
            printed = True
        time.sleep(POLL_SECONDS)

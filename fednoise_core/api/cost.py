"""Cost of a run: time, memory, device and versions, the content of cost.json."""

import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fednoise_core.engine.loop import Outcome
from fednoise_core.engine.world import World
from fednoise_core.version import __version__


def record_cost(outcome: Outcome, world: World, executor: str, began: tuple[float, float]) -> dict[str, Any]:
    """Make the content of cost.json. `began` is (time.monotonic(), time.process_time()) at the start of the run."""
    seconds = outcome.spent[0] + time.monotonic() - began[0]  # of all attempts
    return {
        "seconds": seconds,
        "seconds_per_round": seconds / max(outcome.state.round, 1),
        "cpu_seconds": outcome.spent[1] + time.process_time() - began[1],
        "peak_memory_mb": _peak_memory_mb(),
        "client_state_bytes": outcome.state.store.largest,  # of one client
        "device": device_name(world.device),
        "precision": world.train.precision,
        "executor": executor,
        "resumed": outcome.resumed,
        "versions": describe_versions(),
    }


def describe_versions() -> dict[str, str]:
    """Versions of the software that determines the numbers of a run, by name."""
    return {
        "fednoise_core": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
    }


def _peak_memory_mb() -> float:
    """Peak memory of this process in MB. On a GPU, it is the peak of the device's allocator."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would include the parent's memory at the fork, even after an exec
        match = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if match:
            return int(match[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def device_name(device: torch.device) -> str:
    """Name the model of a GPU, or the kind of processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    import platform

    return f"{device.type} ({platform.machine()})"

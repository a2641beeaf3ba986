"""Description of the machine, and its peak speed."""

import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F


def machine() -> dict[str, Any]:
    """Describe processor, cores, load, versions and commit, and for a GPU its name, CUDA and driver."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    facts = {
        "processor": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": _said("git", "rev-parse", "--short", "HEAD"),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
        facts["driver"] = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
    return facts


def _said(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "unknown"
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def peak(dtype: torch.dtype, device: str = "cpu", size: int = 0) -> float:
    """Measure GFLOP/s of a large matrix product and a large convolution (forward). Returns the best of several runs.

    This is the peak of torch's own kernels. The share that a net reaches shows the losses by its shape and outside of
    kernels. size: side of the matrices; default 1536 on a CPU (with one thread), 8192 on a GPU.
    """
    n = size or (8192 if device != "cpu" else 1536)
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    best = 2 * n**3 / _best(lambda: a @ b, device)
    batch = max(1, n // 96)
    x = torch.randn(batch, 128, 32, 32, device=device).to(dtype).to(memory_format=torch.channels_last)
    w = torch.randn(128, 128, 3, 3, device=device).to(dtype).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        best = max(best, 2 * 9 * 128 * 128 * 32 * 32 * batch / _best(lambda: F.conv2d(x, w, padding=1), device))
    return best / 1e9


def _best(work: Callable[[], Any], device: str) -> float:
    seconds = []
    for _ in range(6):  # CPU time on a CPU, since other processes may share it
        if device != "cpu":
            torch.cuda.synchronize()
        began, cpu = time.perf_counter(), time.process_time()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.process_time() - cpu if device == "cpu" else time.perf_counter() - began)
    return min(seconds[1:]) if device != "cpu" else statistics.quantiles(seconds[1:], n=4)[0]

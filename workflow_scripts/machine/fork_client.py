"""Start the server of `fork_server.py`, and send jobs to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ADDRESS = "FEDNOISE_FORK_SERVER"  # the server's socket; if empty, every job is a new Python process
PACKAGES = (
    "torch",
    "pyarrow.parquet",
    "safetensors.torch",
    "yaml",
    "pydantic",
    "pandas",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "jinja2",
    "PIL.Image",
)
# glibc reads these when a process starts, see the rule `train`
MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2000000000", "OMP_NUM_THREADS": "1"}


def start_server(packages: Sequence[str] = PACKAGES) -> subprocess.Popen[bytes] | None:
    """Start a server that ends with this process, and export its address to child processes.

    No server is started on systems other than Linux, or if the environment already sets the address (even to "").

    Args:
        packages: The packages that it loads.

    Returns:
        The server, if one was started.
    """
    if ADDRESS in os.environ or not hasattr(os, "pidfd_open"):
        return None
    folder = tempfile.mkdtemp(prefix="fednoise")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(128)  # jobs wait here while the server loads packages
        server = subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("fork_server.py"),
                str(listener.fileno()),
                str(os.getpid()),
                *packages,
            ],
            pass_fds=[listener.fileno()],
            env={**os.environ, **MEMORY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to Snakemake, and a job's client forwards it to the job
        )
    os.environ[ADDRESS] = f"{folder}/socket"
    return server


def run_forked(module: str, arguments: Sequence[str], python: str = sys.executable) -> tuple[int, float] | None:
    """Run `python -m module arguments` in a process that the server forks. Signals to this process are forwarded.

    Args:
        module: The module.
        arguments: Its arguments.
        python: The path that the job sees as its interpreter.

    Returns:
        The exit status (negative: the number of the signal that ended it) and the CPU seconds, or None if there is no
        server, if this process has the packages already, or if the job needs other settings of threads.
    """
    address = os.environ.get(ADDRESS)
    if not address or "torch" in sys.modules or os.environ.get("OMP_NUM_THREADS", "1") != "1":
        return None
    order = {"module": module, "arguments": list(arguments), "folder": os.getcwd(), "python": python}
    data = json.dumps({**order, "env": dict(os.environ)}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
            sent = socket.send_fds(server, [data], [0, 1, 2])
            if sent < len(data):  # else do not send: a job that has ended already has closed the socket
                server.sendall(data[sent:])
            answer = server.makefile()
            pid = int(answer.readline())
        except (OSError, ValueError):  # the server ended before it accepted the job
            return None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        status, seconds = answer.readline().split() or (str(-signal.SIGKILL), "0")
        return int(status), float(seconds)


def exit_as(status: int) -> None:
    """End this process with a job's exit status or signal.

    Args:
        status: The status from `run_forked`.
    """
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)

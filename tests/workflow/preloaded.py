"""A server that has the packages loaded and forks a process for each `python -m …` of a workflow's jobs.

A job of a toy study computes for a tenth of a second, after it has imported torch, pandas or matplotlib for one to
four. The server imports these once; its children import the project's own code from their working folder, as a process
of their own would. conftest.py starts it, and puts preloaded_client.py on the PATH; modules of tests that say
REAL_PROCESSES = True start every process the usual way.

What it cannot show: that a step imports all it needs (test_run.py does), and that nothing depends on the seed of
hashes, which all children of one server share.
"""

import atexit
import contextlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import traceback
from typing import Any

import numpy


def load() -> None:
    """The packages of the steps. Not the project's own code, which tests edit."""
    import cleanlab.filter  # noqa: F401
    import jinja2  # noqa: F401
    import jsonschema  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_pdf
    import matplotlib.backends.backend_svg  # noqa: F401
    import pandas  # noqa: F401
    import PIL.Image  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import safetensors.torch  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.mixture  # noqa: F401
    import snakemake.cli  # noqa: F401
    import torch
    import yaml  # noqa: F401

    torch.set_num_threads(1)


def life(order: dict[str, Any], fds: list[int]) -> int:
    """What `python -m module arguments` does, in a forked process; returns its exit code."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    with contextlib.suppress(OSError):  # so that a signal to the job's group reaches this process, too
        os.setpgid(0, order["group"])
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["env"])
    random.seed()  # else every child would have the server's state
    numpy.random.seed()
    sys.argv = ["-m", *order["arguments"]]
    sys.path[0] = order["folder"]
    sys.executable = order["python"]  # which the project puts first on the PATH of its jobs
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def attend(client: socket.socket, path: str) -> None:
    """One job from its order to its end; the seconds of CPU that it used go to the file `path`.cpu."""
    data, fds, _, _ = socket.recv_fds(client, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += client.recv(1 << 20)
    order = json.loads(data)
    pid = os.fork()
    if pid == 0:
        client.close()
        code = 70
        try:
            code = life(order, fds)
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    for fd in fds:
        os.close(fd)
    client.sendall(f"{pid}\n".encode())
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([ended, client], [], [])
    if ended not in ready:  # the job's parent was killed, or killed it: a process of its own would be gone
        os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    with open(f"{path}.cpu", "a", encoding="ascii") as file:
        file.write(f"{used.ru_utime + used.ru_stime:.3f}\n")
    with contextlib.suppress(OSError):
        client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def serve(path: str) -> None:
    """Fork one attendant per connection; no threads, since a fork beside them may hang. Ends with its parent."""
    parent = os.getppid()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # attendants need no reaping
    print("ready", flush=True)
    listener.settimeout(5)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        client.settimeout(None)
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            attend(client, path)
            os._exit(0)
        client.close()


if __name__ == "__main__":
    load()
    serve(sys.argv[1])

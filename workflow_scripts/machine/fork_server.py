"""A process that has the steps' packages loaded and forks for each job, since importing torch costs a job two seconds.

    python fork_server.py LISTENER PARENT MODULE ...

LISTENER is the number of an inherited socket. PARENT is the number of the process that started the server. The first
module is loaded before the first job, and the others while no job waits. The server does not load the project's own
code: each job reads it from its working folder. All jobs share the seed of hashes. When PARENT ends, the server ends,
too, and running jobs get SIGTERM. `fork_client.py` sends jobs to it.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import shutil
import signal
import socket
import sys
import traceback
from typing import Any


def run_module(order: dict[str, Any], files: list[int]) -> int:
    """Run a module as `python -m module arguments` would, in a forked process.

    Args:
        order: module, arguments, folder, env and python (the interpreter's path).
        files: Descriptors of its input, output and messages.

    Returns:
        The exit status.
    """
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["env"])
    random.seed()  # otherwise every job would start with the server's state
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    sys.argv, sys.executable = ["-m", *order["arguments"]], order["python"]
    above = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = dict.fromkeys([order["folder"], *filter(None, above)])
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


def attend_job(client: socket.socket, parent_file: int) -> None:
    """Fork a job. Send the client its process number, and later its exit status and CPU seconds.

    Args:
        client: The client's connection.
        parent_file: pidfd of the process with which the server ends. The job is asked to stop when that process ends.
    """
    data, files, _, _ = socket.recv_fds(client, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += client.recv(1 << 20)
    pid = os.fork()
    if pid == 0:
        client.close()
        status = 70
        try:
            status = run_module(json.loads(data), files)
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    with contextlib.suppress(OSError):  # the client is gone
        client.sendall(f"{pid}\n".encode())
    waiting: list[Any] = [ended, client, parent_file]
    while ended not in (ready := select.select(waiting, [], [])[0]):
        if client in ready:  # it has ended, so its job must end, too
            os.kill(pid, signal.SIGKILL)
            break
        os.kill(pid, signal.SIGTERM)  # nobody waits for the result any more, and a run can stop at a checkpoint
        waiting.remove(parent_file)
    _, status, used = os.wait4(pid, 0)
    with contextlib.suppress(OSError):
        client.sendall(f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime:.3f}\n".encode())


def serve_jobs(listener: socket.socket, parent: int, modules: list[str]) -> None:
    """Fork a process for each connection. The server has no threads, because a fork beside threads may hang.

    Args:
        listener: The listening socket.
        parent: Number of the process with which the server ends.
        modules: Modules to load.
    """
    parent_file = os.pidfd_open(os.getppid())
    watched: list[Any] = [listener, parent_file]
    orphan = os.getppid() != parent  # the parent ended before it could be watched
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forked processes leave no zombies
    importlib.import_module(modules.pop(0))
    while not orphan:
        ready = select.select(watched, [], [], 0 if modules else None)[0]
        if parent_file in ready:
            break
        if not ready:
            importlib.import_module(modules.pop(0))
            continue
        client, _ = listener.accept()
        gc.freeze()  # otherwise garbage collection in a job would copy the server's memory
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            attend_job(client, parent_file)
            os._exit(0)
        client.close()
    shutil.rmtree(os.path.dirname(listener.getsockname()), ignore_errors=True)


if __name__ == "__main__":
    serve_jobs(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3:])

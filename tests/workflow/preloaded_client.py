"""`python` and `snakemake` on the PATH of workflow tests: hands a command to the server of preloaded.py and waits.

Commands other than `python -m …`, and all of them once the server is gone, are run by the real interpreter. Started
with -I -S: it needs little of Python, and a start of it costs 15 ms.
"""

import json
import os
import signal
import socket
import sys


def real() -> None:
    python = os.environ["PRELOADED_PYTHON"]  # by its whole path, from which it finds its packages
    os.execv(python, [python, *(["-m", "snakemake"] if name == "snakemake" else []), *arguments])


def main() -> int:
    if name == "snakemake":
        module, words = "snakemake", arguments
    elif arguments[:1] == ["-m"]:
        module, words = arguments[1], arguments[2:]
    else:
        real()
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(os.environ["PRELOADED_SOCKET"])
    except OSError:
        real()
    python = os.path.join(os.path.dirname(os.environ["PRELOADED_SOCKET"]), "python")
    order = {"module": module, "arguments": words, "python": python, "group": os.getpgrp()}
    data = json.dumps({**order, "folder": os.getcwd(), "env": {**os.environ}}).encode() + b"\n"
    sent = socket.send_fds(server, [data], [0, 1, 2])
    server.sendall(data[sent:])
    answer = server.makefile()
    pid = int(answer.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(answer.readline())
    if code < 0:  # ended by a signal: so does this process
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
if __name__ == "__main__":
    sys.exit(main())

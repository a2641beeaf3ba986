"""A parent that has imported everything and forks one training process per line of JSON on its input.

Line in: {"argv": [...], "progress": path, "log": path, "kill": null or [round, seconds, signal], "code": null or text}:
the signal is sent so long after that round was reported; `code` is taken for the hash of the code. Line out: {"code":
exit code, or minus the signal that ended it}. Importing torch anew in each process would take most of the time.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{SUPPORT.parents[1]}{os.pathsep}{SUPPORT}",
    "OMP_NUM_THREADS": "1",
}


@contextlib.contextmanager
def forking_parent() -> Iterator[Callable[[dict[str, Any]], int]]:
    """A function that runs one training process to its end, killed or not: a line of JSON in, its exit code out."""
    command = [sys.executable, __file__]
    pipe = subprocess.PIPE
    root = SUPPORT.parents[1]
    with subprocess.Popen(command, cwd=root, env=ENVIRONMENT, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def train(order: dict[str, Any]) -> int:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            return int(json.loads(process.stdout.readline())["code"])

        yield train
        process.stdin.close()


def rounds(progress: Path) -> list[int]:
    """The rounds that a training process has reported so far (the last line may be half written)."""
    lines = progress.read_text(encoding="utf-8").splitlines() if progress.exists() else []
    return [json.loads(line)["round"] for line in lines if line.startswith("{") and line.endswith("}")]


def train(argv: list[str], log: str, hash: str | None) -> None:
    """Train in this process, which is a fork, and end it."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 70
    try:
        from workflow_scripts.steps import train as command

        if hash is not None:
            command._check_code = lambda *_, **__: hash  # type: ignore[assignment]
        code = command.main(argv)
        sys.stdout.flush()
    finally:
        os._exit(code)


def attempt(order: dict[str, Any]) -> dict[str, int]:
    """One training process from its fork to its end."""
    progress, kill = Path(order["progress"]), order["kill"]
    pid = os.fork()
    if pid == 0:
        train(order["argv"], order["log"], order["code"])
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return {"code": os.waitstatus_to_exitcode(status)}
        if kill is not None and max(rounds(progress), default=0) >= kill[0]:
            time.sleep(kill[1])
            os.kill(pid, kill[2])
            kill = None
        time.sleep(0.001)


if __name__ == "__main__":
    import pyarrow.parquet  # noqa: F401
    import safetensors.torch  # noqa: F401
    import sklearn.mixture  # noqa: F401
    import torch

    import fednoise_core.api.simulate  # noqa: F401

    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(attempt(json.loads(line))), flush=True)

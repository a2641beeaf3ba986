"""A finished toy workflow, made once: four short runs on real digits. Tests work on copies of it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from toy_workflow import ENV, Workflow, lay_out

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def preloaded() -> Iterator[dict[str, str]]:
    """The environment in which `python -m …` and `snakemake` are forked by a server that has the packages loaded."""
    with tempfile.TemporaryDirectory(prefix="preloaded") as folder:  # short: a socket's path has 108 bytes at most
        client = HERE / "preloaded_client.py"
        for name in ("python", "snakemake"):
            command = Path(folder) / name
            command.write_text(f"#!{sys.executable} -IS\n{client.read_text(encoding='utf-8')}", encoding="utf-8")
            command.chmod(0o755)
        address = str(Path(folder) / "socket")
        server = subprocess.Popen(
            [sys.executable, HERE / "preloaded.py", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        path = f"{folder}{os.pathsep}{ENV['PATH']}"
        yield {"PATH": path, "PRELOADED_SOCKET": address, "PRELOADED_PYTHON": sys.executable}
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.fixture(scope="module", autouse=True)
def processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Commands are started by the preloaded server, except where a module says REAL_PROCESSES = True, and where the
    system has no such thing (macOS) or a script's first line could not name the interpreter.
    """
    able = hasattr(os, "pidfd_open") and " " not in sys.executable
    if getattr(request.module, "REAL_PROCESSES", False) or not able:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, value in request.getfixturevalue("preloaded").items():
            patch.setitem(ENV, name, value)
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy study, computed, recorded with DVC and committed. Not to be changed: use `workflow`."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # one for all workers
    folder, done = shared / "finished", shared / "finished.done"
    with FileLock(shared / "finished.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            lay_out(folder)
            made = Workflow(folder)
            made("git", "init", "-q", "-b", "main")
            made("snakemake", "--cores", "2", "--config", "device=cpu")
            made(sys.executable, "-m", "workflow_scripts.commands.main", "record")
            made("git", "add", "-A")
            made("git", "commit", "-q", "-m", "finished")
            done.touch()
    return folder


@pytest.fixture
def workflow(finished: Path, tmp_path: Path) -> Workflow:
    """A copy of the finished toy workflow."""
    shutil.copytree(finished, tmp_path / "copy", symlinks=True)
    return Workflow(tmp_path / "copy")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Callable[[Workflow], Workflow]:
    """A second machine: pushes to a local remote, clones, pulls."""

    def clone(origin: Workflow) -> Workflow:
        origin("dvc", "remote", "add", "-q", "--local", "-d", "store", str(tmp_path / "store"))
        origin("dvc", "push", "-q")
        origin("git", "clone", "-q", str(origin.folder), str(tmp_path / "clone"))
        copy = Workflow(tmp_path / "clone")
        copy("dvc", "remote", "add", "-q", "--local", "-d", "store", str(tmp_path / "store"))
        copy("dvc", "pull", "-q")
        return copy

    return clone

"""A finished toy workflow, made once: four short runs on real digits. Tests work on copies of it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from toy_workflow import ENV, Workflow, lay_out

from workflow_scripts.machine.fork_client import ADDRESS, PACKAGES, start_server

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def preloaded() -> Iterator[dict[str, str]]:
    """The environment in which `python -m …`, `snakemake` and `dvc` are forked by the server of a workflow's jobs.

    It also has what Snakemake, DVC and the optional steps import. So only test_run.py shows that a step
    imports all it needs.
    """
    further = ("cleanlab.filter", "jsonschema", "scipy.stats", "sklearn.mixture", "smart_open", "preloaded_plugins")
    of_dvc = ("dvc.cli", "dvc.repo", "dvc.compare", "dvc.data_cloud", "dvc.rwlock", "dvc_render", "scmrepo.git")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        server = start_server([*PACKAGES, *further, *of_dvc])
    assert server is not None
    address = os.environ.pop(ADDRESS)
    folder = Path(address).parent
    for name in ("python", "snakemake", "dvc"):
        command = folder / name
        text = (HERE / "preloaded_client.py").read_text(encoding="utf-8")
        command.write_text(f"#!{sys.executable} -IS\n{text}", encoding="utf-8")
        command.chmod(0o755)
    path = f"{folder}{os.pathsep}{ENV['PATH']}"
    code = str(HERE.parents[1])
    yield {"PATH": path, ADDRESS: address, "PRELOADED_PYTHON": sys.executable, "PRELOADED_CODE": code}
    server.kill()
    server.wait()
    shutil.rmtree(folder)


@pytest.fixture(scope="module", autouse=True)
def processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Commands are started by the preloaded server, except where the system has no such thing (macOS) or a script's
    first line could not name the interpreter. REAL of toy_workflow.py starts them anew.
    """
    if not hasattr(os, "pidfd_open") or " " in sys.executable:
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
            project = Workflow(folder)
            project("git", "init", "-q", "-b", "main")
            project("snakemake", "--cores", "2", "--config", "device=cpu")
            project("python", "-m", "workflow_scripts.commands.main", "record")
            project("git", "add", "-A")
            project("git", "commit", "-q", "-m", "finished")
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

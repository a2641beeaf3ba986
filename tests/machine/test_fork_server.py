"""Jobs that a server forks: their status, folder, environment, signals, and what happens without a server."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow_scripts.machine.fork_client import ADDRESS, run_forked, start_server

ROOT = Path(__file__).parents[2]
JOB = """\
import os, sys, time
if __name__ == "__main__":
    print(os.getcwd(), os.environ["WORD"], sys.argv[1:], "decimal" in sys.modules, flush=True)
    if sys.argv[1] == "sleep":
        time.sleep(60)
    sys.exit(int(sys.argv[1]) if sys.argv[1].isdigit() else "no such thing")
"""
# what `python -m workflow_scripts.steps` does, without torch in the process
CLIENT = """\
import sys
from workflow_scripts.machine.fork_client import exit_as, run_forked
ended = run_forked("job", sys.argv[1:])
exit_as(ended[0]) if ended else print("alone")
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module `job`, and a server that this process started."""
    monkeypatch.setenv(ADDRESS, "x")
    monkeypatch.delenv(ADDRESS)
    monkeypatch.setenv("WORD", "hello")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    server = start_server(["decimal"])
    assert server is not None
    yield tmp_path
    server.kill()
    server.wait()
    shutil.rmtree(Path(os.environ[ADDRESS]).parent)


@contextlib.contextmanager
def start_client(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CLIENT, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as client:
        yield client


@pytest.mark.parametrize(("word", "status", "message"), [("0", 0, ""), ("75", 75, ""), ("x", 1, "no such thing\n")])
def test_a_job_has_the_folder_environment_and_status_of_its_own(served, word, status, message):
    with start_client(word) as client:
        output, errors = client.communicate(timeout=30)
    assert output == f"{served} hello ['{word}'] True\n"
    assert (client.returncode, errors) == (status, message)


def test_a_signal_to_the_client_reaches_the_job_and_ends_both_alike(served):
    with start_client("sleep") as client:
        assert client.stdout is not None
        client.stdout.readline()
        client.send_signal(signal.SIGTERM)
    assert client.returncode == -signal.SIGTERM


def test_a_job_does_not_outlive_its_client(served):
    with start_client("sleep") as client:
        assert client.stdout is not None
        client.stdout.readline()
        client.kill()
        assert client.stdout.read() == ""  # ends when the job, too, has closed its output


def test_a_job_gets_sigterm_when_the_process_that_started_the_server_is_killed(served, monkeypatch):
    code = "import time\nfrom workflow_scripts.machine.fork_client import *\n"
    code += "server = start_server(['decimal'])\nprint(os.environ[ADDRESS], flush=True)\ntime.sleep(60)\n"
    environment = {name: value for name, value in os.environ.items() if name != ADDRESS} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        with monkeypatch.context() as patch:
            patch.setenv(ADDRESS, parent.stdout.readline().strip())
            with start_client("sleep") as client:
                assert client.stdout is not None
                client.stdout.readline()
                parent.kill()
    assert client.returncode == -signal.SIGTERM


def test_without_a_server_a_step_is_a_process_of_its_own(served, monkeypatch):
    for name, value in ((ADDRESS, ""), (ADDRESS, str(served / "gone")), ("OMP_NUM_THREADS", "2")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with start_client("0") as client:
                assert client.communicate(timeout=30)[0] == "alone\n"


def test_a_process_that_has_the_packages_takes_no_server(served, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run_forked("job", ["0"]) is None


def test_a_server_ends_with_the_process_that_started_it(tmp_path):
    code = "import os\nfrom workflow_scripts.machine.fork_client import *\n"
    code += "server = start_server(['decimal'])\nprint(os.environ[ADDRESS])\n"
    environment = {name: value for name, value in os.environ.items() if name != ADDRESS} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    folder = Path(done.stdout.strip()).parent
    end = time.monotonic() + 30
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not folder.exists()


def test_an_environment_that_names_a_server_starts_no_other(monkeypatch):
    monkeypatch.setenv(ADDRESS, "")
    assert start_server() is None

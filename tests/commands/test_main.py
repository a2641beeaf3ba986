"""The command `fednoise`."""

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import toy

from fednoise_core import methods
from fednoise_core.api.simulate import NotSaved
from fednoise_core.version import __version__
from workflow_scripts.commands import main, new, record, run

ROOT = Path(__file__).parents[2]


def test_the_help_names_every_verb_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in printed.splitlines() if line.startswith("  ")]
    assert [verb for verb, _ in lines] == list(main.VERBS)
    assert all(text.endswith(".") for _, text in lines)


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_has_a_help_by_its_own_name(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fednoise"])
    with pytest.raises(SystemExit) as done:
        main.main([verb, "--help"])
    assert done.value.code == 0
    assert f"usage: fednoise {verb}" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fednoise {__version__}\n"


def test_an_unknown_verb_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["audti"]) == 2
    assert capsys.readouterr().err == "fednoise: unknown command 'audti'; did you mean 'audit'?\n"
    assert main.main(["nosuch"]) == 2
    assert capsys.readouterr().err == f"fednoise: unknown command 'nosuch'; known: {', '.join(main.VERBS)}\n"


def test_a_verb_names_the_package_that_a_bare_install_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(main.VERBS, "schema", "no_such_package.module")
    assert main.main(["schema"]) == 2
    assert capsys.readouterr().err.startswith("schema: the package no_such_package is missing; pip install")


def test_list_names_all_kinds_and_show_their_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    assert main.main(["list", "methods"]) == 0
    kinds, ids = capsys.readouterr().out.split("\n\nIn config/catalogue.yaml:\n")
    assert [line.split()[0] for line in kinds.splitlines()] == list(methods.METHODS)
    assert ids.startswith("fedavg ")
    assert main.main(["list", "datasets"]) == 0
    assert "\nfmnist-6k " in capsys.readouterr().out
    assert main.main(["show", "method", "fedprox"]) == 0
    printed = capsys.readouterr().out
    assert "  mu: number ≥ 0 (default: 0.01)\n      Weight of the proximal term" in printed
    assert "docs/methods/fedprox.md" in printed
    assert printed.endswith("{name: fedprox, mu: 0.1}\n")
    assert main.main(["show", "noise", "symetric"]) == 2
    assert capsys.readouterr().err == "show: unknown noise 'symetric'; did you mean 'symmetric'?\n"
    assert main.main(["show", "method", "qqq"]) == 2
    assert capsys.readouterr().err.count(" fedavg,") == 1
    assert main.main(["show", "noise", "sym40"]) == 0  # an id is shown with its kind
    printed = capsys.readouterr().out
    assert printed.startswith("In config/catalogue.yaml:\n  sym40: {kind: symmetric, rate: 0.4}\n\nA label becomes")
    assert main.main(["show", "dataset", "fmnist-6k"]) == 0
    assert "\nFashion-MNIST, " in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main.main(["list", "nets"]) == 2
    assert "Run it in the project's folder" in capsys.readouterr().err


def test_record_says_which_studies_are_not_finished(
    config_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "running_process": None,
        "read_record": {},
        "is_record_missing": False,
        "audit_store": {},
    }.items():
        monkeypatch.setattr(record, name, Mock(return_value=value))
    monkeypatch.setattr(record.subprocess, "run", Mock(return_value=Mock(returncode=0, stdout="job", stderr="")))
    assert main.main(["record"]) == 1
    assert "record: some results of the studies in config/config.yaml are not up to date" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m workflow_scripts.commands.main list methods | true"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["audit", "record", "prune"])
def test_verbs_without_a_folder_refuse_one(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt folder is not reported as one without findings."""
    with pytest.raises(SystemExit, match="2"):
        main.main([verb, "results/quik"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: results/quik\n")


CLOSED = NotSaved("closed", None)  # type: ignore[arg-type]
CLOSED.__cause__ = PermissionError(errno.EACCES, "closed")


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), 75), (OSError(errno.ENOSPC, "full"), 75), (OSError("odd"), 2), (CLOSED, 2)],
)
def test_only_an_interrupt_or_the_disk_asks_for_the_same_command(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "main", Mock(side_effect=error))
    assert main.main(["run"]) == status
    assert ("run: " in capsys.readouterr().err) == isinstance(error, OSError)  # an interrupt says nothing


def test_run_calls_snakemake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[list[str]] = []

    monkeypatch.setattr(run.os, "execv", lambda _, command: called.append(command))
    monkeypatch.chdir(tmp_path)
    assert main.main(["run", "quick"]) == 2
    assert capsys.readouterr().err == "run: no Snakefile here. Run it in the project's folder\n"
    Path("Snakefile").touch()
    run.main(["quick", "--cores", "8", "--scale", "cpu", "--", "--dry-run"])
    run.main(["quick", "-n", "--quiet", "host", "--scale", "cpu", "--config", "subset=a"])
    run.main([])
    run.main(["quick", "--set", "train.lr=0.05", "--seed", "3", "--seed", "4"])
    config = 'set=["train.lr=0.05", "seeds=[3, 4]"]'
    assert called.pop() == [sys.executable, "-m", "snakemake", "--cores", "all", "--config", config, "--", "quick"]
    run.main(["quick", "--scale", "cpu", "mine", "--retries", "2"])  # a target behind an option
    assert called.pop()[5:] == ["--config", "scale=cpu", "--retries", "2", "--", "quick", "mine"]
    assert called == [
        [sys.executable, "-m", "snakemake", "--cores", "8", "--config", "scale=cpu", "--dry-run", "--", "quick"],
        [
            sys.executable,
            *[
                "-m",
                "snakemake",
                "--cores",
                "all",
                "--config",
                "scale=cpu",
                "subset=a",
                "-n",
                "--quiet",
                "host",
                "--",
                "quick",
            ],
        ],
        [sys.executable, "-m", "snakemake", "--cores", "all", "--"],
    ]


SLOW_TO_END = """
import pathlib, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
try:
    pathlib.Path("begun").touch()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    pathlib.Path("ended").touch()
"""


def test_ctrl_c_lets_snakemake_end_by_itself(tmp_path: Path) -> None:
    """If it were killed before its jobs have stopped, it would leave its lock."""
    (tmp_path / "snakemake.py").write_text(SLOW_TO_END)
    (tmp_path / "Snakefile").touch()
    command = [sys.executable, "-m", "workflow_scripts.commands.main", "run"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=pipe, text=True, start_new_session=True) as process:
        end = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate()[1] == ""
    assert (tmp_path / "ended").exists()


def test_a_new_method_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Path(methods.__file__).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for folder in ("fednoise_core/methods", "tests/methods", "docs/methods"):
        Path(folder).mkdir(parents=True)
    new.REGISTRY.write_text(registry, encoding="utf-8")
    assert len(new.write_method("fed_pull", "FedPull")) == 4
    assert '    "fed_pull": "fednoise_core.methods.fed_pull:FedPull",\n}\n' in new.REGISTRY.read_text(encoding="utf-8")
    monkeypatch.setitem(methods.METHODS, "fed_pull", "fednoise_core.methods.fed_pull:FedPull")
    _load("fednoise_core.methods.fed_pull", Path("fednoise_core/methods/fed_pull.py"), monkeypatch)
    test = _load("test_fed_pull", Path("tests/methods/test_fed_pull.py"), monkeypatch)
    test.test_strength_zero_is_fedavg_bit_for_bit()  # type: ignore[attr-defined]
    assert toy.play("fed_pull").outcome.state.round == toy.play("fedavg").outcome.state.round
    with pytest.raises(new.SpecError, match=r"fed_pull\.py exists already"):
        new.write_method("fed_pull", "FedPull")


@pytest.mark.parametrize("name", ["FedPull", "fed-pull", "", "1fed"])
def test_an_impossible_name_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", "method", name, "--class-name", "FedPull"]) == 2
    assert list(tmp_path.iterdir()) == []


def _load(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module

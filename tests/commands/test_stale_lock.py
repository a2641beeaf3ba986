"""The lock that a killed Snakemake leaves behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from workflow_scripts.commands.run import remove_stale_lock


def test_a_lock_goes_only_when_no_snakemake_works_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()", "snakemake"], stdin=subprocess.PIPE) as working:
        remove_stale_lock()
        assert lock.exists()
        working.communicate(b"\n")
    remove_stale_lock()
    assert not lock.exists()
    assert "left a lock" in capsys.readouterr().err
    remove_stale_lock()  # nothing is left to do, and nothing is printed
    assert capsys.readouterr().err == ""

"""make export: a folder that works without the workflow."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy

from workflow_scripts import export

ROOT = Path(__file__).parents[1]


def example_says(folder: Path, **env: str) -> str:
    """What the example prints, run elsewhere and with the library's package alone."""
    library = folder.parent / "library"
    library.mkdir(exist_ok=True)
    if not (library / "fednoise_core").exists():
        (library / "fednoise_core").symlink_to(ROOT / "fednoise_core")
    environment = {**os.environ, "PYTHONPATH": str(library), **env}
    command = [sys.executable, str(folder / "example.py")]
    done = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "client"), [("fedavg", ""), ("local", "client=0")])
def test_the_example_of_an_exported_run_predicts(name: str, client: str, tmp_path: Path, capsys) -> None:
    toy.play(name, out=tmp_path / "run")
    assert export.main(["--run", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    assert "try `python" in capsys.readouterr().out
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"README.md", "example.py", "model.safetensors", "spec.json", "summary.json"}
    code = (tmp_path / "out/example.py").read_text()
    assert len(code.splitlines()) == 5
    assert client in code
    said = example_says(tmp_path / "out")
    assert len(eval(said)) == 2
    assert set(eval(said)) <= set("01234")  # this data set's classes have no names
    card = (tmp_path / "out/README.md").read_text()
    assert code in card
    assert hashlib.sha256((tmp_path / "out/model.safetensors").read_bytes()).hexdigest() in card
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert f"{100 * summary['accuracy']['last']:.2f} % after {summary['rounds']} rounds" in card
    assert "numbers 0..4" in card


def test_a_net_of_ones_own_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.play("fedavg", out=tmp_path / "run", net={"name": "module", "factory": "mynets:make"})
    monkeypatch.setattr(export, "ROOT", ROOT / "tests")
    assert export.main(["--run", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/mynets.py").read_bytes() == (ROOT / "tests/mynets.py").read_bytes()
    assert len(eval(example_says(tmp_path / "out"))) == 2


def test_what_cannot_be_exported_is_said_in_a_line(tmp_path: Path, capsys) -> None:
    toy.play("fedavg", out=tmp_path / "run")
    for words, message in (
        (["--run", str(tmp_path / "none")], "summary.json: no such file"),
        (["--run", str(tmp_path / "run"), "--out", str(tmp_path / "run")], "name another folder"),
    ):
        assert export.main(words) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    (tmp_path / "run/model.safetensors").write_bytes(b"")
    assert export.main(["--run", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 2
    assert "model.safetensors: damaged" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

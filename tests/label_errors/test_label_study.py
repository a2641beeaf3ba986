"""label_study: from the user's file to a planned run and its page; what cannot be leaves the config as it was."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workflow_scripts.commands import label_study
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.provenance.step_code import StepCode
from workflow_scripts.study.output_plans import OutputPlans
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the real config."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "fednoise_core/nets").mkdir(parents=True)
    shutil.copy(ROOT / "fednoise_core/nets/__init__.py", tmp_path / "fednoise_core/nets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    return tmp_path


def planned(name: str) -> PlannedRun:
    (run,) = Study(Project(read_yaml("config/config.yaml")), name).runs
    return run


def test_the_documentation_s_arrays_become_a_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/clean_your_labels.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(code, "docs/clean_your_labels.md", "exec"), {})
    assert "wrong_low" in capsys.readouterr().out
    assert label_study.main(["mine.npz"]) == 0
    said = capsys.readouterr().out
    run = planned("mine")
    assert run.labels_page in said
    assert run.labels_page in text
    assert f"The default is {run.spec['train']['rounds']} rounds of {run.spec['train']['epochs']} epochs" in text
    assert "now: snakemake --cores 2 mine" in said
    assert run.spec["dataset"] == {"source": "npz", "path": "mine.npz", "test": {"holdout": 0.1}}
    assert run.spec["partition"] == {"kind": "natural"}
    assert run.spec["noise"] == {"kind": "given"}
    assert read_yaml("config/studies/mine.yaml")["labels"] is True
    study = Study(Project(read_yaml("config/config.yaml")), "mine")
    links = OutputPlans(StepCode(ROOT)).plan_page(study).spec["study"]["label_pages"]
    assert links == {"mine · cross_fitted, seed 0": f"../../{run.labels_page}"}


def test_labels_without_owners_or_with_a_test_set(folder: Path) -> None:
    y = np.arange(60) % 3
    images = np.zeros((60, 8, 8), np.uint8)
    np.savez("one place.npz", x_train=images, y_train=y, x_test=images, y_test=y)
    assert label_study.main(["one place.npz", "--rounds", "3", "--net", "mlp"]) == 0
    run = planned("one-place")
    assert run.spec["dataset"] == {"source": "npz", "path": "one place.npz", "clean_known": False}
    assert run.spec["partition"] == {"kind": "iid", "clients": 1}
    assert run.spec["train"]["rounds"] == 3
    assert run.spec["train"]["net"] == "mlp"


def test_feature_vectors_get_a_linear_net(folder: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez("vectors.npz", x_train=draw.normal(0, 1, (60, 5)).astype(np.float32), given=np.arange(60) % 3)
    assert label_study.main(["vectors.npz"]) == 0
    assert planned("vectors").spec["train"]["net"] == "linear"


def test_a_folder_with_a_csv(folder: Path) -> None:
    lines = ["file,label,client"]
    for i in range(40):
        path = folder / "photos/train" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), i, np.uint8)).save(path)
        lines.append(f"{i}.png,{'cat' if i % 2 else 'dog'},site {i % 4}")
    (folder / "photos/labels.csv").write_text("\n".join(lines))
    assert label_study.main(["photos", "--given", "labels.csv", "--size", "16"]) == 0
    spec = planned("photos").spec
    assert spec["dataset"]["given"] == "labels.csv"
    assert spec["dataset"]["size"] == 16
    assert spec["partition"] == {"kind": "natural"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.npz"], "nothing.npz: no such file or folder"),
        (["mine.npz", "--name", "quick"], "config/studies/quick.yaml exists"),
        (["mine.npz", "--name", "a/b"], "--name: expected an id"),
        (["mine.npz", "--name", "table"], "'table' is a rule of the workflow"),
        (["mine.npz", "--method", "fedavgg"], "did you mean 'fedavg'?"),
        (["mine.npz", "--method", "fedavg, label: x"], "methods.found.name: "),
        (["mine.npz", "--net", "reznet"], "unknown net 'reznet'"),
        (["mine.npz", "--net", "mlp, rounds: 3"], "net: "),
        (["mine.npz", "--net", "{name: mlp"], "--net: expected a name or"),
        (["mine.npz", "--net", "2020-01-01"], "--net: expected a name or"),
        (["mine.npz", "--given", "labels.csv"], "--given is for folders of images"),
        (["bad.npz"], "bad.npz: it has no labels"),
    ],
)
def test_what_cannot_be_leaves_the_config_as_it_was(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    np.savez("mine.npz", x_train=np.zeros((30, 8, 8), np.uint8), given=np.arange(30) % 3)
    np.savez("bad.npz", x_train=np.zeros((30, 8, 8), np.uint8))
    before = {path: path.read_bytes() for path in sorted((folder / "config").rglob("*.yaml"))}
    assert label_study.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert {path: path.read_bytes() for path in sorted((folder / "config").rglob("*.yaml"))} == before

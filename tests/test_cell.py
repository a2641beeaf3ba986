"""One cell of a paper by its names: which run is meant, and what is said of names that mean none or several."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workflow_scripts.order import ordered

from fednoise_core.io import SpecError
from workflow_scripts import by_hand, cell
from workflow_scripts.config_file import read_yaml
from workflow_scripts.project import Project
from workflow_scripts.stepcode import StepCode
from workflow_scripts.study import Study

ROOT = Path(__file__).parents[1]
NAMED = {"paper": "feddpcont", "table": "2", "method": "fedcorr", "noise": "sym40", "seed": "0"}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    return lambda scale="paper": Project({**read_yaml("config/config.yaml"), "scale": scale})


def test_a_cell_is_the_workflows_own_run(project: Callable[..., Project]) -> None:
    study, run = cell.resolve(project(), NAMED)
    assert run.folder == "results/feddpcont/runs/cifar10-public/sym40/openset-uniform/fedcorr/seed0"
    assert run == study.run("cifar10-public", "sym40", "openset-uniform", "fedcorr", 0)
    steps = StepCode()
    made = by_hand.preparations(study.project, study, run, steps)
    assert [one.module for one in made] == ["download", "inject_noise", "partition"]
    assert [one.out for one in made] == [run.arrays, run.labels, run.partition_file]
    command = cell.train_command(by_hand.as_dict(run, steps), "cpu")
    assert json.loads(command[command.index("--spec") + 1]) == run.spec
    assert command[command.index("--out") + 1] == run.folder


def test_data_sets_keep_the_papers_names_at_every_scale(project: Callable[..., Project]) -> None:
    named = {"paper": "fedmixcon", "table": "table3", "method": "fedavg", "noise": "sym40-exact"}
    for dataset in ("mnist", "fashion_mnist", "digits", None):
        _, run = cell.resolve(project("smoke"), {**named, "dataset": dataset})
        assert run.folder == "results/fedmixcon-smoke/runs/digits/sym40-exact/classes3/fedavg/seed0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paper": "feddpcnt"}, r"PAPER=feddpcnt: no such study; did you mean 'feddpcont'\?"),
        ({"table": "22"}, r"feddpcont.yaml: no table or figure is named 'table22'; did you mean 'table2'\?"),
        ({"method": "fedcor"}, r"table2, scale paper: METHOD=fedcor: no such run; did you mean 'fedcorr'\?"),
        ({"noise": "sym45"}, r"NOISE=sym45: no such run; did you mean 'sym40'\?"),
        ({"seed": "7"}, r"SEED=7: no such run; known: 0, 1, 2"),
        ({"seed": None}, r"3 runs of feddpcont_table2 are meant: add SEED=, one of 0, 1, 2"),
        ({"table": "8", "method": "dividemix"}, r"are meant: add DATASET=, one of cifar10-public, cifar100-public"),
        ({"table": None}, r"say TABLE= or FIGURE="),
        ({"table": "12"}, r"tables\.table12: shows nothing but clothing1m-public, which is not here"),
        ({"table": "1"}, r"table1 shows no run"),
    ],
)
def test_names_that_mean_no_run_or_several(
    project: Callable[..., Project], change: dict[str, str | None], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        cell.resolve(project(), {**NAMED, **change})


def test_the_command_says_it_in_one_line(project: Callable[..., Project], capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{key}={value}" for key, value in {**NAMED, "method": "nobody"}.items()]
    assert cell.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("cell: config/papers/feddpcont.yaml: table2, scale paper: METHOD=nobody: no such run")
    assert said.count("\n") == 1


def test_the_order_is_what_settles_most_first_and_then_everything(project: Callable[..., Project]) -> None:
    made = project()
    runs = [run for _, run in ordered(made, "config/order.yaml")]
    folders = [run.folder for run in runs]
    assert len(folders) == len(set(folders))
    assert {run.folder for paper in made.papers for run in Study(made, paper).runs} <= set(folders)
    assert [run.root for run in runs[:12]] == ["results/calibrate"] * 12
    first = runs[12:24]
    assert {(run.noise, run.spec["method"]["name"]) for run in first} == {
        (noise, name)
        for noise in ("sym20", "random40")
        for name in ("fedavg", "feddpcont", "fedcorr", "coteaching", "sce")
    }
    assert {run.spec["method"].get("dp") for run in first if run.spec["method"]["name"] == "feddpcont"} == {
        None,
        "none",
    }
    assert {(run.dataset, run.noise, run.partition, run.seed) for run in runs[24:29]} == {
        ("fashion_mnist", "sym40-exact", "classes3", 0)
    }
    data = {
        (run.noise, run.dataset, run.partition, str(run.spec["dataset"]), str(run.spec["partition"])) for run in first
    }
    assert len(data) == 2  # one a noise: SCE is run on the same data and split as the paper's own methods,
    train = dict(runs[12].spec["train"])
    assert [run.spec["train"] for run in first] == [train] * len(first)  # and as they are


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blocks: [{study: feddpcont, metods: [fedavg]}]", r"blocks\[0\].metods: unknown key; did you mean 'methods'"),
        ("blocks: [{study: fedpcont}]", r"blocks\[0\].study: unknown study 'fedpcont'; did you mean 'feddpcont'"),
        ("blocks: [{study: feddpcont, noises: [sym21]}]", r"blocks\[0\].noises: no run has 'sym21'; did you mean"),
        ("block: []", r"expected one key, blocks"),
    ],
)
def test_mistakes_in_an_order_name_file_and_key(
    project: Callable[..., Project], tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "order.yaml").write_text(text)
    made: Any = project()
    with pytest.raises(SpecError, match=message):
        ordered(made, str(tmp_path / "order.yaml"))

"""One cell of a paper by its names: the run that they select, and the error for names that select none or several."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fednoise_core.io import SpecError
from workflow_scripts.commands import cell, main
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
NAMED = {"paper": "feddpcont", "table": "2", "method": "fedcorr", "noise": "sym40", "seed": "0"}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    return lambda scale="paper": Project({**read_yaml("config/config.yaml"), "scale": scale})


def test_a_cell_is_the_workflows_own_run(project: Callable[..., Project], capsys: pytest.CaptureFixture[str]) -> None:
    run = cell.resolve_run(project(), NAMED)
    ids = ("cifar10-public", "sym40", "openset-uniform", "fedcorr", 0)
    assert run == Study(project(), "feddpcont").find_run(*ids)
    assert cell.main([*(f"--{key}={value}" for key, value in NAMED.items()), "--show"]) == 0
    output = capsys.readouterr().out
    assert output == f"snakemake --cores 1 {run.folder}/SHA256SUMS --config scale=paper 'studies=[feddpcont]'\n"


def test_data_sets_keep_the_papers_names_at_every_scale(project: Callable[..., Project]) -> None:
    named = {"paper": "fedmixcon", "table": "table3", "method": "fedavg", "noise": "sym40-exact"}
    for dataset in ("mnist", "fashion_mnist", "digits", None):
        run = cell.resolve_run(project("smoke"), {**named, "dataset": dataset})
        assert (run.root, run.dataset, run.noise, run.method) == (
            *("results/fedmixcon-smoke", "digits", "sym40-exact", "fedavg"),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paper": "feddpcnt"}, r"unknown study 'feddpcnt'; did you mean 'feddpcont'\?"),
        ({"table": "22"}, r"feddpcont.yaml: no table or figure is named 'table22'; did you mean 'table2'\?"),
        ({"table": None}, r"no table or figure is named ''"),
        ({"method": "fedcor"}, r"table2: method: no run has 'fedcor'; did you mean 'fedcorr'\?"),
        ({"seed": None}, r"table2: 3 runs are left. Add --seed: one of 0, 1, 2"),
        ({"table": "8", "method": "dividemix"}, r"are left. Add --dataset: one of cifar10-public, cifar100-public"),
        ({"table": "12"}, r"tables\.table12: shows only clothing1m-public, which is missing"),
    ],
)
def test_names_that_mean_no_run_or_several(
    project: Callable[..., Project], change: dict[str, str | None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {key: value for key, value in {**NAMED, **change}.items() if value is not None}
    with pytest.raises(SpecError, match=message):
        cell.resolve_run(project(), named)
    assert main.main(["cell", *(f"--{key}={value}" for key, value in named.items())]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("cell: ")
    assert stderr.count("\n") == 1

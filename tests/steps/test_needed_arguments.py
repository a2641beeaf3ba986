"""A step that is called by hand says which arguments it lacks, before it does any work."""

import importlib
import runpy
import sys

import pytest

NEEDED = {
    "workflow_scripts.steps.download": "--spec, --out",
    "workflow_scripts.steps.noise": "--spec, --seed, --arrays, --out",
    "workflow_scripts.steps.partition": "--spec, --seed, --arrays, --out",
    "workflow_scripts.steps.pretrained": "--net, --out",
    "workflow_scripts.steps.train": "--spec, --arrays, --labels, --partition, --out, --work",
    "workflow_scripts.steps.table": "--spec, --runs-list, --out-prefix",
    "workflow_scripts.steps.figure": "--spec, --runs-list, --out-prefix",
    "workflow_scripts.steps.metrics": "--runs-list, --out, --headline, --accuracy, --curves",
    "workflow_scripts.steps.study_page": "--study, --runs-list, --shown, --out",
    "workflow_scripts.steps.setting_page": "--arrays, --labels, --partition, --out",
    "workflow_scripts.steps.labels_page": "--out",
}


@pytest.mark.parametrize(("module", "needed"), NEEDED.items())
def test_a_step_names_the_arguments_that_it_needs(module: str, needed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(module).main([])
    assert capsys.readouterr().err.endswith(f"required: {needed}\n")


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["trian"], 2), (["--help"], 0)])
def test_without_a_step_the_steps_are_listed(
    arguments: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["steps", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("workflow_scripts.steps", run_name="__main__")
    listed = "".join(capsys.readouterr()).partition("steps: ")[2].strip().split(", ")
    assert (ended.value.code, listed) == (status, [name.rpartition(".")[2] for name in NEEDED if ".steps." in name])

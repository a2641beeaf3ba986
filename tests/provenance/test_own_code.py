"""A job refuses to run with other code than it was planned with, so that no result is recorded under a wrong hash."""

import json
from pathlib import Path

import pytest
import toy

from workflow_scripts.provenance.code_hash import BOOKKEEPING, read_modules
from workflow_scripts.provenance.step_code import StepCode
from workflow_scripts.steps import download, figure, metrics, noise, pretrained, setting_page, study_page, table, train
from workflow_scripts.steps import partition as split

ROOT = Path(__file__).parents[2]


def run_words(inputs: dict[str, str], out: Path) -> list[str]:
    """The training command's arguments for a short run."""
    method, settings = toy.settings("fedavg")
    spec = json.dumps({"method": method, "train": {**settings, "net": "mlp"}, "seed": 0})
    files = [word for name, file in inputs.items() for word in (f"--{name}", file)]
    return ["--spec", spec, *files, "--out", str(out / "run"), "--work", str(out / "work"), "--device", "cpu"]


@pytest.mark.parametrize(
    "step",
    [setting_page, download, noise, figure, study_page, table, pretrained, split, metrics, train],
    ids=lambda step: step.__name__.split(".")[2],
)
def test_every_step_refuses_other_code(step, inputs, tmp_path, capsys) -> None:
    out = str(tmp_path / "out")
    report = ["--runs-list", str(tmp_path)]
    arguments = {
        "setting_page": [f"--{name}={inputs[name]}" for name in ("arrays", "labels", "partition")],
        "download": ["--spec", '{"source": "digits"}'],
        "noise": ["--spec", '{"kind": "symmetric", "rate": 0.5}', "--seed=0", "--arrays", inputs["arrays"]],
        "partition": ["--spec", '{"kind": "iid", "clients": 3}', "--seed=0", "--arrays", inputs["arrays"]],
        "figure": ["--spec", '{"kind": "curves"}', *report, "--out-prefix", out],
        "table": ["--spec", '{"kind": "accuracy"}', *report, "--out-prefix", out],
        "study_page": ["--study", "{}", "--shown", "{}", *report],
        "pretrained": ["--net", "resnet50"],
        "metrics": [*report, *(f"--{name}={out}" for name in ("headline", "accuracy", "curves"))],
        "train": run_words(inputs, tmp_path),
    }[step.__name__.split(".")[2]]
    arguments = arguments if "--out" in arguments or "--out-prefix" in arguments else [*arguments, "--out", out]
    assert step.main([*arguments, "--code", "0" * 16]) == 2
    message = capsys.readouterr().err
    assert "the code has changed since this job was planned" in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_planned_code_is_accepted(inputs, tmp_path) -> None:
    steps = StepCode(ROOT)
    arguments = ["--spec", '{"kind": "iid", "clients": 3}', "--seed=0", "--arrays", inputs["arrays"]]
    assert (
        split.main(
            [
                *arguments,
                "--out",
                str(tmp_path / "p.npz"),
                "--code",
                steps.hash_entries(steps.step_entries("partition", partition=["iid"])),
            ]
        )
        == 0
    )


def test_bookkeeping_modules_are_in_no_closure() -> None:
    """Otherwise an edit of the code hash itself would rerun everything."""
    steps = StepCode(ROOT)
    for entries in (
        steps.step_entries("training_run", method=["fedavg"], net=["mlp"]),
        steps.step_entries("noise", noise=["symmetric"]),
        steps.step_entries("table"),
    ):
        assert not [file for file in read_modules(ROOT, entries) if file.startswith(BOOKKEEPING)]

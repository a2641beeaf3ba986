"""Files before training, made without the workflow: each is made again when its settings or its inputs change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fednoise_core.io import sha256_file
from workflow_scripts import by_hand
from workflow_scripts.by_hand import Preparation
from workflow_scripts.config_file import read_yaml
from workflow_scripts.job_records import put
from workflow_scripts.project import Project
from workflow_scripts.stepcode import StepCode
from workflow_scripts.study import Study

ROOT = Path(__file__).parents[1]
STUDY = """\
title: Two labels
noises: {{own: {{kind: symmetric, rate: {rate}}}}}
partitions: {{open: {{kind: openset, clients: 4, mode: uniform}}}}
train: {{net: mlp, rounds: 1}}
seeds: [0]
grid: [{{datasets: [digits], noises: [own], partitions: [open], methods: [fedavg]}}]
"""
Steps = Callable[[float], list[Preparation]]


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    """What makes the files of a run of a study whose noise has this rate; its partition is over the noisy labels."""
    for name in ("fednoise_core", "workflow_scripts", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    config = tmp_path / "config"
    config.mkdir()
    for path in (ROOT / "config").iterdir():
        if path.name != "studies":
            (config / path.name).symlink_to(path)
    (config / "studies").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)

    def found(rate: float) -> list[Preparation]:
        (config / "studies/two.yaml").write_text(STUDY.format(rate=rate))
        project = Project({**read_yaml("config/config.yaml"), "studies": ["two"], "scale": "paper"})
        study = Study(project, "two")
        return by_hand.preparations(project, study, study.runs[0], StepCode())

    return found


def contents(made: list[Preparation]) -> list[str]:
    return [sha256_file(one.out) for one in made]


def test_a_change_of_the_noise_makes_what_is_made_over_the_labels_again(steps: Steps) -> None:
    first = steps(0.4)
    arrays, labels, partition = (one.out for one in first)
    assert by_hand.make(first) == ([arrays, labels, partition], 0)
    before = contents(first)
    assert by_hand.make(first) == ([], 0)
    assert by_hand.make(steps(0.3)) == ([labels, partition], 0)
    assert [new == old for new, old in zip(contents(first), before, strict=True)] == [True, False, False]
    assert by_hand.make(steps(0.4)) == ([labels, partition], 0)
    assert contents(first) == before


def test_a_file_that_something_else_replaced_is_not_ours(steps: Steps) -> None:
    """As when the workflow made it of other settings in between, which were then taken back."""
    first, other = steps(0.4), steps(0.3)
    by_hand.make(first)
    before = contents(first)
    told = by_hand.MADE.read_text()
    by_hand.make(other)
    by_hand.MADE.write_text(told)
    labels = first[1]
    params = [repr(value) for value in other[1].arguments]
    put(labels.out, {"params": params, "endtime": Path(labels.out).stat().st_mtime})
    assert other[1].is_made()
    assert not labels.is_made()
    assert by_hand.make(first)[0] == [labels.out, first[2].out]
    assert contents(first) == before


def test_the_workflows_record_counts_unless_the_file_or_its_input_is_another_by_now(steps: Steps) -> None:
    first, other = steps(0.4), steps(0.3)
    by_hand.make(first)
    by_hand.MADE.unlink()
    for one in first:
        params = [repr(value) for value in one.arguments]
        put(one.out, {"params": params, "endtime": Path(one.out).stat().st_mtime})
    assert [one.is_made() for one in first] == [True, True, True]
    by_hand.make(other[:2])  # the labels are of other settings; the partition still over those before
    assert [one.is_made() for one in first] == [True, False, False]
    assert [one.is_made() for one in other] == [True, True, False]


def test_two_that_make_files_at_once_forget_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    class Module:
        @staticmethod
        def main(arguments: list[str]) -> int:
            Path(arguments[-1]).write_text(arguments[-1])
            return 0

    monkeypatch.setattr(by_hand.importlib, "import_module", lambda _: Module)
    wanted = [[Preparation("any", ("--out", f"{who}{k}"), f"{who}{k}") for k in range(5)] for who in "abcd"]
    threads = [threading.Thread(target=by_hand.make, args=[steps]) for steps in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(by_hand.MADE.read_text())) == 20

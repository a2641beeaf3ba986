"""labels.html in the workflow: made for the run that is asked for, again when its suspects change, never pushed."""

import pytest
from toy_workflow import TOY, Workflow

from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.targets import Targets

pytestmark = pytest.mark.workflow

PAGE = "build/labels/toy/digits/random20/even/fedavg/seed0/labels.html"
STUDY = "config/studies/toy.yaml"


def test_a_page_is_made_where_it_is_asked_for(workflow: Workflow) -> None:
    assert workflow.stale() == {}  # by default there is none
    assert workflow.snakemake(PAGE) == {"labels_page": 1}
    text = workflow.path(PAGE).read_text(encoding="utf-8")
    assert "digits · random20 · even · FedAvg, seed 0" in text
    assert workflow.stale(PAGE) == {}
    assert workflow.audit() == []  # it holds pictures, so DVC does not record it
    assert "build" not in workflow("dvc", "status")
    with workflow.edited(STUDY, "rounds: 2,", "rounds: 3,"):
        assert workflow.stale(PAGE)["labels_page"] == 1
    for file, old, new in (
        ("labels.js", "Undone.", "Taken back."),
        ("thumbnails.py", "LARGE, SMALL = 2500", "LARGE, SMALL = 99"),
    ):
        with workflow.edited(f"fednoise_core/label_errors/{file}", old, new):
            assert workflow.stale(PAGE) == {"labels_page": 1}
            assert workflow.stale() == {}


def test_a_study_may_ask_for_the_pages_of_all_its_runs(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workflow.folder)
    with workflow.edited(STUDY, "title: Toy\n", "title: Toy\nlabels: true\n"):
        runs = TOY.count("methods: [fedavg, feddpcont, fedcorr]") * 3 + 1
        assert workflow.stale("toy") == {"labels_page": runs, "study_page": 1}  # which links them
        lines = Targets(Project(read_yaml("config/config.yaml"))).summary_lines("toy")
        assert len([line for line in lines if line.endswith("/labels.html")]) == runs
        assert f"  page: {PAGE}" in lines

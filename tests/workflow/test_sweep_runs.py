"""A sweep in the workflow: its runs, table and figure are made, and another value trains its own run only."""

import json

import pytest
from toy_workflow import TOY as STUDY
from toy_workflow import Workflow

pytestmark = pytest.mark.workflow

TOY = "config/studies/toy.yaml"
BLOCK = "  - {datasets: [digits], noises: [sym40], partitions: [held], methods: [fedavg, prox]}\n"
SWEPT = (
    STUDY.replace("methods:\n", "methods:\n  prox: {name: fedprox, label: Prox, sweep: {mu: [0, 10]}}\n")
    .replace("partitions:\n", "partitions:\n  held: {kind: iid, clients: 4, validation: 0.2}\n")
    .replace("grid:\n", f"grid:\n{BLOCK}")
    .replace("tables:\n", "tables:\n  best: {kind: accuracy, partitions: [held]}\n")
    .replace("figures:\n", "figures:\n  mu: {kind: sweep, partitions: [held]}\n")
)


def test_another_value_trains_its_own_run_only(workflow: Workflow) -> None:
    workflow.path(TOY).write_text(SWEPT)
    jobs = workflow.snakemake("--config", "device=cpu")
    assert jobs["train"] == 3
    assert workflow.stale() == {}
    with workflow.edited(TOY, "mu: [0, 10]", "mu: [0, 0.1, 10]"):  # the table and figure without the sweep stay
        assert workflow.stale() == {"train": 1, "table": 2, "figure": 2, "metrics": 1, "study_page": 1}
        assert workflow.stale("toy_runs") == {"train": 1}
    with workflow.edited(TOY, "mu: [0, 10]", "mu: [0.0, 10.0]"):  # the same values
        assert "train" not in workflow.stale()
    with (  # one value is no curve
        workflow.edited(TOY, "  mu: {kind: sweep, partitions: [held]}\n", ""),
        workflow.edited(TOY, "mu: [0, 10]", "mu: [10]"),
    ):
        assert "train" not in workflow.stale()

    summaries = {
        mu: json.loads(workflow.path(f"{workflow.run(f'prox@mu={mu}')}/summary.json").read_text()) for mu in (0, 10)
    }
    assert summaries[0]["valid_accuracy"] != summaries[10]["valid_accuracy"]
    table = workflow.path("results/toy/tables/best.md").read_text(encoding="utf-8")
    assert "Prox, mu 0 |" in table
    assert workflow.path("results/toy/figures/mu.svg").is_file()
    workflow("python", "-m", "workflow_scripts.commands.main", "record")
    assert workflow.audit() == []

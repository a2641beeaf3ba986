"""The audit of a real study: what it must find, what it must not, and the way out of each."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from test_keep import flip_a_byte
from toy_workflow import METRICS, RUN, TOY, Workflow, lay_out

pytestmark = pytest.mark.workflow

STUDY = "config/studies/toy.yaml"
LABELS = "results/toy/labels/digits/sym40/any/seed0.npz"
MODEL = RUN.format("sym40/open/feddpcont", "model.safetensors")
BOOK = "results/toy/ledger.jsonl"
AFTER_RUN = {"train": 1, "table": 1, "figure": 1, "summary": 1, "page": 1}
METHODS = ("methods: [fedavg, feddpcont, fedcorr]", "methods: [fedavg, feddpcont]")


def module(name: str, *arguments: str) -> tuple[str, ...]:
    """A command of the workflow."""
    return (sys.executable, "-m", f"workflow_scripts.{name}", *arguments)


LEDGER, RECORD, PRUNE = module("ledger"), module("record"), module("prune")


def test_every_output_has_its_step_s_digest(workflow: Workflow) -> None:
    """None of the notes is left over, and nothing lies there that no note named."""
    assert not list(workflow.path("work/made").iterdir())
    assert workflow.audit() == []


def test_touch_does_not_bless(workflow: Workflow) -> None:
    with workflow.edited(STUDY, "beta: 1.0", "beta: 0.5"):
        workflow("snakemake", "--touch", "--cores", "1")
        assert workflow.stale() == {}
        found = workflow.audit()
        assert any(one.startswith(RUN.format("sym40/open/feddpcont", "spec.json")) for one in found)
        assert workflow.status(*RECORD) == 1
        workflow(*LEDGER, "check", "--discard")
        assert workflow.audit() == []
        assert workflow.stale() == AFTER_RUN
    assert workflow.stale() == {}  # the results were left where they are


def test_damage_before_the_pack(workflow: Workflow) -> None:
    """Snakemake is killed after a job's end; then a byte flips; a run that has nothing to do packs, but not this."""
    with workflow.edited(STUDY, "beta: 1.0", "beta: 0.5"):
        with workflow.edited("Snakefile", "onsuccess:\n    ledger.pack()", "onsuccess:\n    pass"):
            assert workflow.snakemake("toy_runs") == {"train": 1}
        before = workflow.path(BOOK).read_bytes()
        flip_a_byte(workflow.path(MODEL))
        assert workflow.snakemake("toy_runs") == {}
        assert workflow.path(BOOK).read_bytes() != before
        assert f"{MODEL}: changed" in workflow.audit()


def test_job_records_lost_while_the_stamp_is_there(workflow: Workflow) -> None:
    shutil.rmtree(workflow.path(".snakemake/metadata"))
    with workflow.edited(STUDY, "beta: 1.0", "beta: 0.5"):
        assert workflow.stale() == AFTER_RUN
    assert workflow.stale() == {}


def test_lost_ledger_and_a_damaged_model(workflow: Workflow) -> None:
    lock = workflow.path("dvc.lock").read_bytes()
    workflow.path(BOOK).unlink()
    flip_a_byte(workflow.path(MODEL))
    assert workflow.status(*LEDGER, "check") == 1
    assert f"AUDIT: {BOOK}: missing" in workflow(*RECORD, check=False)
    assert workflow.path("dvc.lock").read_bytes() == lock
    workflow("dvc", "checkout", "-f", "-q")
    assert workflow.audit() == []
    assert workflow.stale() == {}
    assert workflow.status(*RECORD) == 0


def test_clone_without_its_data_is_a_finding(workflow: Workflow, tmp_path: Path) -> None:
    workflow("git", "clone", "-q", str(workflow.folder), str(tmp_path / "bare"))
    clone = Workflow(tmp_path / "bare")
    assert clone.status(*LEDGER, "check") == 1
    assert clone.audit() == [
        f"{BOOK}: missing, so nothing says what 2 files should be; `dvc pull` or `dvc checkout` brings a recorded one"
    ]


def test_an_edit_alone_does_not_fail_the_audit(workflow: Workflow) -> None:
    """`make audit` is these two commands."""
    with workflow.edited("fednoise_core/methods/fedcorr.py", "    def init(self", "    # a comment\n    def init(self"):
        assert workflow.status(*LEDGER, "check") == 0
        told = workflow(*RECORD, "--check")
        assert "the results are those in dvc.lock; edited since: fednoise_core" in told
        workflow.path("results/toy/tables/main.csv").unlink()
        assert workflow.status(*RECORD, "--check") == 1
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    commands = makefile.split("\naudit: setup\n")[1].split("\n\n")[0].split("\n")
    assert commands == ["\tpython -m workflow_scripts.ledger check", "\tpython -m workflow_scripts.record --check"]


def test_method_taken_out_and_removed_by_hand(workflow: Workflow) -> None:
    with workflow.edited(STUDY, *METHODS):
        shutil.rmtree(workflow.path("results/toy/runs/digits/sym40/open/fedcorr"))
        workflow.snakemake()
        assert "`make prune` lists what no config names any more" in workflow(*RECORD, check=False)
        assert workflow(*PRUNE).splitlines()[0] == "results/toy/runs/digits/sym40/open/fedcorr"
        workflow(*PRUNE, "--yes")
        assert workflow.audit() == []
        assert workflow.status(*RECORD) == 0
        assert "every result is named by a config" in workflow(*PRUNE)


def test_data_set_taken_out_and_removed_by_hand(workflow: Workflow) -> None:
    arrays = "data/raw/extra.npz"
    with workflow.edited("config/datasets.yaml", "digits:", "extra: {source: digits, test: 300}\ndigits:"):
        assert workflow.snakemake(arrays) == {"download": 1}
        workflow.path(arrays).unlink()
        assert "every result is named by a config" in workflow(*PRUNE)  # Snakemake can make it again
    assert workflow.audit() == [f"{arrays}: missing"]
    assert workflow(*PRUNE, "--yes").splitlines()[0] == arrays
    assert workflow.audit() == []


def test_a_damaged_artifact_costs_only_itself(workflow: Workflow) -> None:
    """It comes out as before, so no run is stale, in one command."""
    whole = workflow.path(LABELS).read_bytes()
    flip_a_byte(workflow.path(LABELS))
    trained, made = workflow.finished("train"), workflow.finished("noise")
    workflow(*LEDGER, "mend", "--cores", "2")
    assert workflow.path(LABELS).read_bytes() == whole
    assert (workflow.finished("train"), workflow.finished("noise")) == (trained, made + 1)
    assert workflow.audit() == []
    assert workflow.stale() == {}


def test_big_data_sets(workflow: Workflow) -> None:
    """Images beside the artifact belong to its job: clean, noticed if damaged, made again. Digits stand in for them."""
    with workflow.edited("fednoise_core/data/arrays.py", "SIDE_BYTES = 1 << 30", "SIDE_BYTES = 1 << 10"):
        assert workflow.snakemake("data/raw/digits.npz") == {"download": 1}
        side = "data/raw/digits.x_train.npy"
        whole = workflow.path(side).read_bytes()
        assert [one for one in workflow.audit() if one.startswith("data/")] == []
        flip_a_byte(workflow.path(side))
        assert f"{side}: changed" in workflow.audit()
        workflow(*LEDGER, "check", "--discard", "data")
        assert not workflow.path("data/raw/digits.npz").exists()
        assert workflow.snakemake("data/raw/digits.npz") == {"download": 1}
        assert workflow.path(side).read_bytes() == whole
        assert [one for one in workflow.audit() if one.startswith("data/")] == []


def test_own_data_only_and_no_tables(tmp_path: Path, elsewhere: Callable[[Workflow], Workflow]) -> None:
    """Nothing in data/raw, no tables, no figures: recorded, pushed and pulled all the same."""
    lay_out(tmp_path / "own")
    study = Workflow(tmp_path / "own")
    digits = load_digits()
    x, y = np.rint(digits.images * 15).astype(np.uint8), digits.target
    np.savez(study.path("mine.npz"), x_train=x[:600], y_train=y[:600], x_test=x[600:800], y_test=y[600:800])
    lines = TOY[: TOY.index("tables:")].replace("[digits]", "[own]").splitlines(keepends=True)
    study.path(STUDY).write_text("".join(line for line in lines if "sym40" not in line))
    with study.path("config/datasets.yaml").open("a") as file:
        file.write("own: {source: npz, path: mine.npz}\n")
    study("git", "init", "-q", "-b", "main")
    study("snakemake", "--cores", "2", "--config", "device=cpu")
    study(*RECORD)
    study("git", "add", "-A")
    study("git", "commit", "-q", "-m", "own")
    assert study.status(*RECORD, "--check") == 0
    clone = elsewhere(study)
    assert clone.audit() == []
    assert clone.stale() == {}
    assert clone.status("dvc", "status", "-q") == 0


def test_first_stage_makes_all_of_data(workflow: Workflow) -> None:
    """Else a later stage changes data/ledger.jsonl, which DVC has recorded by then."""
    with workflow.edited(STUDY, "net: mlp", "net: {name: resnet50, weights: data/weights/resnet50.safetensors}"):
        assert workflow.stale("stage_data") == {"pretrained": 1}


def test_repro_audits_every_run_once(workflow: Workflow) -> None:
    with workflow.edited(STUDY, "beta: 1.0", "beta: 0.5"):
        output = workflow("dvc", "repro")
        counts = [int(line.split()[1]) for line in output.splitlines() if line.startswith("audit: ")]
        assert len(counts) == 3
        total = workflow.path(BOOK).read_text().count('"]') and sum(counts)
        assert total < 2 * max(counts)
        assert workflow.audit() == []


def test_two_branches_that_each_ran_something(
    workflow: Workflow, elsewhere: Callable[[Workflow], Workflow]
) -> None:
    """As docs/keeping.md says: merge, keep our lock, take over their runs, let Snakemake make what shows both."""
    other = elsewhere(workflow)
    grid = "noises: [random20], partitions: [even], methods: [fedavg]"
    for one, old, new in ((other, grid, f"{grid}, seeds: [0, 3]"), (workflow, "beta: 1.0", "beta: 0.5")):
        path = one.path(STUDY)
        path.write_text(path.read_text().replace(old, new))
        one("snakemake", "--cores", "2")
        one(*RECORD)
        one("git", "add", "-A")
        one("git", "commit", "-q", "-m", "ran")
    assert "dvc.lock" in workflow("git", "pull", "-q", "--no-rebase", str(other.folder), "main", check=False)
    workflow("git", "checkout", "--ours", "dvc.lock", "results")
    workflow("git", "add", "dvc.lock", "results")
    workflow("git", "commit", "-q", "-m", "merged")
    trained = workflow.finished("train")
    flip_a_byte(other.path(METRICS))  # a run that both have: ours stays
    theirs = RUN.format("random20/even/fedavg", "model.safetensors").replace("seed0", "seed3")
    told = workflow(*LEDGER, "take", str(other.folder))
    assert "0 left" in told
    assert workflow.path(theirs).read_bytes() == other.path(theirs).read_bytes()
    made = workflow.snakemake()
    assert "train" not in made
    assert workflow.finished("train") == trained
    assert workflow.audit() == []
    assert workflow.stale() == {}
    assert workflow.status(*RECORD) == 0


def test_damaged_results_are_not_taken_over(workflow: Workflow, tmp_path: Path) -> None:
    shutil.copytree(workflow.folder, tmp_path / "other", symlinks=True)
    with workflow.edited(STUDY, *METHODS):
        workflow(*PRUNE, "--yes")
    flip_a_byte(tmp_path / "other" / METRICS)
    told = workflow(*LEDGER, "take", str(tmp_path / "other"))
    assert "9 left" in told
    assert not workflow.path(METRICS).exists()
    assert "nothing to take over" in workflow(*LEDGER, "take", str(tmp_path / "nowhere"), check=False)

"""A changed noise setting reruns what depends on it only; data_root, the user's data and weights reach their jobs."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from toy_workflow import Workflow

pytestmark = pytest.mark.workflow

TOY = "config/studies/toy.yaml"
CATALOGUE = "config/catalogue.yaml"
SYM40 = "sym40: {kind: symmetric, rate: 0.4}"
CLIENTS = "mine: {kind: fednoro, rho: 0.5, lower: 0.3, upper: 0.6}"
EVEN = "even: {kind: iid, clients: 4}"
PAGE = "build/settings/toy/digits/{}/{}/seed5.html"


def test_noise_of_clients_follows_their_partition(workflow: Workflow) -> None:
    """Pages of settings outside the grid: one command makes each without training, and remakes what it must."""
    page = PAGE.format("mine", "even")
    with workflow.edited(CATALOGUE, SYM40, f"{SYM40}\n  {CLIENTS}"):
        assert workflow.snakemake(page) == {"noise": 1, "partition": 1, "setting_page": 1}
        assert "fednoro" in workflow.path(page).read_text(encoding="utf-8")
        with workflow.edited(CATALOGUE, "rho: 0.5", "rho: 0.25"):
            assert workflow.stale(page) == {"noise": 1, "setting_page": 1}
        with workflow.edited(TOY, EVEN, EVEN.replace("4", "5")):
            assert workflow.stale(page) == {"noise": 1, "partition": 1, "setting_page": 1}
    message = workflow("snakemake", "-n", PAGE.format("sym40", "evn"), check=False)
    assert "unknown partition 'evn'; did you mean 'even'?" in message


def test_data_root_and_the_user_s_own_data(workflow: Workflow, tmp_path: Path) -> None:
    """A user's npz below data_root, without clean labels: the jobs find it, train, and name suspects."""
    digits = load_digits()
    x, y = np.rint(digits.images * 15).astype(np.uint8), digits.target
    (tmp_path / "mine").mkdir()
    test = {"x_test": x[600:800], "y_test": y[600:800]}
    np.savez(tmp_path / "mine/digits.npz", x_train=x[:600], y_train=y[:600], **test)
    root = ("--config", f"data_root={tmp_path / 'mine'}", "device=cpu")
    first = "- {datasets: [digits], noises: [sym40]"
    grid = f"- {{datasets: [own], noises: [asis], partitions: [even], methods: [fedcorr]}}\n  {first}"
    datasets = workflow.path("config/datasets.yaml")
    datasets.write_text(datasets.read_text() + "own: {source: npz, path: digits.npz, clean_known: false}\n")
    with (
        workflow.edited(CATALOGUE, SYM40, f"{SYM40}\n  asis: {{kind: given}}"),
        workflow.edited(TOY, first, grid),
    ):
        missing = workflow("snakemake", "-n", check=False)
        assert "own: dataset npz: path: digits.npz does not exist" in missing
        jobs = workflow.snakemake("toy_runs", *root)
        assert jobs == {"download": 1, "noise": 1, "partition": 1, "train": 1}
        (run,) = (path.as_posix() for path in workflow.path("store/runs").glob("npz/*/*/*/*/*"))
        summary = json.loads(workflow.path(f"{run}/summary.json").read_text(encoding="utf-8"))
        assert summary["clean_known"] is False
        assert summary["diagnostics"]["noise_rate"] is None
        with open(workflow.path(f"{run}/suspects.csv"), encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == 600
        np.savez(tmp_path / "mine/digits.npz", x_train=x[:600], y_train=y[:600][::-1], **test)
        changed = workflow.stale("toy_runs", *root)  # other content: all that follows from it
        assert changed == {"download": 1, "noise": 1, "partition": 1, "train": 1}


def test_weights_are_made_before_a_run_that_starts_from_them(workflow: Workflow) -> None:
    net = "net: {name: resnet50, weights: imagenet}"
    with workflow.edited(TOY, "net: mlp", net):
        jobs = workflow.stale("toy_runs")
        assert (jobs["pretrained"], jobs["train"]) == (1, 4)
    with workflow.edited(TOY, "net: mlp", net.replace("weights:", "wieghts:")):
        message = workflow("snakemake", "-n", "toy_runs", check=False)
        assert "config/studies/toy.yaml: train.net.wieghts: unknown key; did you mean 'weights'?" in message

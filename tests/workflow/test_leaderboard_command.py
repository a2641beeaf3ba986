"""A small leaderboard from its tuning to a method of one's own that is entered on another machine."""

import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from toy_workflow import Workflow, lay_out

FEDNOISE = ("python", "-m", "workflow_scripts.commands.main")
TRAIN = "{net: mlp, rounds: 4, fraction: 1.0, epochs: 2, batch: 16, eval_every: 1}"
TUNING = f"""\
title: Tuning
partitions:
  held-out: {{kind: iid, clients: 4, validation: 0.2}}
methods:
  fedavg: {{name: fedavg, label: FedAvg, sweep: {{train.lr: [0.0001, 0.1]}}}}
  fedprox: {{name: fedprox, label: FedProx, sweep: {{train.lr: [0.0001, 0.1], mu: [0.01, 100.0]}}}}
train: {TRAIN}
seeds: [90]
grid:
  - {{datasets: [digits], noises: [sym40], partitions: [held-out], methods: [fedavg, fedprox]}}
"""
BOARD = f"""\
title: Board
tuned: leaderboard
partitions:
  iid: {{kind: iid, clients: 4}}
train: {TRAIN}
seeds: [0, 1]
grid:
  - {{datasets: [digits], noises: [sym40], partitions: [iid], methods: [fedavg, fedprox, sce]}}
  - {{datasets: [digits], noises: [sym20], partitions: [iid], methods: [fedavg, fedprox, sce]}}
  - {{datasets: [digits], noises: [clean], partitions: [iid], methods: [fedavg]}}
tables:
  main: {{kind: leaderboard}}
  gains: {{kind: leaderboard, show: settings}}
figures:
  ranks: {{kind: ranks}}
"""
MINE = '''\
"""A method that somebody wrote."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Weak(FedAvg):
    """FedAvg with a gradient that is made smaller."""

    share: Annotated[float, Field(gt=0, description="What is left of it.")] = 0.5

    def correct_gradient(self, grad: Tensor, w, broadcast, client_state) -> None:
        """Make the gradient smaller."""
        grad.mul_(self.share)


Tuning = Weak
'''


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose board was tuned, run and published, and whose store was lost."""
    folder = tmp_path_factory.mktemp("board")
    lay_out(folder)
    for name, text in (("leaderboard-tuning", TUNING), ("leaderboard", BOARD)):
        (folder / f"config/studies/{name}.yaml").write_text(text)
    (folder / "config/tuned/leaderboard.yaml").write_text("{}\n")
    (folder / "mine.py").write_text(MINE)
    board = Workflow(folder)
    output = board("snakemake", "--cores", "2", "leaderboard-tuning_runs", check=False)
    assert output.count("the training diverges") == 1  # with the larger mu at the larger rate
    assert board.finished("train") == 5
    board(*FEDNOISE, "leaderboard", "--choose")
    board.snakemake("leaderboard_runs")
    board(*FEDNOISE, "publish", "--root", "results/leaderboard")
    return folder


@pytest.fixture
def board(published: Path, tmp_path: Path) -> Workflow:
    folder = tmp_path / "board"
    shutil.copytree(published, folder, symlinks=True)
    return Workflow(folder)


def read_choice(board: Workflow) -> dict:
    return yaml.safe_load(board.path("config/tuned/leaderboard.yaml").read_text())


def test_tuning_chooses_what_agrees_with_held_out_labels(board: Workflow) -> None:
    chosen = read_choice(board)["digits"]
    assert chosen == {"fedavg": {"train": {"lr": 0.1}}, "fedprox": {"train": {"lr": 0.1}, "mu": 0.01}}
    board.path("config/tuned/leaderboard.yaml").write_text("digits: {sce: {alpha: 0.5}, fedavg: {train: {lr: 9}}}\n")
    board(*FEDNOISE, "leaderboard", "--choose")
    assert read_choice(board)["digits"] == {**chosen, "sce": {"alpha": 0.5}}  # earlier choices stay


def test_without_clean_labels_tuning_chooses_the_same(board: Workflow) -> None:
    """The data set has the noisy labels alone, its clean labels are unknown, and its test labels are others."""
    (labels,) = board.path("store/labels/digits").rglob("seed90/*/labels.npz")
    (arrays,) = board.path("store/arrays/digits").rglob("arrays.npz")
    with np.load(arrays, allow_pickle=False) as data, np.load(labels, allow_pickle=False) as noise:
        parts = {"x_train": data["x_train"], "y_train": noise["noisy"], "x_test": data["x_test"]}
        np.savez(board.path("blind.npz"), **parts, y_test=(data["y_test"] + 1) % 10)
        scale = {key: json.loads(str(data["spec"]))[key] for key in ("mean", "std")}
    with board.path("config/datasets.yaml").open("a") as file:
        file.write(yaml.safe_dump({"blind": {"source": "npz", "path": "blind.npz", "clean_known": False, **scale}}))
    study = board.path("config/studies/leaderboard-tuning.yaml")
    blind = TUNING.replace("[digits]", "[blind]").replace("[sym40]", "[given]")
    study.write_text(blind)
    board.path("config/tuned/leaderboard.yaml").unlink()
    before = read_scores(board, "digits")
    board("snakemake", "--cores", "2", "leaderboard-tuning_runs", check=False)
    board(*FEDNOISE, "leaderboard", "--choose")
    assert read_choice(board)["blind"] == {
        "fedavg": {"train": {"lr": 0.1}},
        "fedprox": {"train": {"lr": 0.1}, "mu": 0.01},
    }
    assert read_scores(board, "npz") == before


def read_scores(board: Workflow, dataset: str) -> list[float]:
    """The accuracies by which the variants of the tuning were chosen."""
    files = board.path("store/runs").rglob("seed90/*/summary.json")
    summaries = [json.loads(file.read_text()) for file in files if f"runs/{dataset}/" in file.as_posix()]
    return sorted(summary["valid_accuracy"] for summary in summaries)


def test_a_method_is_entered_where_only_the_published_runs_are(board: Workflow) -> None:
    first = board.path("docs/results/leaderboard/runs.json.xz").read_bytes()
    shutil.rmtree(board.path("store"))
    done, studies = board.finished("train"), set(board.path("config/studies").iterdir())
    for arguments, problem in (
        (["mine:Waek"], "has no attribute 'Waek'"),
        (["mine:Weak", "shar=1"], "unknown key; did you"),
        (["mine:Tuning"], "leaderboard-tuning.yaml: would be overwritten"),
    ):
        assert problem in board(*FEDNOISE, "leaderboard", *arguments, check=False)
    assert set(board.path("config/studies").iterdir()) == studies
    output = board(*FEDNOISE, "leaderboard", "mine:Weak", "share=0.25", "--cores", "2")
    assert "Weak: mean rank 3.0 of 3 methods" in output
    assert "differ by 0.00 points at most (mean +0.00) in 2 settings" in output
    assert board.finished("train") - done == 2 * 2 + 2  # its own, and FedAvg once a setting
    table = pd.read_csv(board.path("build/leaderboard/weak/main.csv"))
    assert set(table["method"]) == {"my-weak", "fedavg", "fedprox"}  # sce was not tuned
    assert table["rank"].notna().all()
    for name, columns in {"main.csv": ["mean_gain"], "gains.csv": ["noise", "gain", "gain_low", "gain_high"]}.items():
        again, published = (
            pd.read_csv(board.path(folder) / name).set_index("method").loc[["fedprox"], columns]
            for folder in ("build/leaderboard/weak", "docs/results/leaderboard")
        )
        pd.testing.assert_frame_equal(again, published)
    assert r"\begin{tabular}" in board.path("build/leaderboard/weak/main.tex").read_text()
    page = board.path("build/leaderboard/weak/report.html").read_text()
    assert '<p class="lead">Weak: mean rank ' in page
    assert '<tr class="own">\n<th scope="row">Weak</th>' in page
    assert "<code>sce</code>" not in page  # which has no published run
    assert "<dt>digits · my-weak</dt><dd>share: 0.25</dd>\n<dt>digits · fedavg</dt><dd>train: {&#34;lr&#34;" in page
    text = board.path("build/leaderboard/weak/README.md").read_text()
    assert "Weak was not tuned as the other methods were. It ran with share=0.25." in text
    assert "\n\nFedAvg on this machine and the published runs differ by 0.00 points" in text
    assert "\n\nThe runs of the other methods are the published ones" in text
    assert "Run so far" not in text  # all runs of an entry are made
    assert board.path("docs/results/leaderboard/runs.json.xz").read_bytes() == first
    done = board.finished("train")
    board.path("build/leaderboard/weak/main-other.csv").touch()  # from an entry with other settings
    board.path("build/leaderboard/weak/notes.txt").touch()
    board(*FEDNOISE, "leaderboard", "mine:Weak", "share=0.25", "--cores", "2", "--settings", "sym20")
    assert not board.path("build/leaderboard/weak/main-other.csv").exists()
    assert board.path("build/leaderboard/weak/notes.txt").exists()
    assert board.finished("train") == done  # all was finished
    assert set(pd.read_csv(board.path("build/leaderboard/weak/gains.csv"))["noise"]) == {"sym20"}


def read_runs(board: Workflow) -> dict:
    return json.loads(lzma.decompress(board.path("docs/results/leaderboard/runs.json.xz").read_bytes()))


def test_publishing_on_another_machine_adds_to_the_published_runs(board: Workflow) -> None:
    before, earlier = pd.read_csv(board.path("docs/results/leaderboard/gains.csv")), read_runs(board)
    shutil.rmtree(board.path("store"))
    board.path("config/tuned/leaderboard.yaml").write_text(
        yaml.safe_dump({"digits": {**read_choice(board)["digits"], "sce": {"train": {"lr": 0.1}}}})
    )
    with board.path("config/studies/leaderboard.yaml").open("a") as file:
        file.write("subsets: {sce: [{methods: [sce]}, {methods: [fedavg], noises: [sym40], seeds: [0]}]}\n")
    assert board.snakemake("leaderboard_runs", "--config", "subset=sce")["train"] == 5
    board(*FEDNOISE, "publish", "--root", "results/leaderboard")
    after = pd.read_csv(board.path("docs/results/leaderboard/gains.csv"))
    assert set(after["method"]) == {*before["method"], "sce"}
    packed = read_runs(board)
    scaled = {address for address, run in packed.items() if "cpu_ratio" in json.loads(run["cost.json"])}
    assert scaled == {address for address in {*packed} - {*earlier} if "/symmetric-0.4/" in address}
    fedavg = before[before["method"] == "fedavg"]["accuracy"]
    assert list(after[after["method"] == "fedavg"]["accuracy"]) == list(fedavg)


def test_a_method_of_ones_own_is_tuned_and_runs_at_test_size(board: Workflow) -> None:
    options = ("--tune", "--scale", "smoke", "--settings", "sym20", "--cores", "2")
    output = board(*FEDNOISE, "leaderboard", "mine:Weak", "share=0.0001,1", "label=Weaker: 0.10", *options)
    chosen = (
        "Weaker: 0.10 was tuned as the other methods were. On digits it ran with train.lr=0.1, share=1, whose agreement"
    )
    assert chosen in output
    text = board.path("build/leaderboard/weak-smoke/README.md").read_text()
    assert chosen in text
    assert "The runs of the other methods" not in text  # none is published at this size
    assert "Training at this scale is too short to judge a method." in text
    assert "No run of FedAvg with these settings is published" in output
    assert "Weaker: 0.10: mean rank 1.5 of 2 methods" in output
    assert board.path("build/leaderboard/weak-smoke/report.html").exists()
    assert not board.path("build/leaderboard/weak").exists()

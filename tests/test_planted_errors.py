"""A user's npz in which nobody knows the truth: every diagnostic says so, and suspects.csv finds the planted errors.

The truth stays in this file; the program sees the images and the labels with errors.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fednoise_core as fn
from workflow_scripts import describe, download, inject_noise, make_table, train
from workflow_scripts import partition as split

SHARE = 0.2  # of the labels are wrong: the precision of a guess
MARGIN = 0.3  # what every method must do better than a guess
METHODS: dict[str, dict[str, Any]] = {
    "fedcorr": {"name": "fedcorr"},
    "coteaching": {"name": "coteaching", "forget_rate": 0.2},
    "feddpcont": {"name": "feddpcont"},
}
TRAIN = {"net": "mlp", "rounds": 16, "fraction": 1.0, "epochs": 2, "batch": 32, "lr": 0.1}
NOISE, PARTITION = {"kind": "given"}, {"kind": "dirichlet", "clients": 5, "alpha": 1.0}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """(the user's npz, mask bool [n] of the planted errors): digits, a fifth of the labels moved to another class."""
    digits = fn.dataset({"source": "digits", "public": 0})
    draw = np.random.default_rng(0)
    wrong = np.zeros(digits.n, bool)
    wrong[draw.choice(digits.n, round(SHARE * digits.n), replace=False)] = True
    labels = (digits.y_train + wrong * draw.integers(1, 10, digits.n)) % 10
    path = tmp_path_factory.mktemp("user") / "mine.npz"
    np.savez(path, x_train=digits.x_train, y_train=labels, x_test=digits.x_test, y_test=digits.y_test)
    return path, wrong


@pytest.fixture(scope="module")
def made(mine: tuple[Path, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The artifacts, made by the commands that the workflow runs."""
    folder = tmp_path_factory.mktemp("artifacts")
    files = {name: folder / f"{name}.npz" for name in ("arrays", "labels", "partition")}
    spec = {"source": "npz", "path": str(mine[0]), "clean_known": False}
    assert download.main(["--spec", json.dumps(spec), "--out", str(files["arrays"])]) == 0
    common = ["--seed", "0", "--arrays", str(files["arrays"])]
    assert inject_noise.main(["--spec", json.dumps(NOISE), *common, "--out", str(files["labels"])]) == 0
    assert split.main(["--spec", json.dumps(PARTITION), *common, "--out", str(files["partition"])]) == 0
    return files


@pytest.fixture(scope="module")
def runs(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Method → folder of its run, made by the train command."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for name, method in METHODS.items():
        spec = {"noise": NOISE, "partition": PARTITION, "method": method, "train": TRAIN, "seed": 0}
        command = ["--spec", json.dumps(spec)]
        command += ["--out", str(folder / name), "--work", str(folder / "w")]
        command += [text for key, file in made.items() for text in (f"--{key}", str(file))]
        assert train.main([*command, "--device", "cpu"]) == 0
        found[name] = folder / name
    return found


def found_among(samples: list[int], wrong: np.ndarray) -> float:
    """Precision of the most suspect samples, as many as there are errors."""
    return float(wrong[samples[: int(wrong.sum())]].mean())


@pytest.mark.parametrize("method", list(METHODS))
def test_suspects_find_the_planted_errors(
    method: str, mine: tuple[Path, np.ndarray], made: dict[str, Path], runs: dict[str, Path]
) -> None:
    _, wrong = mine
    with open(runs[method] / "suspects.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    samples = [int(row["sample"]) for row in rows]
    assert sorted(samples) == list(range(len(wrong)))  # every sample of the partition is judged
    given = np.load(mine[0])["y_train"]
    assert all(int(row["given"]) == given[int(row["sample"])] for row in rows)
    assert all(0 <= float(row["p_wrong"]) <= 1 and 0 <= int(row["proposed"]) < 10 for row in rows)
    assert found_among(samples, wrong) >= SHARE + MARGIN
    named = [int(row["sample"]) for row in rows if float(row["p_wrong"]) > 0.5]
    assert len(named) > 20
    assert wrong[named].mean() >= SHARE + MARGIN
    truth = fn.dataset({"source": "digits", "public": 0}).y_train
    hits = [row for row in rows[: int(wrong.sum())] if wrong[int(row["sample"])]]
    right = np.mean([int(row["proposed"]) == truth[int(row["sample"])] for row in hits])
    assert right >= 0.1 + MARGIN  # the proposed label: one of ten by chance


@pytest.mark.parametrize("method", list(METHODS))
def test_what_nobody_knows_reads_unknown(method: str, runs: dict[str, Path]) -> None:
    import pandas as pd

    summary = json.loads((runs[method] / "summary.json").read_text(encoding="utf-8"))
    assert summary["clean_known"] is False
    known = {"prior_error"}  # how well the released histogram of given labels was estimated needs no clean labels
    told = {key: value for key, value in summary["diagnostics"].items() if key not in known}
    assert set(told) >= {"noise_rate", "suspects_precision", "suspects_recall"}
    assert set(told.values()) == {None}
    assert summary["accuracy"]["last"] > 0.6  # the test labels are known
    frame = pd.read_parquet(runs[method] / "diagnostics.parquet")
    assert frame[~frame.metric.isin(known)].value.isna().all()


def test_the_python_interface_finds_the_same(mine: tuple[Path, np.ndarray], runs: dict[str, Path]) -> None:
    path, wrong = mine
    data = fn.dataset({"source": "npz", "path": str(path), "clean_known": False})
    labels = fn.inject(data, NOISE, seed=0)
    clients = fn.partition_of(data, PARTITION, seed=0)
    assert labels.clean is None
    assert np.isnan(labels.rate)
    assert clients.spec["labels"] == "given"  # what the partition was drawn over
    run = fn.run(data, labels, clients, METHODS["fedcorr"], TRAIN, seed=0)
    ranked = sorted(run.suspects, key=lambda row: (-row[2], row[0], row[1]))
    with open(runs["fedcorr"] / "suspects.csv", encoding="utf-8") as file:
        assert [row[0] for row in ranked][:50] == [int(row["sample"]) for row in csv.DictReader(file)][:50]
    assert found_among([row[0] for row in ranked], wrong) >= SHARE + MARGIN


def test_noise_cannot_be_added_to_labels_that_may_be_wrong(made: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    command = ["--seed", "0", "--arrays", str(made["arrays"]), "--out", str(tmp_path / "labels.npz")]
    assert inject_noise.main(["--spec", json.dumps({"kind": "symmetric", "rate": 0.2}), *command]) != 0
    assert "the clean labels of this data set are unknown; use kind: given" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_tables_and_pages_say_unknown(
    runs: dict[str, Path], made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    command = [text for key, file in made.items() for text in (f"--{key}", str(file))]
    assert describe.main([*command, "--ids", "mine/given/skewed", "--out", str(page)]) == 0, capsys.readouterr().err
    text = page.read_text(encoding="utf-8")
    assert "unknown: nobody knows the clean labels of this data" in text
    assert "given labels" in text.split("partition drawn over")[1][:100]
    files = {f"{key}_file" if key == "partition" else key: str(file) for key, file in made.items()}
    ids = {"dataset": "mine", "noise": "given", "partition": "skewed", "seed": 0}
    listed = [{**ids, **files, "method": method, "dir": str(folder)} for method, folder in runs.items()]
    (tmp_path / "runs.json").write_text(json.dumps(listed))
    for kind in ("diagnostics", "accuracy"):
        command = ["--spec", json.dumps({"kind": kind}), "--out-prefix", str(tmp_path / kind)]
        command += ["--root", str(tmp_path), "--runs-list", str(tmp_path / "runs.json")]
        assert make_table.main(command) == 0, capsys.readouterr().err
    assert "unknown" in (tmp_path / "diagnostics.md").read_text(encoding="utf-8")

"""A user's npz with unknown clean labels: every diagnostic says so, and suspects.csv finds the planted errors.

The truth stays in this file; the program sees the images and the labels with errors.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fednoise_core as fn
from fednoise_core.io import SpecError
from workflow_scripts.steps import setting_page, table, train

SHARE = 0.2  # of the labels are wrong: the precision of a guess
MARGIN = 0.3  # every method must beat a guess by this much
METHODS: dict[str, dict[str, Any]] = {
    "fedcorr": {"name": "fedcorr"},
    "coteaching": {"name": "coteaching", "forget_rate": 0.2},
    "feddpcont": {"name": "feddpcont"},
}
TRAIN = {"net": "mlp", "rounds": 16, "fraction": 1.0, "epochs": 2, "batch": 32, "lr": 0.1}
NOISE, PARTITION = {"kind": "given"}, {"kind": "dirichlet", "clients": 5, "alpha": 1.0}


Planted = tuple[fn.Arrays, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """(the user's data, true labels, mask bool [n] of the planted errors): a fifth moved to another class."""
    digits = fn.dataset({"source": "digits", "public": 0})
    draw = np.random.default_rng(0)
    wrong = np.zeros(digits.n, bool)
    wrong[draw.choice(digits.n, round(SHARE * digits.n), replace=False)] = True
    labels = (digits.y_train + wrong * draw.integers(1, 10, digits.n)) % 10
    path = tmp_path_factory.mktemp("user") / "mine.npz"
    np.savez(path, x_train=digits.x_train, y_train=labels, x_test=digits.x_test, y_test=digits.y_test)
    return fn.dataset({"source": "npz", "path": str(path), "clean_known": False}), digits.y_train, wrong


@pytest.fixture(scope="module")
def artifacts(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of the arrays, labels and partition, by these names."""
    folder = tmp_path_factory.mktemp("artifacts")
    files = {name: folder / f"{name}.npz" for name in ("arrays", "labels", "partition")}
    planted[0].save(files["arrays"])
    fn.inject(planted[0], NOISE, seed=0).save(files["labels"])
    fn.partition_of(planted[0], PARTITION, seed=0).save(files["partition"])
    return files


@pytest.fixture(scope="module")
def runs(artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Method → folder of its run, made by the train command."""
    folder, folders = tmp_path_factory.mktemp("runs"), {}
    for name, method in METHODS.items():
        spec = {"noise": NOISE, "partition": PARTITION, "method": method, "train": TRAIN, "seed": 0}
        command = ["--spec", json.dumps(spec), "--out", str(folder / name), "--work", str(folder / "w")]
        command += [text for key, file in artifacts.items() for text in (f"--{key}", str(file))]
        assert train.main([*command, "--device", "cpu"]) == 0
        folders[name] = folder / name
    return folders


@pytest.mark.parametrize("method", list(METHODS))
def test_suspects_find_the_planted_errors(method: str, planted: Planted, runs: dict[str, Path]) -> None:
    data, truth, wrong = planted
    rows = pd.read_csv(runs[method] / "suspects.csv")
    assert sorted(rows["sample"]) == list(range(len(wrong)))  # every sample of the partition is judged
    assert (rows["given"] == data.y_train[rows["sample"]]).all()
    assert rows["p_wrong"].between(0, 1).all()
    first = rows[: int(wrong.sum())]  # as many as there are errors
    hits = first[wrong[first["sample"]]]
    assert len(hits) / len(first) >= SHARE + MARGIN
    named = rows[rows["p_wrong"] > 0.5]
    assert len(named) > 20
    assert wrong[named["sample"]].mean() >= SHARE + MARGIN
    assert (hits["proposed"] == truth[hits["sample"]]).mean() >= 0.1 + MARGIN  # one of ten by chance


@pytest.mark.parametrize("method", list(METHODS))
def test_diagnostics_without_clean_labels_read_unknown(method: str, runs: dict[str, Path]) -> None:
    summary = json.loads((runs[method] / "summary.json").read_text(encoding="utf-8"))
    assert summary["clean_known"] is False
    known_keys = {"prior_error"}  # how well the released histogram of given labels was estimated needs no clean labels
    unknown = {key: value for key, value in summary["diagnostics"].items() if key not in known_keys}
    assert set(unknown) >= {"noise_rate", "suspects_precision", "suspects_recall"}
    assert set(unknown.values()) == {None}
    assert summary["accuracy"]["last"] > 0.6  # the test labels are known
    frame = pd.read_parquet(runs[method] / "diagnostics.parquet")
    assert frame[~frame.metric.isin(known_keys)].value.isna().all()


def test_noise_cannot_be_added_to_labels_that_may_be_wrong(planted: Planted) -> None:
    with pytest.raises(SpecError, match="the clean labels of this data set are unknown; use kind: given"):
        fn.inject(planted[0], {"kind": "symmetric", "rate": 0.2}, seed=0)
    assert fn.partition_of(planted[0], PARTITION, seed=0).spec["labels"] == "given"  # what it was drawn over


def test_tables_and_pages_say_unknown(
    runs: dict[str, Path], artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    command = [text for key, file in artifacts.items() for text in (f"--{key}", str(file))]
    assert setting_page.main([*command, "--ids", "mine/given/skewed", "--out", str(page)]) == 0, capsys.readouterr().err
    text = page.read_text(encoding="utf-8")
    assert "unknown: nobody knows the clean labels of this data" in text
    assert "given labels" in text.split("partition drawn over")[1][:100]
    files = {f"{key}_file" if key == "partition" else key: str(file) for key, file in artifacts.items()}
    ids = {"dataset": "mine", "noise": "given", "partition": "skewed", "seed": 0}
    listed = [{**ids, **files, "method": method, "dir": str(folder)} for method, folder in runs.items()]
    (tmp_path / "runs.json").write_text(json.dumps(listed))
    for kind in ("diagnostics", "accuracy"):
        command = ["--spec", json.dumps({"kind": kind}), "--out-prefix", str(tmp_path / kind)]
        command += ["--runs-list", str(tmp_path / "runs.json")]
        assert table.main(command) == 0, capsys.readouterr().err
    assert "unknown" in (tmp_path / "diagnostics.md").read_text(encoding="utf-8")

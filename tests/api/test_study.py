"""fn.study: one frame of all runs, with settings in columns and paired gains."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from fake_runs import diverge, write_study
from scipy import stats

import fednoise_core as fn
from fednoise_core.io import ArtifactError, SpecError

GRID = [{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg", "sce", "fedcorr"]}]
KEYS = ("dataset", "noise", "partition", "method", "seed", "label", "dir")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, grid=GRID, seeds=(0, 1, 2), rounds=12)
    path = tmp_path / "results/quick/index.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, KEYS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(
            {"label": row["method"].upper(), **row} for row in json.loads((tmp_path / "runs.json").read_text())
        )
    return path.parent


def test_each_run_is_a_row_with_its_settings(folder: Path) -> None:
    frame = fn.study(folder)
    assert len(frame) == 9
    first = frame.iloc[0]
    assert first["seed"] == 0
    assert first["label"] == "FEDAVG"
    assert first["last10_mean"] == json.loads(Path(first["dir"], "summary.json").read_text())["accuracy"]["last10_mean"]
    assert set(frame["noise.rate"]) == {0.4}
    assert set(frame["train.net"]) == {"small_cnn"}
    assert set(frame["train.lr"]) == {0.05}
    assert "train.momentum" not in frame  # no run names it


def test_a_setting_that_one_run_names_has_the_others_defaults(folder: Path) -> None:
    frame = fn.study(folder)
    path = Path(frame["dir"][0], "spec.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    record["spec"]["train"]["momentum"] = 0.9
    path.write_text(json.dumps(record), encoding="utf-8")
    assert fn.study(folder)["train.momentum"].tolist() == [0.9, *[0.0] * 8]


def test_gains_are_paired_with_an_interval(folder: Path) -> None:
    frame = fn.study(folder)
    compared = frame.compare("fedavg").set_index("method")
    by_seed = frame.pivot(index="seed", columns="method", values="last10_mean")
    for method in ("sce", "fedcorr"):
        test = stats.ttest_rel(by_seed[method], by_seed["fedavg"])
        interval = test.confidence_interval(0.95)
        row = compared.loc[method]
        np.testing.assert_allclose([row["low"], row["high"]], [interval.low, interval.high])
        assert row["gain"] == pytest.approx((by_seed[method] - by_seed["fedavg"]).mean())
        assert (row["pairs"], row["won"]) == (3, (by_seed[method] > by_seed["fedavg"]).sum())
    gains = frame.query("seed == 0").compare("fedavg")  # a selection of rows can be compared, too
    assert gains["pairs"].tolist() == [1, 1]
    assert gains["low"].isna().all()


def test_a_run_that_diverged_leaves_no_gain(folder: Path) -> None:
    frame = fn.study(folder)
    diverge(Path(frame.query("method == 'sce' and seed == 1")["dir"].iloc[0]), 5)
    gains = fn.study(folder).compare("fedavg", "last").set_index("method")["gain"]
    assert np.isnan(gains["sce"])
    assert np.isfinite(gains["fedcorr"])


def test_wrong_comparisons_are_named(folder: Path) -> None:
    frame = fn.study(folder)
    with pytest.raises(SpecError, match=r"^baseline: no run of 'fedavgg'; did you mean 'fedavg'\?$"):
        frame.compare("fedavgg")
    with pytest.raises(SpecError, match=r"^metric: no column 'lats'; did you mean 'last'\?$"):
        frame.compare("fedavg", "lats")
    with pytest.raises(SpecError, match=r"^baseline: no other method"):
        frame.query("method == 'sce'").compare("sce")
    with pytest.raises(ArtifactError, match=r"nowhere.*no such file"):
        fn.study(folder / "nowhere")
    with pytest.raises(TypeError, match=r"^folder: "):
        fn.study(3)  # type: ignore[arg-type]

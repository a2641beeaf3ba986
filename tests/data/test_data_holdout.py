"""A data set without a trusted test set is refused before any work, with the remedy, or a share is held out."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fednoise_core as fn
from fednoise_core.data import sources
from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.report.runs import agreement
from workflow_scripts.report.tables import registry
from workflow_scripts.report.text.cells import Grid


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """97 training images of three classes (40, 39, 18), each known by its first pixel, and five test images."""
    y = np.array([0] * 40 + [1] * 39 + [2] * 18)
    x = np.zeros((97, 8, 8), np.uint8)
    x[:, 0, 0] = np.arange(97)
    return {"x_train": x, "given": y, "client": np.arange(97) % 4, "x_test": x[:5], "y_test": np.array([0, 1, 2, 0, 1])}


def saved(path: Path, arrays: dict[str, np.ndarray], *without: str) -> dict:
    np.savez(path, **{name: value for name, value in arrays.items() if name not in without})
    return {"source": "npz", "path": str(path)}


HELD = {"test": {"holdout": 0.2}}


def test_a_share_of_every_class_is_held_out(arrays, tmp_path) -> None:
    spec = saved(tmp_path / "mine.npz", arrays, "x_test", "y_test")
    data = sources.read({**spec, **HELD})
    assert np.bincount(data.y_test).tolist() == [8, 7, 3]  # rounded down
    assert np.bincount(data.y_train).tolist() == [32, 32, 15]
    assert sources.read_facts({**spec, **HELD})[0] == data.n == 79
    test_images, train_images = data.x_test[:, 0, 0].tolist(), data.x_train[:, 0, 0].tolist()
    assert sorted(test_images + train_images) == list(range(97))
    assert data.origin.tolist() == train_images
    assert data.client.tolist() == [k % 4 for k in train_images]
    assert data.y_test.tolist() == arrays["given"][test_images].tolist()
    assert not data.test_known
    again, reseeded = (sources.read({**spec, **HELD, "split_seed": seed}).x_test[:, 0, 0].tolist() for seed in (0, 1))
    assert again == test_images != reseeded


def test_held_out_labels_of_known_truth_are_trusted(arrays, tmp_path) -> None:
    arrays["y_train"] = np.arange(97) % 10
    spec = {**saved(tmp_path / "mine.npz", arrays, "x_test", "y_test"), **HELD}
    data = sources.read(spec)
    assert sources.read_facts(spec)[0] == data.n
    assert data.clean_known
    assert data.test_known
    assert data.y_test.tolist() == arrays["y_train"][data.x_test[:, 0, 0]].tolist()
    assert data.given["given"].tolist() == arrays["given"][data.origin].tolist()


@pytest.mark.parametrize("function", [sources.read, sources.read_facts])  # making the arrays; planning
def test_no_test_set_is_refused_with_its_cure(arrays, tmp_path, function) -> None:
    for without in (("x_test", "y_test"), ("x_test",), ("y_test",)):
        spec = saved(tmp_path / "mine.npz", arrays, *without)
        missing = "y_test" if without == ("y_test",) else "x_test"
        with pytest.raises(ArtifactError, match=rf"mine\.npz: it has no {missing}; .* test: \{{holdout: 0\.2\}}"):
            function(spec)
    spec = saved(tmp_path / "mine.npz", arrays)
    with pytest.raises(SpecError, match=r"test: .* has x_test and y_test; remove the setting"):
        function({**spec, **HELD})
    with pytest.raises(SpecError, match=r"dataset\.test: expected \{holdout\}"):
        sources.read({**spec, "test": 0.2})
    for share, key in ((0, "test.holdout"), (True, "test.holdout"), (0.01, "holdout: 0.01 of 97 training")):
        with pytest.raises(SpecError, match=re.escape(key)):
            sources.read({**saved(tmp_path / "mine.npz", arrays, "x_test", "y_test"), "test": {"holdout": share}})


def test_folders_without_a_test_folder(tmp_path) -> None:
    for k in range(20):
        path = tmp_path / "photos" / "train" / ("cat", "dog")[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 6), k, np.uint8)).save(path)
    spec = {"source": "imagefolder", "path": str(tmp_path / "photos"), "channels": 1, "clean_known": False}
    for function in (sources.read, sources.read_facts):
        with pytest.raises(SpecError, match=r"no folder test/; .* test: \{holdout: 0\.2\}"):
            function(spec)
    data = sources.read({**spec, **HELD})
    assert (data.n, len(data.y_test), sources.read_facts({**spec, **HELD})[0]) == (16, 4, 16)
    for k in range(data.n):
        assert data.source(k).endswith(f"/{int(data.x_train[k, 0, 0])}.png")
    assert [path.name for path in sources.list_files({**spec, **HELD}, [])] == ["train"]
    (tmp_path / "photos" / "test").mkdir()
    with pytest.raises(SpecError, match="has a folder test/; remove the setting"):
        sources.read({**spec, **HELD})
    shutil.rmtree(tmp_path / "photos" / "test")


def test_results_on_held_out_labels_say_so(arrays, tmp_path) -> None:
    data = sources.read({**saved(tmp_path / "mine.npz", arrays, "x_test", "y_test"), **HELD})
    labels, owners = fn.inject(data, {"kind": "given"}, 0), fn.partition_of(data, {"kind": "natural"}, 0)
    train = {"net": {"name": "mlp", "hidden": 4}, "rounds": 1}
    console = open(tmp_path / "console.txt", "w+")  # noqa: SIM115
    with console:
        run = fn.run(data, labels, owners, "fedavg", train, out=tmp_path / "out", console=console)
        console.seek(0)
        assert "no trusted test set: numbers are agreement with given labels" in console.read()
    assert "agreement with given labels 0." in repr(run)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["test_known"] is False


def frame(test_known: list[int] | None) -> pd.DataFrame:
    row = {
        **{"dataset": "mine", "noise": "given", "partition": "owners", "method": "fedavg"},
        **{"dataset_label": "Mine", "noise_label": "given", "partition_label": "owners", "method_label": "FedAvg"},
        **{"marks": "", "ceiling": 0, "view": "global", "metric": "best", "seeds": 1, "ahead": 0},
        **{f"{name}_mean": 50.0 for name in ("best", "last", "last10_mean", "round0", "gain")},
        **{f"{name}_std": 1.0 for name in ("best", "last", "last10_mean", "round0", "gain")},
    }
    rows = pd.DataFrame([row, {**row, "dataset": "theirs", "dataset_label": "Theirs"}])
    return rows if test_known is None else rows.assign(test_known=test_known)


def grid(test_known: list[int] | None) -> Grid:
    return registry.lay_out_table(frame(test_known), {"kind": "accuracy"})


def test_tables_say_what_their_numbers_are() -> None:
    assert not any("agreement" in note for note in grid(None).notes)
    assert agreement.untrusted_note(["mine"]) in grid([0, 1]).notes
    assert agreement.untrusted_note(["mine", "theirs"]) in grid([0, 0]).notes

"""What the first person who tried this stumbled over, one test each, through what a user sees alone: the Python names,
files, commands and pages. So they also run, and fail, on a version that still has the stumbling block.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fednoise_core as fn

ROOT = Path(__file__).parent.parent
TRAIN = {"net": {"name": "mlp", "hidden": 16}, "rounds": 4, "fraction": 1.0, "epochs": 1, "batch": 16, "lr": 0.05}
GIVEN, NATURAL = {"kind": "given"}, {"kind": "natural"}
CO_TEACHING = {"name": "coteaching", "forget_rate": 0.3}
NAMES = ["cat", "dog", "owl"]


def environment() -> dict[str, str]:
    """Of commands in another folder: they import this copy."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def images(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Bright stripes say the class of 3; every image is unlike all others."""
    y = np.arange(n) % 3
    x = np.random.default_rng(0).integers(0, 90, (n, 8, 8))
    x[np.arange(n), 2 * y + 1] += 150
    return x.astype(np.uint8), y


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def content(**other: Any) -> dict[str, np.ndarray]:
    """120 images, at site 0 an eighth of the labels wrong, at site 1 none."""
    x, y = images(120)
    given = np.where(np.arange(120) % 16 == 0, (y + 1) % 3, y)
    found = {"x_train": x, "y_train": y, "given": given, "client": np.arange(120) % 2, "names": np.array(NAMES)}
    return {**found, "x_test": x[:12], "y_test": y[:12], **other}


def npz(path: Path, without: tuple[str, ...] = (), **other: Any) -> dict[str, Any]:
    """Settings of such a file."""
    np.savez(path, **{name: array for name, array in content(**other).items() if name not in without})
    return {"source": "npz", "path": str(path)}


def photos(root: Path, line: str = "{file},{label},ward {site}", head: str = "file,label,client") -> dict[str, Any]:
    """Settings of a folder of images, classes as folders, and a CSV about them."""
    x, y = images(40)
    lines = [head]
    for k in range(40):
        part = "test" if k < 6 else "train"
        file = Path(NAMES[y[k]], f"{k:02}.png")
        (root / part / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[k]).save(root / part / file)
        if part == "train":
            lines.append(line.format(file=file.as_posix(), label=NAMES[(y[k] + (k % 8 == 0)) % 3], site=k % 2))
    (root / "labels.csv").write_text("\n".join(lines))
    return {"source": "imagefolder", "path": str(root), "channels": 1, "given": "labels.csv"}


def run_on(data: Any, out: Path, method: Any = "fedavg") -> Any:
    labels, split = fn.inject(data, GIVEN, seed=0), fn.partition_of(data, NATURAL, seed=0)
    return fn.run(data, labels, split, method, TRAIN, seed=0, out=out)


# a suspect leads back to the user's own row or file, site and class


@pytest.mark.parametrize("sites", [[3, 5], ["Lund", "Turin"]])
def test_a_suspect_is_a_row_of_the_users_file(tmp_path: Path, sites: list[Any]) -> None:
    owners = np.array(sites)[np.arange(120) % 2]
    spec = npz(tmp_path / "mine.npz", client=owners)
    run_on(fn.dataset({**spec, "public": 15, "subset": {"train": 60}}), tmp_path / "out", CO_TEACHING)
    rows = read(tmp_path / "out/suspects.csv")
    assert len(rows) == 60
    mine = content(client=owners)
    for row in rows:
        at = int(row["source"])
        assert (int(row["given"]), row["given_name"]) == (mine["given"][at], NAMES[mine["given"][at]])
        assert row["site"] == str(owners[at])
        assert row["proposed_name"] == NAMES[int(row["proposed"])]
    assert any(row["sample"] != row["source"] for row in rows)


def test_a_suspect_is_a_file_of_the_users_folder(tmp_path: Path) -> None:
    run_on(fn.dataset(photos(tmp_path / "photos", "{file},{label},{site}")), tmp_path / "out", CO_TEACHING)
    rows = read(tmp_path / "out/suspects.csv")
    found = {row["source"] for row in rows}
    assert found == {file.relative_to(tmp_path / "photos/train").as_posix() for file in tmp_path.rglob("train/*/*")}


# image folders with owners, without truth


def test_a_folder_with_owners_and_unknown_truth(tmp_path: Path) -> None:
    data = fn.dataset({**photos(tmp_path / "photos"), "clean_known": False})
    assert not data.clean_known
    made = run_on(data, tmp_path / "out")
    assert made.summary["diagnostics"]["noise_rate"] is None
    assert {row["site"] for row in read(tmp_path / "out/suspects.csv")} == {"ward 0", "ward 1"}


def test_a_folder_whose_csv_names_owners_alone(tmp_path: Path) -> None:
    spec = photos(tmp_path / "photos", "{file},ward {site}", "file,client")
    data = fn.dataset({**spec, "clean_known": False})
    assert np.bincount(data.client).tolist() == [17, 17]
    labels = [NAMES[label] for label in data.y_train.tolist()]
    assert labels == sorted(labels)  # those of the folders


# the list of suspects is there, and explained


def test_plain_fedavg_leaves_suspects_with_a_verdict(tmp_path: Path) -> None:
    run_on(fn.dataset(npz(tmp_path / "mine.npz")), tmp_path / "out")
    rows = read(tmp_path / "out/suspects.csv")
    assert len(rows) == 120
    for row in rows:
        p = float(row["p_wrong"])
        assert row["verdict"] == ("wrong" if p > 0.5 else "check" if p > 0.2 else "keep")


def test_a_rate_that_was_told_is_not_named_at_every_site(tmp_path: Path) -> None:
    run_on(fn.dataset(npz(tmp_path / "mine.npz")), tmp_path / "out", CO_TEACHING)
    named = [0, 0]
    for row in read(tmp_path / "out/suspects.csv"):
        named[int(row["client"])] += float(row["p_wrong"]) > 0.5
    wrong = [int((np.arange(120) % 16 == 0).sum()), 0]
    assert named[0] > named[1]
    assert abs(named[0] - wrong[0]) <= 3
    assert named[1] <= 2


def test_the_columns_and_the_rule_are_explained() -> None:
    text = (ROOT / "docs/wrong_labels.md").read_text(encoding="utf-8")
    for column in ("sample", "source", "site", "given_name", "proposed_name", "p_wrong", "p_proposed", "verdict"):
        assert f"`{column}`" in text
    assert "above .5" in text


def test_a_person_can_look_at_the_suspects(tmp_path: Path) -> None:
    spec = npz(tmp_path / "mine.npz")
    data = fn.dataset(spec)
    run_on(data, tmp_path / "out")
    data.save(tmp_path / "arrays.npz")
    fn.inject(data, GIVEN, seed=0).save(tmp_path / "labels.npz")
    files = ["--arrays", "arrays.npz", "--labels", "labels.npz", "--run", "out", "--out", "labels.html"]
    command = [sys.executable, "-m", "label_review.make_labels", *files]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "labels.html").read_text(encoding="utf-8")
    assert page.count("suspect") > 3
    assert "data:image" in page or 'id="sheet0"' in page


def test_no_picture_of_flips_where_truth_is_unknown(tmp_path: Path) -> None:
    data = fn.dataset({**npz(tmp_path / "mine.npz", ("y_train",)), "clean_known": False})
    data.save(tmp_path / "a.npz")
    fn.inject(data, GIVEN, seed=0).save(tmp_path / "l.npz")
    fn.partition_of(data, NATURAL, seed=0).save(tmp_path / "p.npz")
    files = ["--arrays", "a.npz", "--labels", "l.npz", "--partition", "p.npz", "--out", "page.html"]
    command = [sys.executable, "-m", "workflow_scripts.describe", *files]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Who holds which class" in page
    assert "How labels were flipped" not in page


# fn.Arrays


def test_arrays_that_would_train_in_silence_are_refused() -> None:
    x, y = images(30)
    facts: dict[str, Any] = {"classes": 3, "mean": (0.4,), "std": (0.3,)}
    assert fn.Arrays(x, y, x[:6], y[:6], **facts).n == 30
    for wrong, message in (
        ({"x_train": (x / 255).astype(np.float32)}, "x_train.*float32"),
        ({"x_test": (x[:6] / 255).astype(np.float32)}, "x_test.*float32"),
        ({"y_train": y + 1}, "y_train"),
        ({"y_test": y[:6] - 1}, "y_test"),
        ({"y_train": y[:29]}, "y_train"),
    ):
        parts = {"x_train": x, "y_train": y, "x_test": x[:6], "y_test": y[:6], **wrong}
        with pytest.raises(ValueError, match=message):
            fn.Arrays(**parts, **facts)


# what the package offers


def test_the_public_names_are_there_before_first_use() -> None:
    code = "import fednoise_core as fn; print(*dir(fn))"
    command = [sys.executable, "-c", code]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment()).stdout
    assert {"Arrays", "Labels", "Partition", "dataset", "inject", "partition_of", "run"} <= set(listed.split())
    assert not {"Any", "_NAMES", "annotations"} & set(listed.split())
    page = io.StringIO()
    pydoc.Helper(output=page).help(fn)
    for name in ("class Arrays", "dataset", "inject", "partition_of", "run("):
        assert name in page.getvalue()


# wrong arguments


def test_an_unknown_setting_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"tests.*did you mean 'test'"):
        fn.dataset({"source": "digits", "tests": 3})


def test_labels_of_another_split_of_the_same_length_are_refused() -> None:
    def split(seed: int) -> Any:
        return fn.dataset({"source": "digits", "subset": {"train": 200, "test": 20}, "split_seed": seed})

    data, other = split(0), split(5)
    labels = fn.inject(other, {"kind": "symmetric", "rate": 0.2}, seed=0)
    clients = fn.partition_of(data, {"kind": "iid", "clients": 4}, seed=0)
    with pytest.raises(ValueError, match="labels: made for other arrays"):
        fn.run(data, labels, clients, "fedavg", TRAIN)


def test_a_name_and_a_plain_array_are_understood() -> None:
    data = fn.dataset("digits")
    clients = fn.partition_of(data, {"kind": "iid", "clients": 4}, seed=0)
    with pytest.raises(ValueError, match="noise: the key 'rate' is missing"):
        fn.inject(data, "symmetric", seed=0)
    made = fn.run(data, data.y_train, clients, "fedavg", {**TRAIN, "rounds": 1})
    assert made.summary["samples"] == data.n


# getting a model out


def test_a_model_comes_out_with_all_that_predicting_needs(tmp_path: Path) -> None:
    from safetensors import safe_open

    data = fn.dataset(npz(tmp_path / "mine.npz"))
    made = run_on(data, tmp_path / "out")
    with safe_open(tmp_path / "out/model.safetensors", "pt") as file:
        (told,) = file.metadata().values()
    facts = json.loads(told)
    assert facts["mean"] == list(data.mean)
    assert facts["std"] == list(data.std)
    assert facts["class_names"] == NAMES
    seen = fn.load(tmp_path / "out").predict(data.x_test)
    assert float((seen.labels == data.y_test).mean()) == pytest.approx(made.summary["accuracy"]["last"])
    text = (ROOT / "docs/results_files.md").read_text(encoding="utf-8")
    assert "fn.load" in text
    assert "model.safetensors" in text


# columns


def test_the_columns_of_result_files_are_described(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = tmp_path / "out"
    run_on(fn.dataset(npz(tmp_path / "mine.npz")), out)
    text = (ROOT / "docs/results_files.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\S+\.\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    columns = {file.name: pq.read_schema(file).names for file in out.glob("*.parquet")}
    columns |= {file.name: list(read(file)[0]) for file in out.glob("*.csv")}
    columns |= {file.name: list(json.loads(file.read_text())) for file in out.glob("*.json")}
    assert {"metrics.parquet", "suspects.csv", "summary.json"} <= set(columns)
    for name, wanted in columns.items():
        for column in wanted:
            described = re.sub(r"_\d+$", "_<k>", column)
            assert f"`{described}`" in sections[name], (name, column)


# writing a method


def test_the_page_on_methods_says_what_was_missing() -> None:
    text = (ROOT / "docs/add_a_method.md").read_text(encoding="utf-8")
    assert "test_capture.py" in text
    assert "torch.tensor(2.0)" in text  # a tensor made from the host's numbers
    assert re.search(r"`traffic\(run\)` lists \(bytes down, bytes up\)", text)
    for name, module in (("Work", "local"), ("Batch", "local"), ("Trained", "optim"), ("Layout", "tree")):
        assert f"`{name}`" in text
        assert f"{module}.py" in text
    assert "Entry" in text
    assert "A second example: state on the client" in text


def test_what_cannot_be_captured_is_told_with_its_line(tmp_path: Path) -> None:
    lines = [
        "from fednoise_core.methods.fedavg import FedAvg",
        "class Peeks(FedAvg):",
        "    def loss(self, logits, y):",
        "        loss = super().loss(logits, y)",
        "        return loss if loss.sum().item() > 0 else -loss",
    ]
    (tmp_path / "peeks.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "fednoise_core.testing", "--method", "peeks:Peeks", "-k", "captured", "-q"]
    environ = environment() | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)
    assert "peeks.py, line 5" in done.stdout


# without a trusted test set


def test_without_a_test_set_a_plan_is_refused_with_its_cure_or_a_share_stands_in(tmp_path: Path) -> None:
    from fednoise_core.data import sources

    spec = npz(tmp_path / "mine.npz", ("x_test", "y_test"))
    with pytest.raises(Exception, match=r"mine\.npz: it has no x_test; .*holdout"):
        sources.n_train(spec)  # what planning asks for, before any job
    data = fn.dataset({**spec, "test": {"holdout": 0.2}})
    assert (data.n, len(data.y_test)) == (96, 24)

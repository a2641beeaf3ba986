import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
import toy_data
import yaml

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from workflow_scripts.config.validation import Schemas
from workflow_scripts.config.yaml_file import ConfigPath
from workflow_scripts.steps import download

ROOT = Path(__file__).parents[2]
SCHEMA = yaml.safe_load((ROOT / "config/schema/dataset.yaml").read_text(encoding="utf-8"))
DATASETS = yaml.safe_load((ROOT / "config/datasets.yaml").read_text(encoding="utf-8"))


def check(spec: dict) -> None:
    Schemas(ROOT / "config/schema").check_kind("dataset", spec, ConfigPath("config/datasets.yaml", ("mine",)))


def small(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data of a source's layout in `folder`, so that its example can be made."""
    if source in ("mnist", "fashion_mnist", "svhn"):
        content = toy_data.toy((4, 4) if source != "svhn" else (4, 4, 3), 2600, 1100)
        toy_data.pretend(monkeypatch, source, content)
        np.savez(folder / f"{source}.npz", **content)
    elif source in ("cifar10", "cifar100"):
        for name in ("cifar10", "cifar100"):
            content = toy_data.toy((4, 4, 3), 6000, 100)
            toy_data.pretend(monkeypatch, name, content)
            labels = toy_data.pretend_human(monkeypatch, name, content)
            np.savez(folder / f"{name}.npz", **content, **labels)
    elif source == "clothing1m":
        toy_data.clothing(folder / "clothing1m")
    elif source == "npz":
        np.savez(folder / "mine.npz", **toy_data.toy((4, 4)))
    elif source == "table":
        features = np.random.default_rng(0).normal(size=(60, 2))
        rows = [f"{a},{b},{row % 3 + 5},site {row % 2}" for row, (a, b) in enumerate(features)]
        (folder / "mine.csv").write_text("\n".join(["a,b,label,hospital", *rows]))
    elif source == "encoded":
        np.savez(folder / "mine.npz", **{key: x for key, x in toy_data.toy((4, 4), 100).items() if "train" in key})
        monkeypatch.setattr("torch.hub.get_dir", lambda: str(folder))
        file = torchvision.models.get_model_weights(SCHEMA[source]["example"]["encoder"]).DEFAULT.url.rpartition("/")[2]
        (folder / "checkpoints").mkdir()
        torch.save(torchvision.models.resnet18().state_dict(), folder / "checkpoints" / file)
    elif source == "imagefolder":
        toy_data.photo_table(toy_data.photos(folder / "photos"))


@pytest.mark.parametrize("source", list(SCHEMA))
def test_every_example_validates_and_is_made(source, tmp_path, monkeypatch, capsys):
    spec = SCHEMA[source]["example"]
    check(spec)
    small(source, tmp_path, monkeypatch)
    out = tmp_path / "out" / f"{source}.npz"
    monkeypatch.setenv("FEDNOISE_DATA", str(tmp_path))
    command = ["--spec", json.dumps(spec), "--out", str(out), "--cache", str(tmp_path)]
    assert download.main(command) == 0, capsys.readouterr().err
    arrays = Arrays.load(out)
    assert arrays.spec == spec
    assert sources.read_facts(spec, [tmp_path]) == (arrays.n, arrays.classes, arrays.x_train.shape[1:3])
    assert arrays.clean_known is (source not in ("clothing1m", "npz", "table"))
    absent = {"given": arrays.clean_known and not arrays.given, "client_ids": arrays.client is None}
    assert sources.missing_inputs(spec, [tmp_path]) == {name for name, missing in absent.items() if missing}
    files = sources.list_files(spec, [tmp_path])
    assert bool(files) is (source in ("clothing1m", "npz", "imagefolder", "table", "encoded"))
    assert all(path.exists() for path in files)
    if "mean" in spec:
        assert (list(arrays.mean), list(arrays.std)) == (spec["mean"], spec["std"])
    if isinstance(spec.get("public"), dict):
        assert len(arrays.x_public) == spec["public"]["n"]
    if spec.get("human"):
        assert len(arrays.given) > 0


@pytest.mark.parametrize("name", list(DATASETS))
def test_every_entry_of_the_config_validates_and_knows_its_size(name):
    spec = DATASETS[name]
    check(spec)
    sizes = {"digits": 1437, "mnist": 60000, "fashion_mnist": 60000, "cifar10": 50000, "cifar100": 50000, "svhn": 73257}
    if spec["source"] in sizes:
        public = spec.get("public", 0) if isinstance(spec.get("public"), int) else 0  # of the training images
        train = spec.get("subset", {}).get("train", sizes[spec["source"]] - public)
        assert sources.read_facts(spec)[0] == train
        assert sources.read_facts(spec)[1] == (20 if "coarse" in name else 100 if "cifar100" in name else 10)

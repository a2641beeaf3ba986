"""A model file is data: nothing that it names is imported or called, and a mistake in it is named with its key."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mynets
import numpy as np
import pandas as pd
import pytest
import toy
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import fednoise_core as fn
from fednoise_core.io import ArtifactError, SpecError

TOUCH = {"name": "module", "options": {"factory": "subprocess:run"}, "shape": ["touch", "evil", "-c"]}
DEEP = "[" * 100_000

Change = dict[str, Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a net of the user's own."""
    folder = tmp_path_factory.mktemp("saved")
    toy.play("fedavg", rounds=1, net={"name": "module", "factory": "mynets:make"}, out=folder)
    return folder


def copy(saved: Path, to: Path, net: Change | None = None, facts: Change | str | None = None) -> Path:
    """Copy the run's files, with other metadata in its model file. facts: some entries, or the text of all."""
    for name in ("summary.json", "spec.json"):
        (to / name).write_bytes((saved / name).read_bytes())
    with safe_open(saved / "model.safetensors", "pt") as file:
        metadata = json.loads(file.metadata()["fednoise"])
    metadata["nets"][""] |= net or {}
    text = facts if isinstance(facts, str) else json.dumps(metadata | (facts or {}))
    save_file(load_file(saved / "model.safetensors"), to / "model.safetensors", {"fednoise": text})
    return to


def test_only_the_caller_says_what_makes_the_net(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, named = toy.arrays().x_test, copy(saved, tmp_path)
    calls: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *args, **_: calls.append(args))
    monkeypatch.setattr(mynets, "make", lambda *args, **_: calls.append(args))
    with pytest.raises(SpecError, match=r'model\.safetensors: fednoise\.nets: .*"mynets:make", which is not called'):
        fn.load(named).predict(x)
    with pytest.raises(SpecError, match=r"fednoise\.nets\[''\]\.shape\[0\]: expected"):
        fn.load(copy(saved, tmp_path, TOUCH)).module()
    with pytest.raises(SpecError, match='"subprocess:run", which is not called'):
        fn.load(copy(saved, tmp_path, {**TOUCH, "shape": [1, 8, 8]})).module()
    with pytest.raises(SpecError, match=r"fednoise\.nets\[''\]\.options\.name: expected no such option"):
        fn.load(copy(saved, tmp_path, {"name": "mlp", "options": {"name": "module", **TOUCH["options"]}})).module()
    assert calls == []
    monkeypatch.undo()
    labels = [fn.load(saved, factory=factory).predict(x).labels for factory in (mynets.make, "mynets:make")]
    np.testing.assert_array_equal(*labels)
    stranger = copy(saved, tmp_path, {"options": {"factory": "subprocess:run"}})
    np.testing.assert_array_equal(fn.load(stranger, factory=mynets.make).predict(x).labels, labels[0])
    with pytest.raises(SpecError, match="has no name; define a function"):
        fn.load(saved, factory=lambda shape, classes: None).predict(x)
    with pytest.raises(TypeError, match="factory: got int 3; pass a function"):
        fn.load(saved, factory=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("net", "facts", "key"),
    [
        ({}, {"std": [0.0]}, "fednoise.std[0]: expected"),
        ({}, {"std": [math.nan]}, "fednoise.std[0]: expected"),
        ({}, {"mean": ["0"]}, "fednoise.mean[0]: expected"),
        ({}, {"mean": [0.1, 0.2]}, "shape '[1, 1, 1]' is invalid for input of size 2"),
        ({}, {"class_names": "abc"}, "fednoise.class_names: expected"),
        ({}, {"nets": []}, "fednoise.nets: expected"),
        ({}, {"nets": {}}, "fednoise.nets: expected"),
        ({}, {"nets": {"client" + "9" * 5000: {}}}, "fednoise.nets: expected"),
        ({}, {"class_names": ["a"]}, "fednoise.class_names: expected 5, got 1"),
        ({}, {"nets": {"../x": {}}}, "fednoise.nets"),
        ({"classes": 10**30}, {}, ""),
        ({"classes": -1}, {}, "fednoise.nets[''].classes: expected"),
        ({"shape": [1, 8]}, {}, "fednoise.nets[''].shape: expected"),
        ({"shape": [1, 10**9, 10**9]}, {}, ""),
        ({"options": None}, {}, "fednoise.nets[''].options: expected"),
        ({"name": "mlp", "options": {"hidden": 10**15}}, {}, ""),
        ({"name": "../mlp", "options": {}}, {}, "train.net.name: unknown net '../mlp'"),
        ({"name": "mlp", "options": {"dropout_at_eval": 1}}, {}, ".options.dropout_at_eval: expected no such option"),
        ({"name": "mlp", "options": {"factory": "subprocess:run"}}, {}, "train.net.factory: unknown key"),
        ({"name": "mlp", "options": {"__class__": 1}}, {}, "train.net.__class__: unknown key"),
        ({}, "[]", "fednoise: expected"),
        ({}, DEEP, "damaged, or not the model of a run (RecursionError"),
        ({}, "{", "damaged, or not the model of a run (JSONDecodeError"),
    ],
)
def test_hostile_facts_are_named(saved: Path, tmp_path: Path, net: Change, facts: Change | str, key: str) -> None:
    run = fn.load(copy(saved, tmp_path, net, facts), factory="mynets:make")
    file = re.escape(str(tmp_path / "model.safetensors"))
    with pytest.raises((SpecError, ArtifactError), match=rf"^{file}: .*{re.escape(key)}.*\Z"):
        run.predict(toy.arrays().x_test)


@pytest.mark.parametrize("text", ["", "[]", DEEP, "{}", '{"run": {}, "accuracy": {"last": "9"}, "headline_view": ""}'])
def test_a_hostile_summary_is_named_and_a_sparse_one_has_a_repr(saved: Path, tmp_path: Path, text: str) -> None:
    copy(saved, tmp_path)
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises((SpecError, ArtifactError), match=r"summary\.json: .*\Z"):
        fn.load(tmp_path)
    (tmp_path / "summary.json").write_text('{"run": {}, "accuracy": {}, "headline_view": "global"}')
    assert "diverged" in repr(fn.load(tmp_path))
    texts = pd.DataFrame([["1"] * 5], columns=["round", "view", "client", "metric", "value"])
    for content in (b"PAR1", texts.to_parquet(), texts.drop(columns="value").to_parquet()):
        (tmp_path / "metrics.parquet").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"metrics\.parquet: damaged.*\Z"):
            _ = fn.load(tmp_path).curve


def test_a_run_without_an_accuracy_or_at_chance_has_a_repr_and_a_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    data, labels, partition = toy.arrays(), toy.toy_labels(), toy.toy_partition()
    ends = {}
    for lr in (0.0, 0.1, 30.0):
        run = fn.run(data, labels, partition, "mixup", {**toy.TRAIN, "lr": lr, "rounds": 3}, console=sys.stdout)
        first, *_, last = capsys.readouterr().out.splitlines()
        assert first.endswith(", 4 of 8 clients a round")
        ends[lr] = repr(run), last
    assert "rounds of 4 of 8 clients: diverged" in ends[30.0][0]
    assert ends[30.0][1] == "mixup  ended: diverged"
    assert "(at chance)" in ends[0.0][0]
    assert ends[0.0][1].endswith("(at chance)")

"""`make`, the partition artifact, the schema and the command."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from fednoise_core.data.labelled import LabelledData
from fednoise_core.data.partition import Partition
from fednoise_core.io import ArtifactError, SpecError, save_npz
from fednoise_core.noise import registry as noise
from fednoise_core.partition import registry as partition
from workflow_scripts.steps import partition as command

SCHEMA = yaml.safe_load(
    (Path(__file__).parents[2] / "config" / "schema" / "partition.yaml").read_text(encoding="utf-8")
)
N = 1000
SOURCE = LabelledData(np.arange(N) % 10, 10, client=np.arange(N) // 100)
LABELS = noise.inject(SOURCE, {"kind": "symmetric", "rate": 0.5}, 0)


def example(kind: str) -> dict[str, object]:
    """The schema's example, small enough for 1000 samples."""
    spec = dict(SCHEMA[kind]["example"])
    if "clients" in spec:
        spec["clients"] = 8
    if "size" in spec:
        spec["size"] = 50
    return spec


def make(kind: str, seed: int = 0, **settings) -> Partition:
    return partition.make(SOURCE, example(kind) | settings, seed, LABELS)


@pytest.mark.parametrize("kind", sorted(SCHEMA))
def test_example_runs_and_survives_the_disk(kind, tmp_path) -> None:
    split = make(kind)
    assert split.clients == (10 if kind == "natural" else 8)
    split.save(tmp_path / "a.npz")
    make(kind).save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = Partition.load(tmp_path / "a.npz")
    assert np.array_equal(split.index, again.index)
    assert np.array_equal(split.offsets, again.offsets)
    assert again.spec["notes"]["samples"] == N
    assert again.spec["notes"]["unused"] == N - len(np.unique(split.index))
    assert again.spec["notes"]["overlap"] == split.overlap
    assert split.sizes.sum() == len(split.index)


def test_labels_decide_where_they_should() -> None:
    assert {kind for kind in SCHEMA if partition.needs_labels(example(kind))} == {"openset"}
    assert partition.needs_labels({"kind": "dirichlet", "labels": "noisy"})
    assert not partition.needs_labels({"kind": "openset", "labels": "clean"})
    noisy, clean = make("openset"), make("openset", labels="clean")
    assert (noisy.histogram(LABELS.noisy, 10) > 0).sum(1).max() < 10
    assert (clean.histogram(SOURCE.y, 10) > 0).sum(1).max() < 10
    assert (noisy.histogram(SOURCE.y, 10) > 0).sum(1).max() == 10  # by the clean labels it is not open set
    assert (noisy.spec["labels"], clean.spec["labels"]) == ("noisy", "clean")
    with pytest.raises(SpecError, match="needs the noisy labels"):
        partition.make(SOURCE, example("openset"), 0)


def test_given_labels_stand_in_for_unknown_clean_ones() -> None:
    source = LabelledData(SOURCE.y, 10, clean_known=False)
    split = partition.make(source, example("dirichlet"), 0)
    assert split.spec["labels"] == "given"
    assert partition.make(source, example("iid"), 0).spec["labels"] == "no"  # it looks at none
    assert np.array_equal(split.index, make("dirichlet").index)


@pytest.mark.parametrize("kind", sorted(SCHEMA))
def test_validation_split(kind) -> None:
    split = make(kind, validation=0.3)
    plain = make(kind)
    assert np.array_equal(split.index, plain.index)  # the split changes no membership
    assert not plain.valid.any()
    for c in range(split.clients):
        n = len(split.of(c))
        assert split.valid[split.offsets[c] : split.offsets[c + 1]].sum() == int(0.3 * n + 1e-9)


def test_sizes_and_histogram_by_hand() -> None:
    spec = {"clients": 3, "notes": {"samples": 9, "overlap": False}}
    parts = [np.array([0, 4]), np.array([], int), np.array([1, 2])]
    split = Partition.from_parts(parts, spec, np.array([0, 1, 1, 1], bool))
    split.check()
    assert split.sizes.tolist() == [2, 0, 2]
    assert split.histogram(np.array([0, 1, 1, 0, 1]), 2).tolist() == [[1, 1], [0, 0], [0, 2]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "opensett", "clients": 8}, "did you mean 'openset'"),
        ({"kind": "iid"}, "'clients' is missing"),
        ({"kind": "iid", "clients": 0}, "clients"),
        ({"kind": "iid", "clients": 1001}, "1001 clients for 1000 samples"),
        ({"kind": "iid", "clients": 2.5}, "clients"),
        ({"kind": "iid", "clients": 4, "alpha": 1.0}, "alpha: unknown"),
        ({"kind": "iid", "clients": 4, "labels": "clean"}, "labels: unknown"),
        ({"kind": "openset", "clients": 4}, "'mode' is missing"),
        ({"kind": "openset", "clients": 4, "mode": "uniform", "labels": "dirty"}, "labels"),
        ({"kind": "dirichlet", "clients": 4}, "'alpha' is missing"),
        ({"kind": "iid", "clients": 4, "validation": 1.0}, "validation"),
        ({"kind": "natural", "clients": 4}, "clients: unknown"),
    ],
)
def test_wrong_specs_are_refused(spec, message) -> None:
    with pytest.raises(SpecError, match=message):
        partition.make(SOURCE, spec, 0, LABELS)


def test_labels_of_other_data_are_refused() -> None:
    labels = noise.inject(LabelledData(SOURCE.y[:50], 10), {"kind": "none"}, 0)
    with pytest.raises(SpecError, match="50 labels of 10 classes for 1000 training images"):
        partition.make(SOURCE, example("openset"), 0, labels)


def test_damaged_artifacts_are_named(tmp_path) -> None:
    split, path = make("iid"), tmp_path / "p.npz"
    split.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"p.npz"):
        Partition.load(path)
    swapped = split.index.copy()
    swapped[:2] = swapped[1::-1]
    doubled = split.index.copy()
    doubled[1] = doubled[0]
    twice = split.index.copy()
    twice[split.offsets[1] - 1] = N - 1 if N - 1 not in split.of(0) else N - 2
    for change, message in [
        ({"index": swapped}, "sorted"),
        ({"index": doubled}, "sorted"),
        ({"index": twice}, "two clients"),
        ({"index": split.index + 5}, "0..999"),
        ({"index": split.index.astype(np.int32)}, "int64"),
        ({"offsets": split.offsets[::-1].copy()}, "offsets"),
        ({"offsets": split.offsets[[0, 2, 3, 4, 5, 6, 7, 8]]}, "7 clients, the spec says 8"),
        ({"valid": split.valid[1:]}, "one length"),
    ]:
        dataclasses.replace(split, **change).save(path)
        with pytest.raises(ArtifactError, match=message):
            Partition.load(path)
    save_npz(path, {"index": split.index}, split.spec)
    with pytest.raises(ArtifactError, match="offsets"):
        Partition.load(path)
    with pytest.raises(ValueError, match=r"0\.\.9"):
        split.check(samples=10)


def test_command(tmp_path, capsys) -> None:
    spec = {"artifact": "arrays", "classes": 10, "clean_known": True}
    save_npz(tmp_path / "a.npz", {"y_train": SOURCE.y.astype(np.int64)}, spec)
    LABELS.save(tmp_path / "l.npz")
    spec_json = json.dumps(example("openset"))
    args = ["--arrays", str(tmp_path / "a.npz"), "--out", str(tmp_path / "p.npz"), "--seed", "3", "--spec", spec_json]
    assert command.main([*args, "--labels", str(tmp_path / "l.npz")]) == 0
    assert np.array_equal(Partition.load(tmp_path / "p.npz").index, make("openset", 3).index)
    (tmp_path / "p.npz").unlink()
    assert command.main(args) == 2
    assert capsys.readouterr().err == "partition: partition openset: needs the noisy labels\n"
    assert not (tmp_path / "p.npz").exists()

"""`inject`, the labels artifact, the schema and the command."""

import dataclasses
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.labelled import LabelledData
from fednoise_core.data.partition import Partition
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.noise import registry as noise
from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partition
from workflow_scripts.steps import noise as noise_step

SCHEMA = yaml.safe_load((Path(__file__).parents[2] / "config" / "schema" / "noise.yaml").read_text(encoding="utf-8"))


def small(K: int = 10, n: int = 400) -> Arrays:
    """Random images with every input a noise model can ask for."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % K
    sets = ("aggre_label", "worse_label", "random_label1", "noisy_label")
    return Arrays(
        x_train=rng.integers(0, 256, (n, 6, 6), dtype=np.uint8),
        y_train=y,
        x_test=np.zeros((4, 6, 6), np.uint8),
        y_test=np.zeros(4, np.int64),
        x_public=rng.integers(0, 256, (90, 6, 6), dtype=np.uint8),
        classes=K,
        mean=(0.5,),
        std=(0.5,),
        given={key: rng.integers(0, K, n) for key in sets},
        coarse=np.arange(K) // 2,
    )


def split(data: Arrays) -> Partition:
    return partition.make(data, {"kind": "iid", "clients": 8}, 0)


def example(kind: str) -> dict[str, object]:
    return dict(SCHEMA[kind]["example"])


def run(kind: str, seed: int = 0) -> Labels:
    spec = example(kind)
    data = small(2 if kind == "matrix" else 10)
    if kind == "given":
        spec["key"] = "worse_label"
    if kind == "soft_labels":
        file = Path(tempfile.gettempdir(), f"soft-{os.getpid()}.csv")
        np.savetxt(file, np.full((data.n, 10), 0.1), delimiter=",")
        spec["file"] = str(file)
        try:
            return noise.inject(data, spec, seed, split(data))
        finally:
            file.unlink()
    return noise.inject(data, spec, seed, split(data))


@pytest.mark.parametrize("kind", sorted(SCHEMA))
def test_example_runs_and_says_what_it_did(kind, tmp_path) -> None:
    labels = run(kind)
    assert labels.noisy.dtype == np.int64
    assert len(labels.noisy) == 400
    assert labels.client_rate.shape == (8,)
    assert labels.T_client.shape == (8, labels.classes, labels.classes)
    sizes = np.full(8, 50)
    assert (labels.client_rate * sizes).sum() / 400 == pytest.approx(labels.rate)
    assert labels.rate == pytest.approx(labels.wrong.mean())
    assert (labels.T_nominal is None) == (kind in ("human", "given"))
    assert (labels.nominal_rate is None) == (kind in ("human", "given", "soft_labels"))
    labels.save(tmp_path / "a.npz")
    run(kind).save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = Labels.load(tmp_path / "a.npz")
    for field in dataclasses.fields(Labels):
        before, after = getattr(labels, field.name), getattr(again, field.name)
        assert np.array_equal(before, after, equal_nan=True) if isinstance(before, np.ndarray) else before == after


@pytest.mark.parametrize("kind", sorted(set(SCHEMA) - {"none", "human", "given", "asymmetric"}))
def test_seed_decides(kind) -> None:
    a, b = run(kind, 0), run(kind, 1)
    differs = not np.array_equal(a.noisy, b.noisy)
    assert differs or (kind == "openset_images" and not np.array_equal(a.replaced, b.replaced))


def test_noise_seed_replaces_the_run_seed() -> None:
    data, spec = small(), {"kind": "symmetric", "rate": 0.5, "noise_seed": 0}
    shared = [noise.inject(data, spec, seed).noisy for seed in (0, 1)]
    plain = noise.inject(data, {"kind": "symmetric", "rate": 0.5}, 0).noisy
    assert np.array_equal(*shared)
    assert np.array_equal(plain, shared[0])  # seed 0 is a seed like any other


def test_noise_seed_of_the_asymmetric_model_is_the_paper_s() -> None:
    spec = {"kind": "asymmetric", "rate": 0.4, "sparsity": 0.8, "noise_seed": 42}
    T = noise.inject(small(), spec, 7).T_nominal
    assert T[0].argmax() == 9  # the published matrix: 0 → 9
    assert T[0, 0] == pytest.approx(0.27, abs=0.005)


def test_needs() -> None:
    client_level = {kind for kind in SCHEMA if noise.needs_partition(example(kind))}
    assert client_level == {"fedcorr", "fednoro", "client_groups", "localized"}
    assert noise.needs_file({"kind": "matrix", "file": "T.csv"}) == "T.csv"
    assert noise.needs_file(example("matrix")) is None
    with pytest.raises(SpecError, match="did you mean 'fedcorr'"):
        noise.needs_partition({"kind": "fedcor"})


def test_rate_per_client_of_global_noise() -> None:
    data = small()
    labels = noise.inject(data, {"kind": "symmetric", "rate": 0.4}, 0, split(data))
    wrong = labels.noisy != data.y_train
    assert np.allclose(labels.client_rate, [wrong[split(data).of(c)].mean() for c in range(8)])
    alone = noise.inject(data, {"kind": "symmetric", "rate": 0.4}, 0)
    assert np.array_equal(alone.noisy, labels.noisy)  # the partition adds numbers, it changes no label
    assert alone.client_rate is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "symetric", "rate": 0.1}, "did you mean 'symmetric'"),
        ({"rate": 0.1}, "kind: unknown noise None"),
        ({"kind": "symmetric", "rat": 0.1}, "noise.rat: unknown"),
        ({"kind": "symmetric"}, "'rate' is missing"),
        ({"kind": "symmetric", "rate": 0.1, "noise_seed": -1}, "noise_seed"),
        ({"kind": "fedcorr", "rho": 1, "tau": 1}, "needs a partition"),
        ({"kind": "symmetric", "rate": 0.1, "clients": 3}, "noise.clients: unknown"),
    ],
)
def test_wrong_specs_are_refused(spec, message) -> None:
    with pytest.raises(SpecError, match=message):
        noise.inject(small(), spec, 0)
    with pytest.raises(SpecError, match=r"labels: they are 0\.\.9"):
        noise.inject(LabelledData(np.arange(10), 9), "none", 0)


def test_damaged_artifacts_are_named(tmp_path) -> None:
    path = tmp_path / "labels.npz"
    labels = run("symmetric")
    labels.save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ArtifactError, match=r"labels.npz"):
        Labels.load(path)
    for change, message in [
        ({"rate": 0.1}, "rate says 0.1"),
        ({"noisy": labels.noisy + 5}, "must lie in"),
        ({"noisy": labels.noisy.astype(np.int32)}, "int64"),
        ({"clean": labels.clean[:-1]}, "int64"),
        ({"T_nominal": labels.T_nominal * 2}, "T_nominal"),
        ({"clean": None}, "unknown"),
        ({"replaced": np.array([1])}, "replaced"),
    ]:
        dataclasses.replace(labels, **change).save(path)
        with pytest.raises(ArtifactError, match=message):
            Labels.load(path)
    with pytest.raises(ArtifactError, match="no such file"):
        Labels.load(tmp_path / "absent.npz")


def test_source_reads_labels_without_images(tmp_path) -> None:
    data = small()
    data.save(tmp_path / "a.npz")
    lazy, direct = LabelledData.of(tmp_path / "a.npz"), LabelledData.of(data)
    assert np.array_equal(lazy.y, direct.y)
    assert sorted(lazy.given) == sorted(direct.given)
    assert np.array_equal(lazy.coarse, direct.coarse)
    assert np.array_equal(lazy.read_images(), data.x_train)
    assert np.array_equal(lazy.read_images("x_public"), data.x_public)
    with pytest.raises(ArtifactError, match="no such file"):
        LabelledData.of(tmp_path / "b.npz")
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"a.npz: damaged arrays artifact"):
        LabelledData.of(tmp_path / "a.npz")


def test_command(tmp_path, capsys) -> None:
    data = small()
    data.save(tmp_path / "a.npz")
    split(data).save(tmp_path / "p.npz")
    spec = {"kind": "fedcorr", "rho": 0.6, "tau": 0.5}
    files = ["--arrays", str(tmp_path / "a.npz"), "--out", str(tmp_path / "l.npz"), "--seed", "3"]
    assert noise_step.main(["--spec", json.dumps(spec), "--partition", str(tmp_path / "p.npz"), *files]) == 0
    labels = Labels.load(tmp_path / "l.npz")
    assert np.array_equal(labels.noisy, noise.inject(data, spec, 3, split(data)).noisy)
    (tmp_path / "l.npz").unlink()
    assert noise_step.main(["--spec", json.dumps(spec), *files]) == 2
    assert capsys.readouterr().err == "noise: noise fedcorr: needs a partition\n"
    assert not (tmp_path / "l.npz").exists()

"""The user's own noise models and partitions: their results are checked, and their inputs are read-only."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import toy
from pydantic import Field

import fednoise_core as fn
from fednoise_core.api import study
from fednoise_core.api.run import _tell_rate
from fednoise_core.io import SpecError
from fednoise_core.noise.registry import NOISES, nominal_rate
from fednoise_core.noise.sampling import NoiseResult, noise_model
from fednoise_core.partition.registry import PARTITIONS
from fednoise_core.partition.schemes import partition_scheme
from fednoise_core.settings.functions import resolve_kind
from workflow_scripts.report.runs.names import describe_spec

EYE = np.eye(5)


def inject(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]) -> fn.Labels:
    monkeypatch.setitem(NOISES, "mine", noise_model(example={})(function))
    return fn.inject(toy.arrays(), {"kind": "mine"}, partition=toy.toy_partition())


def test_the_inputs_of_a_noise_model_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_labels(y: Any, K: int, rng: Any) -> NoiseResult:
        y[:] = (y + 1) % K
        return NoiseResult(y, None)

    def write_images(y: Any, K: int, rng: Any, *, images: Any) -> NoiseResult:
        images[0] = 0
        return NoiseResult(y.copy(), None)

    def write_clients(y: Any, K: int, rng: Any, *, clients: Any) -> NoiseResult:
        clients[0][0] = 1
        return NoiseResult(y.copy(), None)

    for function in (write_labels, write_images, write_clients):
        with pytest.raises(ValueError, match="read-only"):
            inject(monkeypatch, function)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda y: y.tolist(), "its function returned list; return NoiseResult"),
        (lambda y: NoiseResult(y.astype(float), None), r"its labels are float64 \[\d+\]; int64"),
        (lambda y: NoiseResult(y[1:], None), r"its labels are int64 \[\d+\]; int64"),
        (lambda y: NoiseResult(y + 1, None), r"its labels are 1\.\.5; the classes are 0\.\.4"),
        (lambda y: NoiseResult(y.copy(), EYE * np.nan), "T_nominal: entries must be numbers"),
        (lambda y: NoiseResult(y.copy(), 2 * EYE), "T_nominal: rows must sum to 1"),
        (lambda y: NoiseResult(y.copy(), np.stack([EYE] * 3)), r"T_nominal is \[3, 5, 5\]"),
        (lambda y: NoiseResult(y.copy(), EYE, np.zeros(3)), r"level is \[3\]; one number per client"),
    ],
)
def test_a_wrong_result_of_a_noise_model_is_named(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(SpecError, match=f"noise mine: {message}"):
        inject(monkeypatch, lambda y, K, rng: make(y))


def test_global_random_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: dict[str, Callable[[int], Any]] = {
        "numpy": np.random.permutation,
        "torch": torch.randperm,
    }
    for name, draw in draws.items():
        with pytest.raises(SpecError, match=f"noise mine: it uses {name}'s global random numbers"):
            inject(monkeypatch, lambda y, K, rng, draw=draw: NoiseResult(y[np.asarray(draw(len(y)))], None))


def test_a_matrix_in_float32_and_levels_without_a_partition_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(y: Any, K: int, rng: Any) -> NoiseResult:
        return NoiseResult(y.copy(), np.full((K, K), 1 / K, np.float32), np.zeros(3))

    monkeypatch.setitem(NOISES, "mine", noise_model(example={})(rounded))
    assert fn.inject(toy.arrays(), {"kind": "mine"}).T_nominal is not None


def test_the_default_of_a_rate_is_the_nominal_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(y: Any, K: int, rng: Any, *, rate: Annotated[float, Field(description="Share.")] = 0.4) -> NoiseResult:
        return NoiseResult(np.where(rng.random(len(y)) < rate, (y + 1) % K, y), None)

    assert inject(monkeypatch, flip).nominal_rate == 0.4
    assert nominal_rate({"kind": "mine", "rate": 0.2}, 5) == 0.2


@pytest.mark.parametrize("kind", [tuple, list, np.stack])
def test_the_samples_of_clients_may_have_other_forms(monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Any]) -> None:
    def scheme(labels: Any, C: int, rng: Any) -> Any:
        return kind([part.tolist() for part in np.split(np.arange(75), C)])

    monkeypatch.setitem(PARTITIONS, "mine", partition_scheme(example={"clients": 3}, labels="clean")(scheme))
    assert fn.partition_of(toy.arrays(), {"kind": "mine", "clients": 3}).sizes.tolist() == [25, 25, 25]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda y, C, rng: None, "its function returned NoneType; return a list"),
        (lambda y, C, rng: np.arange(len(y)) % C, "its function returned ndarray; return a list"),
        (lambda y, C, rng: np.array_split(np.arange(len(y)), C + 1), "its function returned 4 arrays for 3 clients"),
        (lambda y, C, rng: np.array_split(np.arange(len(y)) / 2, C), "client 0: its samples are float64"),
        (lambda y, C, rng: np.array_split(np.arange(len(y)) + 1, C), r"client 2: its samples are \d+\.\."),
        (lambda y, C, rng: np.array_split(np.random.permutation(len(y)), C), "it uses numpy's global"),
    ],
)
def test_a_wrong_result_of_a_partition_is_named(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], message: str
) -> None:
    def scheme(labels: Any, C: int, rng: Any) -> Any:
        return make(labels, C, rng)

    monkeypatch.setitem(PARTITIONS, "mine", partition_scheme(example={"clients": 3}, labels="clean")(scheme))
    with pytest.raises(SpecError, match=f"partition mine: {message}"):
        fn.partition_of(toy.arrays(), {"kind": "mine", "clients": 3})


def test_the_labels_of_a_data_set_cannot_be_written_by_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def scheme(labels: Any, C: int, rng: Any) -> list[np.ndarray]:
        labels //= 2
        return np.array_split(np.argsort(labels, kind="stable"), C)

    monkeypatch.setitem(PARTITIONS, "mine", partition_scheme(example={"clients": 3}, labels="clean")(scheme))
    with pytest.raises(ValueError, match="read-only"):
        fn.partition_of(toy.arrays(), {"kind": "mine", "clients": 3})


def test_noise_per_client_is_refused_for_other_clients() -> None:
    data, spec = toy.arrays(), {"kind": "fedcorr", "rho": 0.6, "tau": 0.5}
    theirs, others = (fn.partition_of(data, {"kind": "iid", "clients": 4}, seed=seed) for seed in (0, 1))
    labels = fn.inject(data, spec, partition=theirs)
    method, train = toy.settings("fedavg", rounds=1)
    assert fn.run(data, labels, theirs, method, train).curve
    for clients in (others, toy.toy_partition()):
        with pytest.raises(SpecError, match="labels: their noise was drawn for other clients; pass this partition"):
            fn.run(data, labels, clients, method, train)


def test_a_function_named_in_a_file_of_results_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hostile.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = {"kind": "hostile:it", "rate": 0.4}
    with pytest.raises(SpecError, match=r"noise\.kind: 'hostile:it': SystemExit: imported"):
        fn.inject(toy.arrays(), spec)
    labels = dataclasses.replace(toy.toy_labels(), spec={**toy.toy_labels().spec, "noise": spec, "nominal_rate": 0.3})
    labels.save(tmp_path / "labels.npz")
    method = {"name": "coteaching", "forget_rate": "oracle_nominal"}
    assert _tell_rate(method, fn.Labels.load(tmp_path / "labels.npz")) == {**method, "forget_rate": 0.3}
    assert nominal_rate(spec, 5) is None
    for key in ("noise", "partition"):
        assert study._defaults(key, spec) == {}
    assert describe_spec(spec, "") == "it 40 %"
    with pytest.raises(SpecError, match="unknown noise 'hostile:it'"):
        resolve_kind(spec, NOISES, "noise")

"""The asymmetric generator: published fixtures, cleanlab's generator, limits."""

import csv
import hashlib
import warnings
from pathlib import Path

import numpy as np
import pytest
from real_files import real_labels

from fednoise_core.io import SpecError
from fednoise_core.noise.asymmetric import _flip_exactly as flip
from fednoise_core.noise.asymmetric import asymmetric, asymmetric_matrix, random_sum
from fednoise_core.noise.sampling import realised_matrix

FIXTURE = Path(__file__).parent / "fedefc_noise_matrices_seed42.csv"
UNIFORM = np.full(10, 0.1)


def published() -> dict[tuple[float, float], np.ndarray]:
    """(ρ, ζ) → T [10, 10] of FedEFC, from the design's table."""
    result: dict[tuple[float, float], np.ndarray] = {}
    with FIXTURE.open(newline="") as file:
        for row in csv.DictReader(file):
            T = result.setdefault((float(row["rho"]), float(row["zeta"])), np.full((10, 10), np.nan))
            T[int(row["true_label"]), int(row["observed_label"])] = float(row["probability"])
    return result


def test_seed_42_gives_the_published_matrices() -> None:
    matrices = published()
    assert len(matrices) == 4
    for (rho, zeta), T in matrices.items():
        M = asymmetric_matrix(10, rho, zeta, UNIFORM, np.random.RandomState(42))
        assert np.abs(M.T - T).max() < 1e-9  # the table has nine digits


def test_the_paper_s_task_misleads_three_classes() -> None:
    T = published()[0.4, 0.8]
    assert [(i, int(T[i].argmax())) for i in range(10) if T[i].argmax() != i] == [(0, 9), (4, 2), (7, 8)]
    y = np.repeat(np.arange(10), 5000)
    result = asymmetric(y, 10, np.random.RandomState(42), rate=0.4, sparsity=0.8)
    assert realised_matrix(y, result.y_noisy, 10).argmax(1).tolist() == T.argmax(1).tolist()


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("dataset", "rho", "zeta", "rate", "sha256"),
    [
        ("cifar10", 0.4, 0.8, 0.400, "c0fa63742c90e9f85c565da006a9c0f7d64af0b8741ca8dff331fc15f31eb088"),
        ("mnist", 0.2, 0.4, 0.200, "2a05ede65bb9498a023008fc27f7c37824067e5ba0a4064a47357ac53be38305"),
        ("cifar100", 0.1, 0.0, 0.040, "e9f08ddd789b30b4b2125c5cdac5f280b01a9df8988aad08f205e9997426b840"),
    ],
)
def test_noisy_labels_of_the_paper(dataset, rho, zeta, rate, sha256) -> None:
    y = real_labels(dataset)
    K = 100 if dataset == "cifar100" else 10
    result = asymmetric(y, K, np.random.RandomState(42), rate=rho, sparsity=zeta)
    assert hashlib.sha256(result.y_noisy.astype("<i8").tobytes()).hexdigest() == sha256
    assert abs((result.y_noisy != y).mean() - rate) < 5e-4


@pytest.mark.parametrize(
    ("K", "rho", "zeta"), [(10, 0.4, 0.8), (10, 0.2, 0.4), (4, 0.3, 0.0), (7, 0.25, 0.5), (20, 0.1, 0.9)]
)
@pytest.mark.parametrize("seed", [0, 1, 42])
def test_equals_cleanlab(K, rho, zeta, seed) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noise_generation = pytest.importorskip("cleanlab.benchmarking.noise_generation")
    y = np.random.default_rng(seed).choice(K, 4000, p=np.random.default_rng(seed + 1).dirichlet(np.full(K, 50)))
    prior = np.bincount(y, minlength=K) / len(y)
    theirs = noise_generation.generate_noise_matrix_from_trace(
        K, trace=(1 - rho) * K, py=prior, frac_zero_noise_rates=zeta, seed=seed
    )
    labels = noise_generation.generate_noisy_labels(y, theirs)  # goes on with the global stream seeded above
    ours = asymmetric(y, K, np.random.RandomState(seed), rate=rho, sparsity=zeta)
    assert np.allclose(ours.T_nominal.T, theirs, atol=1e-12)
    assert np.array_equal(ours.y_noisy, labels)


@pytest.mark.parametrize("zeta", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("rho", [0.1, 0.4, 0.65])
def test_matrix_properties(rho, zeta) -> None:
    for seed in range(10):
        M = asymmetric_matrix(10, rho, zeta, UNIFORM, np.random.RandomState(seed))
        assert np.allclose(M.sum(0), 1)
        assert np.diagonal(M).mean() == pytest.approx(1 - rho)
        assert (M[~np.eye(10, dtype=bool)] == 0).sum() == int(90 * zeta)
        assert (np.diagonal(M) > M @ UNIFORM).all()


def test_constant_diagonal() -> None:
    y = np.repeat(np.arange(10), 100)
    result = asymmetric(y, 10, np.random.default_rng(0), rate=0.3, sparsity=0.5, diag="constant")
    assert np.allclose(np.diagonal(result.T_nominal), 0.7)
    assert (result.T_nominal == 0).sum() == 45
    # 30 of 100 flips per class, less at most one for each of the non-zero targets
    assert 0.3 - 45 / 1000 <= (result.y_noisy != y).mean() <= 0.3


def test_rounding_down_loses_noise_and_largest_remainder_does_not() -> None:
    y = np.repeat(np.arange(100), 500)  # 500·.1/99 = .5 flips per pair on average
    floor = asymmetric(y, 100, np.random.RandomState(42), rate=0.1, sparsity=0.0)
    full = asymmetric(y, 100, np.random.RandomState(42), rate=0.1, sparsity=0.0, rounding="largest_remainder")
    assert (floor.y_noisy != y).mean() < 0.05
    assert (full.y_noisy != y).mean() == pytest.approx(0.1, abs=1e-3)
    iid = asymmetric(y, 100, np.random.RandomState(42), rate=0.1, sparsity=0.0, sampling="iid")
    assert abs((iid.y_noisy != y).mean() - 0.1) < 5 * np.sqrt(0.09 / len(y))


def test_two_classes() -> None:
    y = np.repeat([0, 1], 1000)
    sides = set()
    for seed in range(20):
        T = asymmetric(y, 2, np.random.RandomState(seed), rate=0.2, sparsity=0.5).T_nominal
        assert sorted(np.diagonal(T)) == pytest.approx([0.6, 1.0])  # the trace stays 2·.8
        sides.add(int(np.diagonal(T).argmax()))
        dense = asymmetric(y, 2, np.random.RandomState(seed), rate=0.2, sparsity=0.4).T_nominal
        assert np.trace(dense) == pytest.approx(1.6)
        assert np.allclose(dense.sum(1), 1)
    assert sides == {0, 1}


def test_rate_zero_is_the_identity() -> None:
    y = np.repeat(np.arange(5), 7)
    result = asymmetric(y, 5, np.random.default_rng(0), rate=0, sparsity=0.4)
    assert np.array_equal(result.y_noisy, y)
    assert np.array_equal(result.T_nominal, np.eye(5))


@pytest.mark.parametrize(
    ("K", "rate", "sparsity", "message"),
    [(10, 0.9, 0.0, "rate"), (10, 0.2, 0.9, "sparsity"), (2, 0.5, 0.0, "rate"), (10, 0.2, -0.1, "sparsity")],
)
def test_limits(K, rate, sparsity, message) -> None:
    with pytest.raises(SpecError, match=message):
        asymmetric(np.arange(K), K, np.random.RandomState(0), rate=rate, sparsity=sparsity)


def test_a_class_smaller_than_its_flips_stays_as_it_is() -> None:
    y = np.array([0, 0, 0, 1, 2, 2])
    M = np.array([[1.0, 0.9, 0.5], [0.0, 0.1, 0.0], [0.0, 0.0, 0.5]])
    # a stated prior of (0, 1/2, 1/3) asks for ⌊.9·3⌋ = 2 flips of the one sample of class 1 and ⌊.5·2⌋ = 1 of class 2
    noisy = flip(y, M, np.array([0, 1 / 2, 1 / 3]), np.random.RandomState(0))
    assert noisy[:4].tolist() == [0, 0, 0, 1]
    assert sorted(noisy[4:].tolist()) == [0, 2]


def test_random_sum_stays_in_its_range() -> None:
    for seed in range(50):
        x = random_sum(10, 6.0, 1.0, 1e-5, np.random.RandomState(seed))
        assert x.sum() == pytest.approx(6)
        assert x.max() <= 1 + 1e-6
        assert x.min() >= 1e-5 - 1e-6
    for total, low in ((4.0, 0.0), (0.3, 0.2)):
        with pytest.raises(SpecError, match="cannot sum"):
            random_sum(3, total, 1.0, low, np.random.RandomState(0))
    assert len(random_sum(0, 0.0, 1.0, 0.0, np.random.RandomState(0))) == 0

"""Class-dependent noise against numbers worked out by hand."""

import numpy as np
import pytest

from fednoise_core.io import SpecError
from fednoise_core.noise import models
from fednoise_core.noise.registry import nominal_rate
from fednoise_core.noise.sampling import _draw_categorical as categorical
from fednoise_core.noise.sampling import check_matrix, realised_matrix, sample
from fednoise_core.settings.functions import largest_remainder

Y = np.repeat(np.arange(10), 10_000)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def within(T: np.ndarray, y: np.ndarray, noisy: np.ndarray, sigmas: float = 5) -> None:
    """Every cell of the realised counts lies within `sigmas` standard deviations of n_i·T[i, j]."""
    K = len(T)
    n = np.bincount(y, minlength=K)[:, None]
    counts = np.bincount(y * K + noisy, minlength=K * K).reshape(K, K)
    assert (np.abs(counts - n * T) <= sigmas * np.sqrt(n * T * (1 - T)) + 1e-9).all()


def test_symmetric_matrix_by_hand() -> None:
    assert np.allclose(models.symmetric_matrix(4, 0.3), np.full((4, 4), 0.1) + np.eye(4) * 0.6)
    # inclusive: each class gets .3/4 = .075, the true one .7 + .075
    assert np.allclose(models.symmetric_matrix(4, 0.3, inclusive=True), np.full((4, 4), 0.075) + np.eye(4) * 0.7)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (models.symmetric, {"rate": 0.4}),
        (models.symmetric, {"rate": 0.4, "inclusive": True}),
        (models.random, {"rate": 0.4}),
        (models.pair, {"rate": 0.45}),
        (models.semantic, {"rate": 0.3}),
    ],
)
def test_iid_draws_follow_the_matrix(model, settings) -> None:
    result = model(Y, 10, rng(), **settings)
    check_matrix(result.T_nominal)
    within(result.T_nominal, Y, result.y_noisy)
    assert result.y_noisy.dtype == np.int64


@pytest.mark.parametrize("sampling", ["iid", "exact", "exact_rate"])
@pytest.mark.parametrize("rounding", ["largest_remainder", "floor"])
@pytest.mark.parametrize("model", [models.symmetric, models.random, models.pair, models.semantic])
def test_rate_zero_is_the_identity(model, sampling, rounding) -> None:
    for seed in range(5):
        result = model(Y[::50], 10, rng(seed), rate=0.0, sampling=sampling, rounding=rounding)
        assert np.array_equal(result.y_noisy, Y[::50])
        assert result.y_noisy is not Y
        assert np.array_equal(result.T_nominal, np.eye(10))


def test_exact_counts_by_hand() -> None:
    y = np.repeat([0, 1, 2], [100, 50, 10])
    T = models.symmetric_matrix(3, 0.3)  # .7 and .15

    def counts(rounding: str, sampling: str = "exact") -> list[list[int]]:
        noisy = sample(y, T, rng(), sampling, rounding)
        return np.bincount(y * 3 + noisy, minlength=9).reshape(3, 3).tolist()

    # class 1: quotas 7.5, 35, 7.5, so one of the two halves is rounded up; class 2: quotas 1.5, 1.5, 7
    assert counts("largest_remainder") == [[70, 15, 15], [8, 35, 7], [2, 1, 7]]
    assert counts("floor") == [[70, 15, 15], [7, 36, 7], [1, 1, 8]]
    # exact_rate: 30, 15 and 3 flips, wherever they go
    for rounding in ("largest_remainder", "floor"):
        drawn = np.array(counts(rounding, "exact_rate"))
        assert (drawn.sum(1) - np.diagonal(drawn)).tolist() == [30, 15, 3]


def test_floor_does_not_lose_a_whole_count_to_rounding() -> None:
    noisy = models.symmetric(np.zeros(10, int), 4, rng(), rate=0.3, sampling="exact", rounding="floor").y_noisy
    assert np.bincount(noisy, minlength=4).tolist() == [7, 1, 1, 1]  # though .3/3·10 is .9999999999999999 in floats


def test_an_impossible_class_never_comes_up() -> None:
    # not even at the very ends of the uniforms, where inversion has to choose a side
    ends = np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])
    assert categorical(np.array([0.0, 0.5, 0.0, 0.5, 0.0]), ends).tolist() == [1, 3, 3]


def test_exact_rate_rounds_as_it_says() -> None:
    y = np.zeros(7, dtype=np.int64)  # .4·7 = 2.8 flips
    floor = models.symmetric(y, 10, rng(), rate=0.4, sampling="exact_rate", rounding="floor")
    nearest = models.symmetric(y, 10, rng(), rate=0.4, sampling="exact_rate")
    assert (int((floor.y_noisy != 0).sum()), int((nearest.y_noisy != 0).sum())) == (2, 3)


def test_exact_takes_a_random_subset() -> None:
    y = np.zeros(1000, dtype=np.int64)
    hit = sum(models.symmetric(y, 2, rng(s), rate=0.5, sampling="exact").y_noisy for s in range(200))
    assert abs(hit.mean() - 100) < 1e-9  # always 500 of 1000
    assert hit.min() > 100 - 5.5 * np.sqrt(50)
    assert hit.max() < 100 + 5.5 * np.sqrt(50)


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5, 1.0])
def test_two_classes(rate) -> None:
    y = np.tile([0, 1], 5000)
    for model in (models.symmetric, models.pair):
        result = model(y, 2, rng(), rate=rate)
        assert np.allclose(result.T_nominal, [[1 - rate, rate], [rate, 1 - rate]])
        within(result.T_nominal, y, result.y_noisy)
    T = models.random(y, 2, rng(), rate=rate).T_nominal
    assert np.allclose(T[[0, 1], [1, 0]], 1 - T[[0, 1], [0, 1]])
    assert (np.abs(np.diagonal(T) - (1 - rate)) <= 0.05).all()


def test_random_matrix_from_its_draws() -> None:
    result = models.random(Y, 10, rng(3), rate=0.4)
    again = rng(3)
    u = again.uniform(-0.05, 0.05, 10)
    first = again.dirichlet(np.ones(9))
    assert np.allclose(np.diagonal(result.T_nominal), 0.6 + u)
    assert np.allclose(result.T_nominal[0, 1:], (0.4 - u[0]) * first)
    printed = models.random(Y, 10, rng(3), rate=0.4, diag="printed")
    assert np.allclose(np.diagonal(printed.T_nominal), 0.4 + u)


def test_random_clips_at_the_ends() -> None:
    T = models.random(Y, 10, rng(1), rate=0.99).T_nominal
    assert np.diagonal(T).min() == 0
    assert np.diagonal(models.random(Y, 10, rng(1), rate=0.01).T_nominal).max() == 1


def test_pair_targets_by_hand() -> None:
    coarse = np.array([1, 0, 1, 0, 1, 0])  # superclasses {1, 3, 5} and {0, 2, 4}
    for K, offset, within, expected in (
        (4, 1, None, [1, 2, 3, 0]),
        (4, -1, None, [3, 0, 1, 2]),
        (10, 1, "consecutive5", [1, 2, 3, 4, 0, 6, 7, 8, 9, 5]),
        (10, -1, "consecutive5", [4, 0, 1, 2, 3, 9, 5, 6, 7, 8]),
        (6, 1, "coarse", [2, 3, 4, 5, 0, 1]),
        (6, -1, "coarse", [4, 5, 0, 1, 2, 3]),
    ):
        blocks = models.superclass_of(K, within, coarse)
        assert models.next_classes(np.arange(K), blocks, offset).tolist() == expected


def test_semantic_map_of_cifar10() -> None:
    noisy = models.semantic(np.arange(10), 10, rng(), rate=1.0).y_noisy
    assert noisy.tolist() == [0, 1, 0, 5, 7, 3, 6, 7, 8, 1]  # bird, cat, deer, dog, truck move
    assert models.semantic(np.arange(3), 3, rng(), rate=1.0, map={"2": 0}).y_noisy.tolist() == [0, 1, 0]


def test_matrix_from_file_and_rows(tmp_path) -> None:
    rows = [[0.9, 0.1], [0.25, 0.75]]
    (tmp_path / "T.csv").write_text("# mine\n0.9,0.1\n0.25,0.75\n")
    y = np.repeat([0, 1], 4000)
    a = models.matrix(y, 2, rng(), file=str(tmp_path / "T.csv"), sampling="exact")
    b = models.matrix(y, 2, rng(), rows=rows, sampling="exact")
    assert np.array_equal(a.y_noisy, b.y_noisy)
    assert np.allclose(realised_matrix(y, a.y_noisy, 2), rows)
    assert nominal_rate({"kind": "matrix", "rows": rows}, 2) == pytest.approx(0.175)  # (.1 + .25) / 2


@pytest.mark.parametrize(
    ("model", "K", "settings", "message"),
    [
        (models.symmetric, 10, {"rate": 1.01}, "rate"),
        (models.pair, 10, {"rate": 0.4, "offset": 2}, "offset"),
        (models.pair, 10, {"rate": 0.4, "within_superclass": "coarse"}, "no superclasses"),
        (models.pair, 7, {"rate": 0.4, "within_superclass": "consecutive5"}, "blocks of five"),
        (models.semantic, 7, {"rate": 0.4}, "map: required"),
        (models.semantic, 7, {"rate": 0.4, "map": {"7": 1}}, "semantic: map"),
        (models.matrix, 2, {}, "either file or rows"),
        (models.matrix, 2, {"file": "none.csv"}, "none.csv: no such file"),
        (models.matrix, 3, {"rows": [[1, 0], [0, 1]]}, "the data set has 3 classes"),
        (models.matrix, 2, {"rows": [[0.9, 0.2], [0, 1]]}, "sum to 1"),
        (models.matrix, 2, {"rows": [[1, 0, 0], [0, 1, 0]]}, "square"),
        (models.matrix, 2, {"file": "T.csv"}, "T.csv"),
    ],
)
def test_wrong_settings_are_refused(model, K, settings, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "T.csv").write_text("1,x\n0,1\n")
    with pytest.raises(SpecError, match=message):
        model(np.arange(K), K, rng(), **settings)


def test_largest_remainder_by_hand() -> None:
    assert largest_remainder(np.array([1, 1, 1]), 10).tolist() == [4, 3, 3]
    assert largest_remainder(np.array([0.3, 0.7]), 10).tolist() == [3, 7]
    assert largest_remainder(np.array([0.0, 5.0, 0.0]), 7).tolist() == [0, 7, 0]
    for seed in range(50):
        shares, total = rng(seed).dirichlet(np.ones(7)), 1 + seed * 13
        counts = largest_remainder(shares, total)
        assert counts.sum() == total
        assert np.abs(counts - shares * total).max() < 1


def test_a_class_without_samples_has_an_undefined_row() -> None:
    T = realised_matrix(np.array([0, 0, 2]), np.array([0, 0, 2]), 3)
    assert np.isnan(T[1]).all()
    assert T[0].tolist() == [1, 0, 0]

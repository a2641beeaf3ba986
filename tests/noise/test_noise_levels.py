"""Noise that differs from client to client."""

import numpy as np
import pytest

from fednoise_core.data.labelled import LabelledData
from fednoise_core.data.partition import Partition
from fednoise_core.io import SpecError
from fednoise_core.noise import levels, registry
from fednoise_core.noise.registry import nominal_rate
from fednoise_core.noise.sampling import NoiseResult, realised_matrix, wrong_share

K = 10
Y = np.tile(np.arange(K), 4000)
CLIENTS = [np.arange(c, len(Y), 40) for c in range(40)]  # client c holds every 40th sample: 1000 each, one class each
MIXED = np.array_split(np.random.default_rng(0).permutation(len(Y)), 40)  # 1000 each, all classes


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rates(result: NoiseResult, clients: list[np.ndarray]) -> np.ndarray:
    """Realised rate of each client."""
    return wrong_share(result.y_noisy != Y, clients)


def test_fedcorr_levels_and_rates() -> None:
    result = levels.fedcorr(Y, K, rng(), clients=MIXED, rho=0.6, tau=0.5)
    noisy = result.level > 0
    assert 24 - 5 * 3.1 < noisy.sum() < 24 + 5 * 3.1  # Binomial(40, .6): 24 ± 3.1
    assert result.level[noisy].min() >= 0.5
    assert result.level.max() <= 1
    real = result.level * 0.9  # (K-1)/K: the replacement may be the true label
    assert (np.abs(rates(result, MIXED) - real) <= 5 * np.sqrt(real * (1 - real) / 1000) + 1e-12).all()
    assert result.T_nominal.shape == (40, K, K)
    assert np.allclose(np.diagonal(result.T_nominal, axis1=1, axis2=2), 1 - real[:, None])
    assert np.allclose(result.T_nominal.sum(2), 1)


def test_fedcorr_corners() -> None:
    clean = levels.fedcorr(Y, K, rng(), clients=MIXED, rho=0, tau=0.5)
    assert np.array_equal(clean.y_noisy, Y)
    worst = levels.fedcorr(Y, K, rng(), clients=MIXED, rho=1, tau=1)
    assert (worst.level == 1).all()
    assert abs((worst.y_noisy != Y).mean() - 0.9) < 5 * np.sqrt(0.09 / len(Y))
    assert nominal_rate({"kind": "fedcorr", "rho": 1, "tau": 1}, 10) == 0.9
    assert nominal_rate({"kind": "fedcorr", "rho": 0.6, "tau": 0.5}, 10) == pytest.approx(0.6 * 0.75 * 0.9)


def test_fednoro_exact_number_of_noisy_clients() -> None:
    for seed in range(10):
        result = levels.fednoro(Y, K, rng(seed), clients=MIXED, rho=0.33, lower=0.3, upper=0.5)
        assert (result.level > 0).sum() == 13  # ⌊.33·40⌋
        assert result.level[result.level > 0].min() >= 0.3
        assert result.level.max() <= 0.5
    exclusive = levels.fednoro(Y, K, rng(), clients=MIXED, rho=1, lower=0.4, upper=0.4, inclusive=False)
    assert abs((exclusive.y_noisy != Y).mean() - 0.4) < 5 * np.sqrt(0.24 / len(Y))
    inclusive = levels.fednoro(Y, K, rng(), clients=MIXED, rho=1, lower=0.4, upper=0.4)
    assert abs((inclusive.y_noisy != Y).mean() - 0.36) < 5 * np.sqrt(0.36 * 0.64 / len(Y))


def test_client_groups_by_hand() -> None:
    groups = [{"share": 0.25, "low": 0.0, "high": 0.0}, {"share": 0.75, "low": 0.2, "high": 0.49, "flip": "pair"}]
    result = levels.client_groups(Y, K, rng(), clients=CLIENTS, groups=groups)
    expected = np.concatenate([np.zeros(10), 0.2 + 0.01 * np.arange(30)])  # .29 over 29 steps
    assert np.allclose(result.level, expected)
    assert np.allclose(rates(result, CLIENTS), np.floor(1000 * expected + 1e-9) / 1000)  # exact counts
    wrong = result.y_noisy != Y
    assert ((Y - result.y_noisy) % K == 1)[wrong].all()  # FedRN's pair flip goes to the class before
    assert nominal_rate({"kind": "client_groups", "groups": groups}, K) == pytest.approx(0.75 * 0.345)


def test_client_groups_symmetric_never_keeps_the_label() -> None:
    groups = [{"share": 1.0, "low": 1.0, "high": 1.0}]
    result = levels.client_groups(Y, K, rng(), clients=MIXED, groups=groups)
    assert (result.y_noisy != Y).all()
    off = realised_matrix(Y, result.y_noisy, K)[~np.eye(K, dtype=bool)]
    assert (np.abs(off - 1 / 9) < 5 * np.sqrt(1 / 9 * 8 / 9 / 4000)).all()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "groups"),
        ([{"share": 0.5, "low": 0, "high": 0}], "sum to 0.5"),
        ([{"share": 1, "low": 0.5, "high": 0.4}], "low"),
        ([{"share": 1, "low": 0, "high": 0.4, "fip": "pair"}], "did you mean 'flip'"),
        ([{"share": 1, "low": 0}], "'high' is missing"),
        ([0.4], r"groups\[0\]"),
    ],
)
def test_client_groups_refuses(groups, message) -> None:
    with pytest.raises(SpecError, match=message):
        levels.client_groups(Y, K, rng(), clients=MIXED, groups=groups)


def test_globalized_counts_exactly() -> None:
    y = Y[:1005]
    result = levels.globalized(y, K, rng(), rate=0.3)
    assert (result.y_noisy != y).sum() == 301  # ⌊301.5⌋
    assert set((result.y_noisy - y) % K) == set(range(K))  # to every other class
    paired = levels.globalized(y, K, rng(), rate=0.3, flip="pair")
    wrong = paired.y_noisy != y
    assert wrong.sum() == 301
    assert ((paired.y_noisy - y) % K == 1)[wrong].all()
    assert np.array_equal(levels.globalized(y, K, rng(), rate=0).y_noisy, y)


@pytest.mark.parametrize("flip", ["symmetric", "pair"])
def test_localized_never_leaves_the_client_s_classes(flip) -> None:
    pick = rng(5)
    owner = pick.integers(0, 40, len(Y))
    allowed = pick.random((40, K)) < 0.4
    clients = [np.flatnonzero((owner == c) & allowed[c][Y]) for c in range(40)]
    result = levels.localized(Y, K, rng(), clients=clients, low=0.2, high=0.6, flip=flip)
    for c, part in enumerate(clients):
        assert set(result.y_noisy[part]) <= set(Y[part])
        n = len(part)
        if len(set(Y[part])) >= 2:
            assert 0.2 <= result.level[c] <= 0.6
            assert (result.y_noisy != Y)[part].sum() == int(n * result.level[c] + 1e-9)
        else:
            assert result.level[c] == 0
            assert c in result.notes["clean_clients"]
    nobody = np.setdiff1d(np.arange(len(Y)), np.concatenate(clients))
    assert np.array_equal(result.y_noisy[nobody], Y[nobody])


def test_localized_pair_by_hand() -> None:
    y = np.array([1, 4, 7, 1, 4, 7])
    result = levels.localized(y, K, rng(), clients=[np.arange(6)], low=1, high=1, flip="pair")
    assert result.y_noisy.tolist() == [4, 7, 1, 4, 7, 1]  # the next class the client has, cyclically
    block = levels.localized(
        y, K, rng(), clients=[np.arange(6)], low=1, high=1, flip="pair", within_superclass="consecutive5"
    )
    assert block.y_noisy.tolist() == [4, 1, 7, 4, 1, 7]  # {1, 4} in one block; 7 is alone in its own


def test_localized_leaves_clients_of_one_class_clean() -> None:
    result = levels.localized(Y, K, rng(), clients=CLIENTS, low=0.5, high=0.5)
    assert np.array_equal(result.y_noisy, Y)
    assert result.notes["clean_clients"] == list(range(40))


def test_nominal_matrices_match_what_is_drawn() -> None:
    for model, settings in [
        (levels.fedcorr, {"rho": 1.0, "tau": 0.3}),
        (levels.localized, {"low": 0.3, "high": 0.3}),
        (levels.localized, {"low": 0.3, "high": 0.3, "flip": "pair"}),
        (levels.client_groups, {"groups": [{"share": 1.0, "low": 0.1, "high": 0.5}]}),
        (levels.client_groups, {"groups": [{"share": 1.0, "low": 0.1, "high": 0.5, "flip": "pair"}]}),
    ]:
        result = model(Y, K, rng(), clients=MIXED, **settings)
        counts = np.stack([np.bincount(Y[p] * K + result.y_noisy[p], minlength=K * K).reshape(K, K) for p in MIXED])
        n = counts.sum(2, keepdims=True)
        T = result.T_nominal
        assert (np.abs(counts - n * T) <= 6 * np.sqrt(n * T * (1 - T)) + 1e-9).all()


def test_empty_clients_and_overlap() -> None:
    result = levels.fedcorr(Y, K, rng(), clients=[MIXED[0], np.zeros(0, np.int64)], rho=1, tau=1)
    untouched = np.setdiff1d(np.arange(len(Y)), MIXED[0])
    assert np.array_equal(result.y_noisy[untouched], Y[untouched])
    overlapping = Partition.from_parts([np.arange(5), np.arange(4, 9)], {"notes": {"samples": 9}})
    with pytest.raises(SpecError, match="overlaps"):
        registry.inject(LabelledData(Y[:9], K), {"kind": "fedcorr", "rho": 1, "tau": 1}, 0, overlapping)


def test_two_classes() -> None:
    y = np.tile([0, 1], 500)
    result = levels.localized(y, 2, rng(), clients=[np.arange(1000)], low=0.3, high=0.3)
    assert (result.y_noisy != y).sum() == 300
    assert np.array_equal(result.y_noisy[result.y_noisy != y], 1 - y[result.y_noisy != y])

"""Partitions against their definitions, with numbers worked out by hand (methods.md section 3)."""

import numpy as np
import pytest

from fednoise_core.io import SpecError
from fednoise_core.partition import schemes, skew

K, C, N = 10, 40, 6007
Y = np.random.default_rng(9).integers(0, K, N)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def histogram(parts: list[np.ndarray], y: np.ndarray = Y, classes: int = K) -> np.ndarray:
    return np.stack([np.bincount(y[part], minlength=classes) for part in parts])


def openset(mode: str, seed: int = 0, clients: int = C, y: np.ndarray = Y, classes: int = K, **settings):
    notes: dict[str, object] = {}
    return schemes.openset(y, clients, rng(seed), classes=classes, notes=notes, mode=mode, **settings), notes


SCHEMES = {
    "iid": lambda r: schemes.iid(Y, C, r),
    "openset uniform": lambda r: schemes.openset(Y, C, r, classes=K, notes={}, mode="uniform"),
    "openset nonuniform": lambda r: schemes.openset(Y, C, r, classes=K, notes={}, mode="nonuniform"),
    "bernoulli_dirichlet": lambda r: schemes.bernoulli_dirichlet(Y, C, r, classes=K, notes={}),
    "bernoulli_dirichlet skewed": lambda r: schemes.bernoulli_dirichlet(Y, C, r, classes=K, notes={}, p=0.2, alpha=1.0),
    "shards": lambda r: skew.classes_per_client(Y, C, r, classes=K, notes={}, n=3, mode="shards"),
    "disjoint_classes": lambda r: skew.classes_per_client(Y, C, r, classes=K, notes={}, n=3, mode="disjoint_classes"),
    "dirichlet": lambda r: skew.dirichlet(Y, C, r, classes=K, notes={}, alpha=0.3),
    "dirichlet repaired": lambda r: skew.dirichlet(Y, C, r, classes=K, notes={}, alpha=0.01),
    "quantity": lambda r: skew.quantity(Y, C, r, notes={}, alpha=0.2),
    "natural": lambda r: schemes.natural(Y, 0, r, client_ids=r.integers(0, C, N) * 3 + 5),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_sample_once_and_sorted(name, seed) -> None:
    parts = SCHEMES[name](rng(seed))
    assert len(parts) == C
    assert all((np.diff(part) > 0).all() for part in parts)
    assert all(part.dtype == np.int64 for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(N))


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "natural"])
def test_same_seed_same_parts_and_other_seed_other_parts(name) -> None:
    a, b, c = (SCHEMES[name](rng(seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(a, c, strict=True))


def test_iid_sizes() -> None:
    sizes = [len(part) for part in schemes.iid(Y, C, rng())]
    assert sorted(sizes) == [150] * 33 + [151] * 7  # 6007 = 40·150 + 7


@pytest.mark.parametrize("mode", ["uniform", "nonuniform"])
@pytest.mark.parametrize("q", [0.2, 0.5, 0.9])
def test_openset_rows_are_never_full_or_empty(mode, q) -> None:
    for seed in range(5):
        parts, _ = openset(mode, seed, q=q)
        class_counts = (histogram(parts) > 0).sum(1)
        assert class_counts.max() <= K - 1
        if mode == "uniform":
            assert class_counts.min() >= 1


def test_openset_uniform_shares_differ_by_at_most_one() -> None:
    for seed in range(5):
        counts = histogram(openset("uniform", seed)[0])
        for k in range(K):
            shares = counts[counts[:, k] > 0, k]
            assert shares.max() - shares.min() <= 1


def test_openset_nonuniform_shares_are_dirichlet() -> None:
    # over Dir(1) with M parts, E[u²] = 2/(M(M+1)); holders come from the uniform draw with the same seed
    y = np.repeat(np.arange(4), 10_000)
    squares, expected = [], []
    for seed in range(60):
        parts, _ = openset("nonuniform", seed, clients=12, y=y, classes=4)
        rows = schemes.draw_presence(12, 4, 0.5, rng(seed), forbid_full=True, notes={})
        share = histogram(parts, y, 4) / 10_000
        assert (share[~rows] == 0).all()
        squares += (share**2).sum(0).tolist()
        expected += [2 / (m + 1) for m in rows.sum(0)]
    assert np.mean(squares) == pytest.approx(np.mean(expected), rel=0.05)


def test_openset_presence_has_the_probability_asked_for() -> None:
    # given neither all 0 nor all 1 of 4: P(class) = (q - q⁴)/(1 - q⁴ - (1-q)⁴), for q = .3: .2919/.7518 = .3883
    rows = schemes.draw_presence(20_000, 4, 0.3, rng(), forbid_full=True, notes={})
    expected = 0.2919 / 0.7518
    assert (np.abs(rows.mean(0) - expected) < 5 * np.sqrt(expected * (1 - expected) / 20_000)).all()


def test_uncovered_classes() -> None:
    y = np.tile(np.arange(20), 30)
    for seed in range(20):
        assigned, facts = openset("uniform", seed, clients=2, y=y, classes=20, q=0.3)
        counts = histogram(assigned, y, 20)
        assert counts.sum() == 600
        assert (counts > 0).sum(1).max() <= 19
        assert ((counts[:, facts["uncovered_classes"]] > 0).sum(0) == 1).all()  # handed to one client each


def test_assign_takes_only_rows_with_room() -> None:
    # 3 classes, 2 clients: every row holds 1 or 2 classes; together all 3, and no row becomes full
    y = np.repeat([0, 1, 2], 10)
    for seed in range(200):
        present = histogram(openset("uniform", seed, clients=2, y=y, classes=3, q=0.3)[0], y, 3) > 0
        assert present.any(0).all()
        assert present.sum(1).max() <= 2


def test_bernoulli_dirichlet_number_of_classes() -> None:
    # (α, p) = (1, .2), K = 10: 10·.2/(1 - .8^10) = 2.24 classes per client, given at least one
    rows = schemes.draw_presence(10_000, 10, 0.2, rng(), forbid_full=False, notes={})
    assert rows.sum(1).mean() == pytest.approx(2.24, abs=5 * 1.1 / 100)
    assert rows.any(1).all()


def test_bernoulli_dirichlet_full_rows_and_concentration() -> None:
    even = histogram(schemes.bernoulli_dirichlet(Y, 10, rng(), classes=K, notes={}, p=1.0, alpha=1e6))
    assert (even > 0).all()  # p = 1: everybody has every class
    n = np.bincount(Y, minlength=K)
    assert (np.abs(even - n / 10) < 5 * np.sqrt(n * 0.09)).all()  # each sample on its own: Binomial(n_k, 1/10)
    odd = histogram(schemes.bernoulli_dirichlet(Y, 10, rng(), classes=K, notes={}, p=1.0, alpha=0.05))
    assert (odd.max(0) / n).mean() > 0.5  # a small α: most of a class sits with one client


def test_fedlsr_sizes_classes_and_overlap() -> None:
    notes: dict[str, object] = {}
    parts = skew.classes_per_client(Y, C, rng(), classes=K, notes=notes, n=3)
    counts = histogram(parts)
    assert {len(part) for part in parts} == {150}  # ⌊6007/40⌋
    assert all((np.diff(part) > 0).all() for part in parts)  # without replacement within a client
    assert (counts > 0).sum(1).max() <= 3
    assert (counts > 0).sum(1).mean() > 2.8
    assert len(np.unique(np.concatenate(parts))) < C * 150  # clients overlap
    assert notes["short_clients"] == 0


def test_fedlsr_picks_classes_evenly() -> None:
    parts = skew.classes_per_client(Y, 600, rng(), classes=K, notes={}, n=3)
    picked = (histogram(parts) > 0).sum(0)
    assert (np.abs(picked - 180) < 5 * np.sqrt(600 * 0.3 * 0.7)).all()


def test_fedlsr_with_too_few_samples_of_a_class() -> None:
    y = np.repeat([0, 1, 2, 3], [97, 1, 1, 1])  # 2 clients, 50 samples each, if they can
    notes: dict[str, object] = {}
    parts = skew.classes_per_client(y, 2, rng(0), classes=4, notes=notes, n=2)
    for part in parts:
        expected = 50 if 0 in y[part] else 2
        assert len(part) == expected
    assert notes["short_clients"] == sum(len(part) < 50 for part in parts)


def test_fill_by_hand() -> None:
    assert skew._fill_counts(np.array([5, 5, 0]), np.array([2, 9, 4])).tolist() == [2, 8, 0]
    assert skew._fill_counts(np.array([5, 5]), np.array([2, 3])).tolist() == [2, 3]


def test_shards() -> None:
    y = np.repeat(np.arange(4), 30)
    sizes = set()
    for seed in range(20):
        parts = skew.classes_per_client(y, 6, rng(seed), classes=4, notes={}, n=2, mode="shards")
        assert {len(part) for part in parts} == {20}  # 12 shards of 10
        sizes |= set(histogram(parts, y, 4).ravel().tolist())
    assert sizes == {0, 10, 20}  # 20: both shards of one class


@pytest.mark.parametrize(("classes", "clients", "n"), [(10, 40, 3), (10, 7, 4), (5, 5, 5), (10, 10, 1), (3, 100, 2)])
def test_disjoint_classes_are_dealt_evenly(classes, clients, n) -> None:
    for seed in range(5):
        hands = skew.deal_classes(classes, clients, n, rng(seed))
        assert all(len(set(hand)) == n for hand in hands.tolist())
        holders = np.bincount(hands.ravel(), minlength=classes)
        assert holders.max() - holders.min() <= (0 if n * clients % classes == 0 else 1)
        y = np.repeat(np.arange(classes), 200)
        parts = skew.classes_per_client(y, clients, rng(seed), classes=classes, notes={}, n=n, mode="disjoint_classes")
        counts = histogram(parts, y, classes)
        assert ((counts > 0).sum(1) == n).all()
        for k in range(classes):
            shares = counts[counts[:, k] > 0, k]
            assert shares.max() - shares.min() <= 1


def test_deal_mixes_the_pairs() -> None:
    # 45 pairs of 10 classes; a plain round-robin deal makes only a few of them
    pairs = {tuple(sorted(hand)) for hand in skew.deal_classes(10, 400, 2, rng()).tolist()}
    assert len(pairs) == 45


def test_random_draws() -> None:
    parts = schemes.random_draws(Y, 4, rng(), size=3000)
    assert {len(np.unique(part)) for part in parts} == {3000}
    common = len(np.intersect1d(parts[0], parts[1]))  # independent draws: 3000²/6007 = 1498 in common
    assert abs(common - 3000**2 / N) < 5 * np.sqrt(3000 * 0.25)
    apart = schemes.random_draws(Y, 4, rng(), size=1500, overlap=False)
    assert len(np.unique(np.concatenate(apart))) == 6000


def test_dirichlet_skew() -> None:
    n = np.bincount(Y, minlength=K)
    even = histogram(skew.dirichlet(Y, 10, rng(), classes=K, notes={}, alpha=1e6))
    assert (np.abs(even - n / 10) < 3).all()
    odd = histogram(skew.dirichlet(Y, 10, rng(), classes=K, notes={}, alpha=0.05))
    assert (odd.max(0) / n).mean() > 0.5


def test_dirichlet_repair_is_bounded_and_exact() -> None:
    notes: dict[str, object] = {}
    parts = skew.dirichlet(Y, C, rng(), classes=K, notes=notes, alpha=0.01, min_size=100)
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() == 100
    assert notes["moved"] > 0
    everyone = skew.dirichlet(Y, C, rng(), classes=K, notes={}, alpha=0.01, min_size=150)
    assert sorted(len(part) for part in everyone)[:33] == [150] * 33  # nearly all samples have to move
    roomy: dict[str, object] = {}
    skew.dirichlet(Y, C, rng(), classes=K, notes=roomy, alpha=100.0)
    assert roomy["moved"] == 0


def test_raise_floor_by_hand() -> None:
    # 3 + 2 missing; 20 and 12 come down to one level: 15 + 12 = 27 = 32 - 5
    assert skew.raise_floor(np.array([20, 1, 12, 2]), 4).tolist() == [15, 4, 12, 4]
    # 7 missing: 20 → 12.5 is not whole, 13 and 12: the level is 12, one client keeps one more
    assert skew.raise_floor(np.array([20, 0, 12, 1]), 4).tolist() == [13, 4, 12, 4]
    assert skew.raise_floor(np.array([5, 5]), 5).tolist() == [5, 5]
    assert skew.raise_floor(np.array([10, 0]), 5).tolist() == [5, 5]


def test_quantity_skew() -> None:
    notes: dict[str, object] = {}
    sizes = np.array([len(part) for part in skew.quantity(Y, C, rng(), notes=notes, alpha=0.1, min_size=5)])
    assert sizes.min() == 5
    assert sizes.max() > 5 * N / C
    assert notes["moved"] > 0
    even = np.array([len(part) for part in skew.quantity(Y, C, rng(), notes={}, alpha=1e7)])
    assert even.max() - even.min() <= 2
    # labels play no part: the share of a class in a large client is its overall share
    parts = skew.quantity(np.tile(np.arange(2), 3000), 2, rng(), notes={}, alpha=100.0)
    assert abs(np.mean(parts[0] % 2) - 0.5) < 5 * 0.5 / np.sqrt(len(parts[0]))


def test_natural() -> None:
    parts = schemes.natural(np.zeros(5, int), 0, rng(), client_ids=np.array([7, 3, 7, 9, 3]))
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2], [3]]


FACTS = {"classes": K, "notes": {}}


@pytest.mark.parametrize(
    ("scheme", "y", "clients", "settings", "message"),
    [
        (schemes.openset, Y, C, {**FACTS, "mode": "uniform", "q": 0}, r"\.q: "),
        (schemes.openset, Y, C, {**FACTS, "mode": "uniform", "q": 1.1}, r"\.q: "),
        # one client cannot hold both and lack one
        (schemes.openset, np.array([0, 1]), 1, {**FACTS, "classes": 2, "mode": "uniform"}, "10000"),
        (schemes.openset, Y, 3, {**FACTS, "mode": "uniform", "q": 1e-9}, "empty or full after 10000 redraws"),
        (schemes.bernoulli_dirichlet, Y, C, {**FACTS, "p": 0}, r"\.p: "),
        (schemes.bernoulli_dirichlet, Y, C, {**FACTS, "alpha": 0}, r"\.alpha: "),
        (skew.classes_per_client, Y, C, {**FACTS, "n": 0}, r"\.n: "),
        (skew.classes_per_client, Y, C, {**FACTS, "n": 11}, "n: expected"),
        (skew.classes_per_client, Y, C, {**FACTS, "n": 200, "mode": "shards"}, "8000 shards for 6007 samples"),
        (skew.classes_per_client, Y, 3, {**FACTS, "n": 2, "mode": "disjoint_classes"}, "cannot hold 10 classes"),
        (skew.classes_per_client, np.array([0, 0, 1]), 1, {**FACTS, "n": 3}, "only 2 have samples"),
        (skew.dirichlet, Y, C, {**FACTS, "alpha": 1.0, "min_size": 151}, "need more than 6007"),
        (schemes.random_draws, Y, 4, {"size": N + 1}, "size"),
        (schemes.random_draws, Y, 4, {"size": 1502, "overlap": False}, "size"),
        (schemes.natural, Y, 0, {"client_ids": None}, "no client ids"),
    ],
)
def test_impossible_settings_are_refused(scheme, y, clients, settings, message) -> None:
    with pytest.raises(SpecError, match=message):
        scheme(y, clients, rng(), **settings)

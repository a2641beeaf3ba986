"""Randomised response: closed forms, the sampler, unbiasedness, one release a run (methods.md section 4)."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from fednoise_core import privacy
from fednoise_core.io import SpecError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("K", "epsilon"), [(10, 0.811), (100, 3.209), (14, 1.179)])
def test_the_paper_s_epsilons(K, epsilon) -> None:
    assert privacy.epsilon_of(0.2, K) == pytest.approx(epsilon, abs=5e-4)
    assert privacy.keep_probability(privacy.epsilon_of(0.2, K), K) == pytest.approx(0.2, abs=1e-12)


@pytest.mark.parametrize("K", [2, 10, 100])
@pytest.mark.parametrize("epsilon", [0.01, 0.81, 3.0, 50.0])
def test_matrix_and_inverse(K, epsilon) -> None:
    T = privacy.matrix(epsilon, K)
    assert np.allclose(T.sum(1), 1)
    assert T[0, 0] / T[0, 1] == pytest.approx(math.exp(epsilon), rel=1e-9)  # what ε means
    error = np.abs(T @ privacy.inverse(epsilon, K) - np.eye(K)).max()
    assert error < 1e-9
    assert np.allclose(privacy.inverse(epsilon, K).sum(1), 1)


@pytest.mark.parametrize(("K", "epsilon"), [(2, 0.5), (10, 0.81), (10, 3.0)])
def test_sampler_by_chi_square(K, epsilon) -> None:
    for label in (0, K - 1):
        told = privacy.randomise(np.full(60_000, label), K, epsilon, rng(label))
        expected = 60_000 * privacy.matrix(epsilon, K)[label]
        assert stats.chisquare(np.bincount(told, minlength=K), expected).pvalue > 1e-4
        assert told.dtype == np.int64


def told_ratios(K: int, epsilon: float, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """What `labels` released labels say of ln P(told k | true i)/P(told k | true j): [i, k, j], and half the width of
    its 99 % interval, Bonferroni over all of them.
    """
    n = labels // K
    shares = [np.bincount(privacy.randomise(np.full(n, i), K, epsilon, rng(i)), minlength=K) / n for i in range(K)]
    log, variance = np.log(shares), (1 - np.array(shares)) / (n * np.array(shares))
    ratio = log[:, :, None] - log.T[None]
    spread = np.sqrt(variance[:, :, None] + variance.T[None])
    return ratio, stats.norm.ppf(1 - 0.01 / (2 * K * K * (K - 1))) * spread


@pytest.mark.parametrize(("K", "epsilon"), [(10, 0.811), (14, 1.179), (2, 0.5)])
def test_a_million_labels_tell_as_much_as_epsilon_says(K, epsilon) -> None:
    """The likelihood ratio of any told label under any two true ones: epsilon for the true one, 0 between two others,
    and of no pair more than epsilon. An epsilon that is off by a fifth would be noticed.
    """
    ratio, half = told_ratios(K, epsilon, 10**6)
    i, k, j = np.indices(ratio.shape)
    truth = epsilon * ((k == i).astype(float) - (k == j)) * (i != j)
    different = i != j
    assert (np.abs(ratio - truth) <= half)[different].all()
    assert (ratio - half <= epsilon)[different].all()
    own = different & (k == i)
    assert own.sum() == K * (K - 1)
    off, narrow = told_ratios(K, 1.2 * epsilon, 10**6)
    assert (np.abs(off - epsilon) > narrow)[own].any()


def test_debias_by_hand() -> None:
    # K = 2, ε = ln 3: p = 3/4, q = 1/4. Told shares .625 and .375 → (.625 - .25)/.5 = .75 and .25
    assert np.allclose(privacy.debias(np.array([625, 375]), math.log(3), 2), [0.75, 0.25])
    # shares of 0 and 1 are impossible truths: -.5 and 1.5
    assert np.allclose(privacy.debias(np.array([0, 10]), math.log(3), 2), [-0.5, 1.5])
    counts = np.array([40, 0, 60])
    assert np.allclose(privacy.debias(counts, 1.0, 3), privacy.inverse(1.0, 3).T @ (counts / 100))


def test_debias_is_unbiased_with_the_stated_deviation() -> None:
    truth = np.array([0.5, 0.3, 0.15, 0.05])
    labels, repeats = np.repeat(np.arange(4), (truth * 2000).astype(int)), 400
    counts = [np.bincount(privacy.randomise(labels, 4, 1.0, rng(seed)), minlength=4) for seed in range(repeats)]
    estimates = np.stack([privacy.debias(count, 1.0, 4) for count in counts])
    assert np.allclose(estimates.sum(1), 1)
    p = privacy.keep_probability(1.0, 4)
    q = (1 - p) / 3
    # each told label is Bernoulli given the true one
    sd = np.sqrt((truth * p * (1 - p) + (1 - truth) * q * (1 - q)) / 2000) / (p - q)
    assert (np.abs(estimates.mean(0) - truth) < 4 * sd / np.sqrt(repeats)).all()
    assert np.allclose(estimates.std(0), sd, rtol=0.2)


def test_projections_by_hand() -> None:
    p = np.array([0.8, 0.5, -0.3])
    assert np.allclose(privacy.project(p), [0.65, 0.35, 0])  # .8 and .5 both come down by .15
    assert np.allclose(privacy.project(p, "clip"), [0.8 / 1.3, 0.5 / 1.3, 0])
    assert np.array_equal(privacy.project(p, "none"), p)
    with pytest.raises(SpecError, match="did you mean 'simplex'"):
        privacy.project(p, "simplx")


@pytest.mark.parametrize("how", ["simplex", "clip"])
def test_projections_end_on_the_simplex_and_stay_there(how) -> None:
    for seed in range(50):
        p = rng(seed).normal(size=12)
        p += (1 - p.sum()) / 12
        once = privacy.project(p, how)
        assert once.min() >= 0
        assert once.sum() == pytest.approx(1, abs=1e-12)
        assert np.allclose(privacy.project(once, how), once, atol=1e-12)


def test_simplex_projection_is_the_nearest_point() -> None:
    for seed in range(20):
        p = rng(seed).normal(size=6)
        p += (1 - p.sum()) / 6
        best = np.linalg.norm(privacy.project(p) - p)
        others = rng(seed + 100).dirichlet(np.full(6, 0.5), 3000)
        assert best <= np.linalg.norm(others - p, axis=1).min() + 1e-12


def test_one_release_a_run() -> None:
    release = privacy.Release(0.81, 10)
    assert not release.released
    with pytest.raises(RuntimeError, match="nothing was released"):
        release.prior()
    counts = release.release([np.arange(10), np.zeros(5, int)], rng())
    assert counts.sum() == 15
    assert release.released
    first = release.prior()
    assert np.array_equal(first, privacy.project(privacy.debias(counts, 0.81, 10)))
    for again in (lambda: release.release(np.arange(10), rng()), lambda: release.record([counts])):
        with pytest.raises(RuntimeError, match="released already"):
            again()
    assert np.array_equal(release.prior(), first)  # post-processing is free


def test_a_resumed_run_does_not_release_again() -> None:
    before = privacy.Release(1.5, 4)
    fresh = privacy.Release.restore(json.loads(json.dumps(before.state())))
    assert not fresh.released
    before.record([np.array([3, 0, 1, 0]), np.array([0, 2, 0, 0])])
    assert before.counts.tolist() == [3, 2, 1, 0]
    after = privacy.Release.restore(json.loads(json.dumps(before.state())))
    assert np.array_equal(after.prior("clip"), before.prior("clip"))
    with pytest.raises(RuntimeError, match="released already"):
        after.release(np.arange(4), rng())


def test_releases_add_up_and_end() -> None:
    release = privacy.Release(0.5, 3, times=3)
    for made in (1, 2, 3):
        release.record([np.array([made, 0, 1])])
        release = privacy.Release.restore(json.loads(json.dumps(release.state())))
        assert (release.made, release.spent) == (made, 0.5 * made)
        assert release.counts.tolist() == [made, 0, 1]  # the latest, not their sum
    with pytest.raises(RuntimeError, match=r"released already, as often as allowed \(3\)"):
        release.record([np.array([1, 1, 1])])


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda: privacy.keep_probability(0, 10), "epsilon"),
        (lambda: privacy.matrix(math.nan, 10), "epsilon"),
        (lambda: privacy.Release("1", 10), "epsilon"),
        (lambda: privacy.keep_probability(1.0, 1), "classes"),
        (lambda: privacy.epsilon_of(0.1, 10), "p:"),  # chance
        (lambda: privacy.randomise(np.array([10]), 10, 1.0, rng()), "labels"),
        (lambda: privacy.randomise(np.array([0.7]), 10, 1.0, rng()), "labels"),
        (lambda: privacy.debias(np.array([1, 2]), 1.0, 3), "counts"),
        (lambda: privacy.debias(np.array([1.0, math.inf]), 1.0, 2), "counts"),
        (lambda: privacy.project(np.array([0.5, math.nan, 0.5])), "finite"),
        (lambda: privacy.Release(1.0, 3).record([np.zeros(3, int)]), "histograms"),
        (lambda: privacy.Release(1.0, 3).record([np.array([1, 2])]), "histograms"),
    ],
)
def test_wrong_input_is_refused(call, key) -> None:
    with pytest.raises(SpecError, match=key):
        call()

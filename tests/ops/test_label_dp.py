"""Randomised response: closed forms, the sampler, unbiasedness, one release a run (methods.md section 4)."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from fednoise_core.io import SpecError
from fednoise_core.ops import label_dp


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("K", "epsilon"), [(10, 0.811), (100, 3.209), (14, 1.179)])
def test_the_paper_s_epsilons(K, epsilon) -> None:
    assert label_dp.epsilon_of(0.2, K) == pytest.approx(epsilon, abs=5e-4)
    assert label_dp.keep_probability(label_dp.epsilon_of(0.2, K), K) == pytest.approx(0.2, abs=1e-12)


def matrix(epsilon: float, K: int) -> np.ndarray:
    """T_DP [K, K]: row i is the distribution of the released label for the label i."""
    T = np.ones((K, K)) + (math.exp(epsilon) - 1) * np.eye(K)
    return T / T.sum(1)


def estimate_ratios(K: int, epsilon: float, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """The estimate of ln P(told k | true i)/P(told k | true j) [i, k, j] from `labels` released labels, and half the
    width of its 99 % interval (Bonferroni over all of them).
    """
    n = labels // K
    releases = [label_dp.randomise_labels(np.full(n, i), K, epsilon, rng(i)) for i in range(K)]
    shares = [np.bincount(release, minlength=K) / n for release in releases]
    assert {release.dtype for release in releases} == {np.dtype(np.int64)}
    log, variance = np.log(shares), (1 - np.array(shares)) / (n * np.array(shares))
    ratio = log[:, :, None] - log.T[None]
    spread = np.sqrt(variance[:, :, None] + variance.T[None])
    return ratio, stats.norm.ppf(1 - 0.01 / (2 * K * K * (K - 1))) * spread


@pytest.mark.parametrize(("K", "epsilon"), [(10, 0.811), (10, 3.0), (14, 1.179), (2, 0.5)])
def test_a_million_released_labels_reveal_as_much_as_epsilon_allows(K, epsilon) -> None:
    """The likelihood ratio of a released label under two true labels is epsilon for the true one and 0 between two
    others. No ratio exceeds epsilon. An epsilon that is off by a fifth would be noticed.
    """
    ratio, half = estimate_ratios(K, epsilon, 10**6)
    i, k, j = np.indices(ratio.shape)
    truth = epsilon * ((k == i).astype(float) - (k == j)) * (i != j)
    different = i != j
    assert (np.abs(ratio - truth) <= half)[different].all()
    assert (ratio - half <= epsilon)[different].all()
    true_label = different & (k == i)
    assert true_label.sum() == K * (K - 1)
    off, narrow = estimate_ratios(K, 1.2 * epsilon, 10**6)
    assert (np.abs(off - epsilon) > narrow)[true_label].any()


def test_debias_by_hand() -> None:
    # K = 2, ε = ln 3: p = 3/4, q = 1/4. Told shares .625 and .375 → (.625 - .25)/.5 = .75 and .25
    assert np.allclose(label_dp.debias_counts(np.array([625, 375]), math.log(3), 2), [0.75, 0.25])
    # shares of 0 and 1 are impossible truths: -.5 and 1.5
    assert np.allclose(label_dp.debias_counts(np.array([0, 10]), math.log(3), 2), [-0.5, 1.5])


@pytest.mark.parametrize("K", [2, 10, 100])
@pytest.mark.parametrize("epsilon", [0.01, 0.81, 3.0, 50.0])
def test_debiasing_undoes_the_matrix(K, epsilon) -> None:
    assert label_dp.keep_probability(epsilon, K) == pytest.approx(matrix(epsilon, K)[0, 0], rel=1e-9)
    shares = rng().dirichlet(np.ones(K))
    assert np.allclose(label_dp.debias_counts(shares @ matrix(epsilon, K), epsilon, K), shares, atol=1e-9)


def test_debias_is_unbiased_with_the_stated_deviation() -> None:
    truth = np.array([0.5, 0.3, 0.15, 0.05])
    labels, repeats = np.repeat(np.arange(4), (truth * 2000).astype(int)), 400
    counts = [np.bincount(label_dp.randomise_labels(labels, 4, 1.0, rng(seed)), minlength=4) for seed in range(repeats)]
    estimates = np.stack([label_dp.debias_counts(count, 1.0, 4) for count in counts])
    assert np.allclose(estimates.sum(1), 1)
    p = label_dp.keep_probability(1.0, 4)
    q = (1 - p) / 3
    # each told label is Bernoulli given the true one
    sd = np.sqrt((truth * p * (1 - p) + (1 - truth) * q * (1 - q)) / 2000) / (p - q)
    assert (np.abs(estimates.mean(0) - truth) < 4 * sd / np.sqrt(repeats)).all()
    assert np.allclose(estimates.std(0), sd, rtol=0.2)


def test_projection_by_hand() -> None:
    # .8 and .5 come down by .15
    assert np.allclose(label_dp.project_to_simplex(np.array([0.8, 0.5, -0.3])), [0.65, 0.35, 0])


def test_projections_end_on_the_simplex_and_stay_there() -> None:
    for seed in range(50):
        p = rng(seed).normal(size=12)
        once = label_dp.project_to_simplex(p + (1 - p.sum()) / 12)
        assert once.min() >= 0
        assert once.sum() == pytest.approx(1, abs=1e-12)
        assert np.allclose(label_dp.project_to_simplex(once), once, atol=1e-12)


def test_simplex_projection_is_the_nearest_point() -> None:
    for seed in range(20):
        p = rng(seed).normal(size=6)
        p += (1 - p.sum()) / 6
        best = np.linalg.norm(label_dp.project_to_simplex(p) - p)
        others = rng(seed + 100).dirichlet(np.full(6, 0.5), 3000)
        assert best <= np.linalg.norm(others - p, axis=1).min() + 1e-12


def test_one_release_a_run() -> None:
    release = label_dp.Release(0.81, 10)
    counts = np.array([3, 0, 1, 2, 0, 0, 0, 1, 5, 3])
    release.record([counts, np.eye(10, dtype=int)[4]])
    assert release.counts.tolist() == (counts + np.eye(10, dtype=int)[4]).tolist()
    assert np.array_equal(release.released_shares(), release.counts / 16)
    assert np.array_equal(
        release.estimate_prior(), label_dp.project_to_simplex(label_dp.debias_counts(release.counts, 0.81, 10))
    )
    again = label_dp.Release.restore(json.loads(json.dumps(release.state())))
    assert again.state() == release.state()
    with pytest.raises(RuntimeError, match="released already"):
        again.record([counts])


def test_releases_add_up_and_end() -> None:
    release = label_dp.Release(0.5, 3, times=3)
    for number in (1, 2, 3):
        release.record([np.array([number, 0, 1])])
        release = label_dp.Release.restore(json.loads(json.dumps(release.state())))
        assert release.releases == number
        assert release.counts.tolist() == [number, 0, 1]  # the latest, not their sum
    with pytest.raises(RuntimeError, match=r"released already, as often as allowed \(3\)"):
        release.record([np.array([1, 1, 1])])


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda: label_dp.keep_probability(0, 10), "epsilon"),
        (lambda: label_dp.keep_probability(math.nan, 10), "epsilon"),
        (lambda: label_dp.Release("1", 10), "epsilon"),
        (lambda: label_dp.keep_probability(1.0, 1), "classes"),
        (lambda: label_dp.epsilon_of(0.1, 10), "keep: "),  # chance
        (lambda: label_dp.randomise_labels(np.array([10]), 10, 1.0, rng()), "labels"),
        (lambda: label_dp.randomise_labels(np.array([0.7]), 10, 1.0, rng()), "labels"),
    ],
)
def test_wrong_input_is_refused(call, key) -> None:
    with pytest.raises(SpecError, match=key):
        call()

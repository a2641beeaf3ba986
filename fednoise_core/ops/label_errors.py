"""Probability that a given label is wrong, on one scale for all sites, from a model's predictions and the given labels.

The predictions q are sharpened by an exponent that all sites share, q_i^s / sum_j q_j^s. Each site gets a transition
matrix T of its own. Both are maximum likelihood estimates for the given labels, P(given j | x) = sum_i q_i(x) T_ij. T
comes from EM with a weak prior for right labels. P(wrong) is then Bayes' rule. So a site with many wrong labels is
recognised by how often its labels contradict the model beyond the model's own doubt. The sum of P(wrong) over a site
estimates how many labels are wrong there. docs/wrong_labels.md has the measurements behind this choice.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

WRONG, CHECK = 0.5, 0.2  # P(wrong) above which a label's verdict is "wrong", "check"
STEPS = tuple(2.0 ** (k / 4) for k in range(-4, 13))  # exponents that are tried: 1/2 .. 8
START = 7  # the search begins at 2^(3/4)
DOUBT = 3  # steps up and down from the best exponent that the interval takes in, a factor of 1.7
ROUNDS = 30  # of EM
LIKELY = 0.9  # T's diagonal where EM begins
PRIOR, SPREAD = 1.0, 0.02  # samples that the prior adds to each right label, and to each entry
TINY = 1e-12
Z90 = 1.645  # of the 90 % interval


@dataclass(frozen=True)
class SiteLabels:
    """Estimated label errors of one site.

    Attributes:
        site: Number of the site.
        samples: Rows of the data set, int64 [n], each once.
        p_wrong: P(given label is wrong), float64 [n].
        proposed: Most probable other label, int64 [n].
        p_proposed: P(the proposed label is right), float64 [n].
        wrong: Estimated number of wrong labels.
        low: Lower end of the 90 % interval of `wrong`.
        high: Upper end of the 90 % interval of `wrong`.
    """

    site: int
    samples: np.ndarray
    p_wrong: np.ndarray
    proposed: np.ndarray
    p_proposed: np.ndarray
    wrong: float
    low: float
    high: float


def classify_labels(p_wrong: np.ndarray) -> np.ndarray:
    """Verdict on each label.

    Args:
        p_wrong: P(given label is wrong), float [n].

    Returns:
        Texts [n]: "wrong" above 1/2, "check" above 1/5, else "keep".
    """
    return np.where(p_wrong > WRONG, "wrong", np.where(p_wrong > CHECK, "check", "keep"))


@dataclass(frozen=True)
class MethodScores:
    """Suspicion scores of a method for one site.

    Attributes:
        which: Mask bool [n] of the samples that have a score.
        score: Scores, float [m]. A high score is suspect.
        proposed: Proposed labels, int64 [m].
    """

    which: np.ndarray
    score: np.ndarray
    proposed: np.ndarray


def estimate_label_errors(
    log_p: Sequence[np.ndarray],
    given: Sequence[np.ndarray],
    samples: Sequence[np.ndarray],
    sites: Sequence[int],
    opinions: Mapping[int, MethodScores] | None = None,
) -> list[SiteLabels]:
    """Estimate which given labels of several sites are wrong.

    If a method has scores of its own for a site, they decide the order: the most suspect sample gets the largest
    P(wrong) of the site, and so on. The scores say which labels are wrong, the estimate says how many.

    Args:
        log_p: Log-probabilities of the model for each site, finite [n, K].
        given: Given labels of each site, int64 [n].
        samples: Rows of the data set for each site, int64 [n]. They are only copied into the result.
        sites: Numbers of the sites, all different.
        opinions: Scores of a method, by the number of the site.

    Returns:
        The estimates, in the order of the sites.
    """
    data = [_Site(np.asarray(p, np.float64), y) for p, y in zip(log_p, given, strict=True)]
    best = _climb_to_maximum(lambda k: sum(site.estimate_posterior(STEPS[k])[1] for site in data))
    ends = [STEPS[max(best - DOUBT, 0)], STEPS[min(best + DOUBT, len(STEPS) - 1)]]
    found = []
    for site, y, rows, number in zip(data, given, samples, sites, strict=True):
        posterior = site.estimate_posterior(STEPS[best])[0]
        p_wrong = 1.0 - _pick_columns(posterior, y)
        noise = Z90 * float(np.sqrt((p_wrong * (1.0 - p_wrong)).sum()))
        wrong, *around = [
            float(p_wrong.sum()),
            *(float((1.0 - _pick_columns(site.estimate_posterior(end)[0], y)).sum()) for end in ends),
        ]
        low = max(min(wrong, *around) - noise, 0.0)
        high = min(max(wrong, *around) + noise, float(len(y)))
        others = posterior.copy()
        others[np.arange(len(y)), y] = -1.0
        proposed = others.argmax(1)
        share = _pick_columns(posterior, proposed) / np.maximum(p_wrong, TINY)  # P(proposed is right | given is wrong)
        if (opinion := (opinions or {}).get(number)) is not None:
            at = np.flatnonzero(opinion.which)
            order = np.lexsort((p_wrong[at], opinion.score))  # equal scores: by the estimate
            own = np.where(opinion.proposed != y[at], opinion.proposed, proposed[at])
            share[at] = posterior[at, own] / np.maximum(p_wrong[at], TINY)
            proposed[at] = own
            p_wrong[at[order]] = np.sort(p_wrong[at])
        p_proposed = p_wrong * np.minimum(share, 1.0)
        found.append(SiteLabels(number, rows, p_wrong, proposed, p_proposed, wrong, low, high))
    return found


class _Site:
    """EM for one site. The samples lie sorted by given label, so that sums by label are sums of stretches."""

    def __init__(self, log_p: np.ndarray, given: np.ndarray):
        self.order = np.argsort(given, kind="stable")
        self.log_p, self.given = log_p[self.order], given[self.order]
        self.K = log_p.shape[1]
        self.present, self.starts = np.unique(self.given, return_index=True)

    def estimate_posterior(self, sharpness: float) -> tuple[np.ndarray, float]:
        """(P(true label) [n, K] in the order of the samples, log-likelihood of the given labels)."""
        K, z = self.K, self.log_p * sharpness
        if not len(z):
            return z, 0.0
        q = np.exp(z - z.max(1, keepdims=True))
        q /= q.sum(1, keepdims=True)
        T = np.full((K, K), (1.0 - LIKELY) / (K - 1))
        np.fill_diagonal(T, LIKELY)
        for _ in range(ROUNDS):
            joint = q * T.T[self.given]
            joint /= joint.sum(1, keepdims=True)
            counts = PRIOR * (np.eye(K) + SPREAD)
            counts[:, self.present] += np.add.reduceat(joint, self.starts, axis=0).T
            T = counts / counts.sum(1, keepdims=True)
        joint = q * T.T[self.given]
        total = joint.sum(1, keepdims=True)
        posterior = np.empty_like(joint)
        posterior[self.order] = joint / total
        return posterior, float(np.log(total).sum())


def _pick_columns(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    return table[np.arange(len(column)), column]


def _climb_to_maximum(value: Callable[[int], float]) -> int:
    """Index of STEPS with the largest value, found uphill from START."""

    @functools.cache
    def value_at(k: int) -> float:
        return value(k) if 0 <= k < len(STEPS) else -np.inf

    k = START
    for way in (1, -1):
        while value_at(k + way) > value_at(k):
            k += way
    return k

"""P(given label is wrong) on one scale for all sites, from a model's predictions and the given labels alone.

The predictions q are sharpened by an exponent that all sites share, q_i^s / sum_j q_j^s, and each site gets a
transition matrix T of its own: both by maximum likelihood of the given labels, P(given j | x) = sum_i q_i(x) T_ij, T by
EM with a weak prior for right labels. P(wrong) is then Bayes' rule. So a site with few wrong labels is told from one
with many by how often its labels contradict the model beyond the model's own doubt, and the sum of P(wrong) over a site
estimates how many are wrong there. docs/wrong_labels.md has the measurements that the rule was chosen by.
"""

from __future__ import annotations

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
    """One site's labels, judged. site: its number. samples int64 [n]: rows of the data set, each once.

    p_wrong float64 [n]: P(given label is wrong). proposed int64 [n]: the most probable other label; p_proposed float64
    [n]: P(it is right). wrong, low, high: estimated number of wrong labels and its 90 % interval.
    """

    site: int
    samples: np.ndarray
    p_wrong: np.ndarray
    proposed: np.ndarray
    p_proposed: np.ndarray
    wrong: float
    low: float
    high: float


def verdicts(p_wrong: np.ndarray) -> np.ndarray:
    """Texts [n]: "wrong" above 1/2, "check" above 1/5, else "keep"."""
    return np.where(p_wrong > WRONG, "wrong", np.where(p_wrong > CHECK, "check", "keep"))


@dataclass(frozen=True)
class Opinion:
    """What a method says about a site. which: mask bool [n] of the samples that it speaks of; score float [m]: high is
    suspect; proposed int64 [m].
    """

    which: np.ndarray
    score: np.ndarray
    proposed: np.ndarray


def judge(
    log_p: Sequence[np.ndarray],
    given: Sequence[np.ndarray],
    samples: Sequence[np.ndarray],
    sites: Sequence[int],
    opinions: Mapping[int, Opinion] | None = None,
) -> list[SiteLabels]:
    """Judge the given labels of several sites.

    log_p: per site the model's log-probabilities [n, K], finite; given int64 [n]; samples: rows int64 [n] for the
    result; sites: their numbers, all different. opinions: site -> a method's own; its most suspect sample gets the
    largest P(wrong) of the site's, and so on: the method says which labels are wrong, the estimate how many.
    """
    data = [_Site(np.asarray(p, np.float64), y) for p, y in zip(log_p, given, strict=True)]
    best = _climb(lambda k: sum(site.fit(STEPS[k])[1] for site in data))
    ends = [STEPS[max(best - DOUBT, 0)], STEPS[min(best + DOUBT, len(STEPS) - 1)]]
    found = []
    for site, y, rows, number in zip(data, given, samples, sites, strict=True):
        posterior = site.fit(STEPS[best])[0]
        p_wrong = 1.0 - _at(posterior, y)
        noise = Z90 * float(np.sqrt((p_wrong * (1.0 - p_wrong)).sum()))
        wrong, *around = [float(p_wrong.sum()), *(float((1.0 - _at(site.fit(end)[0], y)).sum()) for end in ends)]
        low = max(min(wrong, *around) - noise, 0.0)
        high = min(max(wrong, *around) + noise, float(len(y)))
        others = posterior.copy()
        others[np.arange(len(y)), y] = -1.0
        proposed = others.argmax(1)
        share = _at(posterior, proposed) / np.maximum(p_wrong, TINY)  # P(proposed is right | given is wrong)
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

    def fit(self, sharpness: float) -> tuple[np.ndarray, float]:
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


def _at(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    return table[np.arange(len(column)), column]


def _climb(value: Callable[[int], float]) -> int:
    """Index of STEPS with the largest value, found uphill from START."""

    @functools.cache
    def at(k: int) -> float:
        return value(k) if 0 <= k < len(STEPS) else -np.inf

    k = START
    for way in (1, -1):
        while at(k + way) > at(k):
            k += way
    return k

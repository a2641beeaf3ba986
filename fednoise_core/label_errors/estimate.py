"""Probability that a given label is wrong, on one scale for all sites, from a model's predictions and the given labels.

The predictions q are sharpened by an exponent that all sites share, q_i^s / sum_j q_j^s. Each site gets a transition
matrix T of its own. Both are maximum likelihood estimates for the given labels, P(given j | x) = sum_i q_i(x) T_ij. T
comes from EM with a weak prior for right labels. P(wrong) is then Bayes' rule. So a site with many wrong labels is
recognised by how often its labels contradict the model beyond the model's own doubt. The sum of P(wrong) over a site
estimates how many labels are wrong there.

Predictions of models that have not seen a sample allow for more (`estimate_held_out`): an order that is not below that
of 1 - p(given), and an interval from two estimates. docs/wrong_labels.md has the measurements behind both.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
SHAPE, RATE = 20.0, 100.0  # samples that pull a row of T to uniform errors, and its rate to that of the site
APART = 0.1  # share of a site by which two estimates that agree may differ
ENOUGH = 30  # wrong labels, three a class, that the estimate of a site's matrix must find there
MISSED = 0.05  # share of the other labels that the model contradicts which the estimate adds
BELOW, ABOVE = 0.2, 0.25  # of the interval: share of the smaller estimate, share of the other contradicted labels


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
        estimated: True if `wrong` is an estimate to rely on. False: wrong labels look like images that are hard for
            the model.
        columns: Further columns of suspects.csv, name -> [n].
        agreement: Share of the given labels that models which have not seen them predict, where there are such models.
    """

    site: int
    samples: np.ndarray
    p_wrong: np.ndarray
    proposed: np.ndarray
    p_proposed: np.ndarray
    wrong: float
    low: float
    high: float
    estimated: bool = True
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    agreement: float | None = None


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
    labels: Sequence[np.ndarray],
    samples: Sequence[np.ndarray],
    sites: Sequence[int],
    opinions: Mapping[int, MethodScores] | None = None,
) -> list[SiteLabels]:
    """Estimate which given labels of several sites are wrong.

    If a method has scores of its own for a site, they decide the order: the most suspect sample gets the largest
    P(wrong) of the site, and so on. The scores say which labels are wrong, the estimate says how many.

    Args:
        log_p: Log-probabilities of the model for each site, finite [n, K].
        labels: Given labels of each site, int64 [n].
        samples: Rows of the data set for each site, int64 [n]. They are only copied into the result.
        sites: Numbers of the sites, all different.
        opinions: Scores of a method, by the number of the site.

    Returns:
        The estimates, in the order of the sites.
    """
    data = [_Site(np.asarray(p, np.float64), y) for p, y in zip(log_p, labels, strict=True)]
    best = _climb_to_maximum(lambda k: sum(site.estimate_posterior(STEPS[k])[1] for site in data))
    ends = [STEPS[max(best - DOUBT, 0)], STEPS[min(best + DOUBT, len(STEPS) - 1)]]
    judged = []
    for site, y, rows, number in zip(data, labels, samples, sites, strict=True):
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
            listed = np.flatnonzero(opinion.which)
            order = np.lexsort((p_wrong[listed], opinion.score))  # equal scores: by the estimate
            proposals = np.where(opinion.proposed != y[listed], opinion.proposed, proposed[listed])
            share[listed] = posterior[listed, proposals] / np.maximum(p_wrong[listed], TINY)
            proposed[listed] = proposals
            p_wrong[listed[order]] = np.sort(p_wrong[listed])
        p_proposed = p_wrong * np.minimum(share, 1.0)
        judged.append(SiteLabels(number, rows, p_wrong, proposed, p_proposed, wrong, low, high))
    return judged


class _Site:
    """EM for one site. The samples lie sorted by given label, so that sums by label are sums of stretches."""

    def __init__(self, log_p: np.ndarray, labels: np.ndarray):
        self.order = np.argsort(labels, kind="stable")
        self.log_p, self.given = log_p[self.order], labels[self.order]
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


@dataclass(frozen=True)
class Count:
    """Wrong labels of a site.

    Attributes:
        wrong: The estimate.
        low: Lower end of the interval.
        high: Its upper end.
        agree: True if two estimates agree. If not, the site looks like one whose images are hard.
    """

    wrong: float
    low: float
    high: float
    agree: bool


def estimate_held_out(
    held_out_log_p: Sequence[np.ndarray],
    mixed: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    samples: Sequence[np.ndarray],
    sites: Sequence[int],
    current: Sequence[np.ndarray] | None = None,
    extra_columns: Sequence[Mapping[str, np.ndarray]] | None = None,
) -> list[SiteLabels]:
    """Estimate which given labels are wrong, by models that have not seen a sample and by models that have.

    Labels that somebody has corrected are estimated from what was given at first, so that the errors that were found
    still show how often labels are wrong at a site. What is reported is about the labels as they are now.

    Args:
        held_out_log_p: Log-probabilities for each site by models that have not seen the sample, finite [n, K].
        mixed: The same by all models.
        labels: Given labels of each site, int64 [n].
        samples: Rows of the data set for each site, int64 [n]. They are only copied into the result.
        sites: Numbers of the sites, all different.
        current: Labels of each site as they are now, int64 [n]. Default: the given ones.
        extra_columns: Further columns of each site. They are only copied into the result.

    Returns:
        The estimates, in the order of the sites.
    """
    site = np.repeat(np.arange(len(sites)), [len(y) for y in labels])
    y, held_out = np.concatenate(labels), np.concatenate(held_out_log_p)
    by_all = held_out if all(map(operator.is_, held_out_log_p, mixed)) else np.concatenate(mixed)
    counts = count_wrong(held_out, y, site)
    posterior = judge_labels(by_all, y, site)
    p_wrong = judge_by_number(held_out, by_all, posterior, y, site, counts)
    row, belief = np.arange(len(y)), posterior.copy()
    belief[row, y] = 0.0
    belief *= (p_wrong / np.maximum(belief.sum(1), TINY))[:, None]
    belief[row, y] = 1.0 - p_wrong
    now = y if current is None else np.concatenate(current)
    p_now = np.where(now == y, p_wrong, 1.0 - belief[row, now])
    belief[row, now] = -1.0
    proposed = belief.argmax(1)
    p_proposed = np.maximum(_pick_columns(belief, proposed), 0.0)
    results = []
    for number, (name, rows, count) in enumerate(zip(sites, samples, counts, strict=True)):
        of_site = site == number
        less = float((p_wrong - p_now)[of_site].sum())  # wrong labels that the corrections have put right
        low, wrong, high = (min(max(bound - less, 0.0), len(rows)) for bound in (count.low, count.wrong, count.high))
        columns = {} if extra_columns is None else extra_columns[number]
        judged = (p_now[of_site], proposed[of_site], p_proposed[of_site])
        agreement = float((held_out[of_site].argmax(1) == y[of_site]).mean())
        results.append(SiteLabels(name, rows, *judged, wrong, low, high, count.agree, columns, agreement))
    return results


def judge_labels(log_p: np.ndarray, labels: np.ndarray, site: np.ndarray) -> np.ndarray:
    """P(true label) by a smoothed matrix for each site, at the sharpness of the largest likelihood of all sites.

    Args:
        log_p: Log-probabilities, float64 [n, K].
        labels: Given labels, int64 [n].
        site: Site of each sample, int64 [n], from 0.

    Returns:
        float64 [n, K].
    """
    rows = [np.flatnonzero(site == number) for number in range(site.max() + 1)]
    best, largest = np.zeros_like(log_p), -np.inf
    for step in STEPS:
        fits = [fit_site(log_p[r], labels[r], step) for r in rows]
        likelihood = sum(site_likelihood for _, site_likelihood in fits)
        if likelihood > largest:
            largest = likelihood
            best[np.concatenate(rows)] = np.concatenate([posterior for posterior, _ in fits])
    return best


def fit_site(log_p: np.ndarray, labels: np.ndarray, sharpness: float) -> tuple[np.ndarray, float]:
    """(P(true label) [n, K] of one site, log-likelihood of its labels), by EM with a smoothed T.

    A row's rate of errors is pulled to the site's, and where its errors go to all classes alike. With all of the pull
    P(wrong) has the order of 1 - p(given), with none of it that of the EM in `estimate_label_errors`.
    """
    n, K = log_p.shape
    z = log_p * sharpness
    q = np.exp(z - z.max(1, keepdims=True))
    q /= q.sum(1, keepdims=True)
    off = 1.0 - np.eye(K)
    even, order = off / (K - 1), np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    q, given, counts = q[order], labels[order], np.zeros((K, K))
    T = LIKELY * np.eye(K) + (1.0 - LIKELY) * even
    for _ in range(ROUNDS):
        joint = q * T.T[given]
        joint /= joint.sum(1, keepdims=True)
        counts[:, present] = np.add.reduceat(joint, starts, axis=0).T
        wrong = (counts * off).sum(1)
        rate = (wrong.sum() + 1) / (n + 20)
        rates = (wrong + RATE * rate) / (counts.sum(1) + RATE)
        T = rates[:, None] * (counts * off + SHAPE * even) / (wrong + SHAPE)[:, None] + np.diag(1 - rates)
    joint = q * T.T[given]
    total, posterior = joint.sum(1), np.empty_like(joint)
    posterior[order] = joint / total[:, None]
    return posterior, float(np.log(total).sum())


def count_wrong(log_p: np.ndarray, labels: np.ndarray, site: np.ndarray) -> list[Count]:
    """Number of wrong labels of every site, by two estimates from predictions out of fold.

    One is the sum of P(wrong), which is too small where the model has learnt the errors. The other takes the site
    where the model disagrees least with the given labels, and counts what other sites have beyond that share, which
    is too large where their images are harder. A site exchanges its number of disagreements for it. A site that is
    alone has only the first, and its interval ends at the number of disagreements.

    Args:
        log_p: Log-probabilities of models that have not seen the sample, float64 [n, K].
        labels: Given labels, int64 [n].
        site: Site of each sample, int64 [n], from 0.
    """
    sizes = np.bincount(site)
    by_model = np.bincount(site, 1.0 - _pick_columns(judge_labels(log_p, labels, site), labels))
    disagree = np.bincount(site, log_p.argmax(1) != labels)
    least = (disagree / sizes).min()
    alone = len(sizes) == 1
    beyond = by_model if alone else (disagree - least * sizes) / max(1 - least, TINY)
    results = []
    for n, *estimates, most in zip(sizes, by_model, beyond, disagree, strict=True):
        lower, upper = min(estimates), max(estimates)
        agree = bool(max(most if alone else 0, upper) <= 2 * lower + APART * n)
        noise = Z90 * float(np.sqrt(upper * (1 - upper / n)))
        unexplained = max(most - upper, 0.0)
        wrong = upper + MISSED * unexplained
        low = max(lower - BELOW * lower - noise, 0.0)
        high = min(upper + (1.0 if alone else ABOVE) * unexplained + noise, n)
        results.append(Count(wrong, low, high, agree))
    return results


def judge_by_number(
    held_out: np.ndarray,
    mixed: np.ndarray,
    posterior: np.ndarray,
    labels: np.ndarray,
    site: np.ndarray,
    counts: Sequence[Count],
) -> np.ndarray:
    """P(wrong) [n]: how many and how sure by models that have not seen the sample, the order by all models.

    The order is that of P(wrong) where the site's matrix can be estimated, so where two estimates of the number agree
    and P(wrong) finds enough wrong labels. Elsewhere it is the order of 1 - p(given). The sharpness of a site is the
    one at which the sum of P(wrong) is the estimated number.

    Args:
        held_out: Log-probabilities of models that have not seen the sample, float64 [n, K].
        mixed: Of all models.
        posterior: What `judge_labels` makes of `mixed`.
        labels: Given labels, int64 [n].
        site: Site of each sample, int64 [n], from 0.
        counts: What `count_wrong` makes of `held_out`.
    """
    by_matrix, by_model = 1.0 - _pick_columns(posterior, labels), 1.0 - np.exp(_pick_columns(mixed, labels))
    p_wrong = np.zeros(len(labels))
    for number, count in enumerate(counts):
        rows = np.flatnonzero(site == number)
        by_matrix_first = count.agree and by_matrix[rows].sum() >= ENOUGH
        order = np.lexsort((by_model[rows], by_matrix[rows] if by_matrix_first else by_model[rows]))
        p_wrong[rows[order]] = np.sort(match_number(held_out[rows], labels[rows], count.wrong))
    return p_wrong


def match_number(log_p: np.ndarray, labels: np.ndarray, wrong: float) -> np.ndarray:
    """P(wrong) [n] of a site at the sharpness where its sum is this number, as far as there is one."""

    def judge_at(power: float) -> np.ndarray:
        return 1.0 - _pick_columns(fit_site(log_p, labels, 2.0**power)[0], labels)

    low, high = -2.0, 5.0  # log2 of the sharpness
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (low, middle) if judge_at(middle).sum() >= wrong else (middle, high)
    return judge_at(high)

"""Estimates of P(given label is wrong), comparable between sites, from a model's predictions and the given labels.

The predictions q are sharpened by an exponent s that all sites share, q_i^s / sum_j q_j^s. Each site has its own
transition matrix T. Both are maximum likelihood estimates for the given labels, P(given j | x) = sum_i q_i(x) T_ij. T
comes from EM with a weak prior for right labels. P(wrong) then follows from Bayes' rule. So the labels of a noisy site
contradict the model more often than the model's own uncertainty explains. The sum of P(wrong) over a site estimates its
number of wrong labels.

With predictions of models that have not seen the sample (`estimate_held_out`), there is also a calibration of the model
by its confidence, and an interval from two estimates. docs/wrong_labels.md has the measurements for both.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fednoise_core.rng import stream

WRONG, CHECK = 0.5, 0.2  # P(wrong) above which a label's verdict is "wrong", "check"
STEPS = tuple(2.0 ** (k / 4) for k in range(-4, 13))  # exponents that are tried: 1/2 .. 8
START = 7  # the search begins at 2^(3/4)
DOUBT = 3  # the interval includes so many steps above and below the best exponent, a factor of 1.7
ROUNDS = 30  # of EM
LIKELY = 0.9  # T's diagonal where EM begins
PRIOR, SPREAD = 1.0, 0.02  # samples that the prior adds to each right label, and to each entry
TINY = 1e-12
Z90 = 1.645  # of the 90 % interval
SHAPE, RATE = 20.0, 100.0  # pseudo-samples: weight of all sites' error pattern, and of the site's error rate, in a row
APART = 0.1  # largest difference of two estimates that agree, as a share of the site's samples
ENOUGH = 30  # number of wrong labels that P(wrong) must find at a site, so that its matrix decides the order
BINS, FEWEST, FULL = 20, 5, 50  # bins of confidence: largest and smallest number of bins, and samples per bin
FIXED, SURE = 0.2, 0.998  # share of most confident bins in which P(prediction is right) is fixed, and its value there
GAIN = 5.0  # log-likelihood that the model's own errors must add, or else its predictions count as right in all bins
BELOW, ABOVE = 0.12, 0.15  # shares of the other contradicted labels that extend the interval below and above
UNCLEAR = 2.0  # times the error rate of a site: share of the other contradicted labels that may also be wrong
FOLLOWED = 0.1  # value above chance from which `measure_follow` is 1
PLATEAU = 0.84  # smallest ratio of shares in `has_plateau` for a model that is right when it is confident
FEW = 30  # smallest number of samples of a site whose share of disagreement is used as the smallest share


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
        estimated: True if `wrong` is reliable. False if wrong labels cannot be distinguished from images that are hard
            for the model.
        columns: Further columns of suspects.csv, name -> [n].
        agreement: Share of samples whose given label is predicted by models that have not seen the sample.
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


def beats_chance(hits: int, n: int, classes: int) -> bool:
    """Return True if `hits` of n predictions are right beyond chance: by two standard deviations, or all are right."""
    chance = 1 / classes
    return hits > min(n * chance + 2 * (n * chance * (1 - chance)) ** 0.5, n - 0.5)


def estimate_label_errors(
    log_p: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    samples: Sequence[np.ndarray],
    sites: Sequence[int],
    opinions: Mapping[int, MethodScores] | None = None,
) -> list[SiteLabels]:
    """Estimate which given labels of several sites are wrong.

    If a method has its own scores for a site, they determine the order. The most suspect sample then gets the largest
    P(wrong) of the site, and so on. The number of wrong labels still comes from the estimate.

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
            order = np.lexsort((p_wrong[listed], opinion.score))  # equal scores are ordered by the estimate
            proposals = np.where(opinion.proposed != y[listed], opinion.proposed, proposed[listed])
            share[listed] = posterior[listed, proposals] / np.maximum(p_wrong[listed], TINY)
            proposed[listed] = proposals
            p_wrong[listed[order]] = np.sort(p_wrong[listed])
        p_proposed = p_wrong * np.minimum(share, 1.0)
        judged.append(SiteLabels(number, rows, p_wrong, proposed, p_proposed, wrong, low, high))
    return judged


class _Site:
    """EM for one site. Samples are sorted by given label, so that sums by label are sums over slices."""

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
    """Return the index of STEPS with the largest value, by hill climbing from START."""

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
        high: Upper end of the interval.
        agree: True if two estimates agree and the model has learnt enough. False if the images seem hard for it.
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
    confidence: Sequence[np.ndarray] | None = None,
) -> list[SiteLabels]:
    """Estimate which given labels are wrong, from models that have not seen the sample and from all models.

    The estimates use the labels as first given. So errors that were corrected later still count for the error rate of a
    site. The results are about the current labels.

    Args:
        held_out_log_p: Log-probabilities for each site by models that have not seen the sample, finite [n, K].
        mixed: Log-probabilities for each site by all models, finite [n, K].
        labels: Labels of each site as first given, int64 [n].
        samples: Rows of the data set for each site, int64 [n]. They are only copied into the result.
        sites: Numbers of the sites, all different.
        current: Current labels of each site, int64 [n]. Default: `labels`.
        extra_columns: Further columns of each site. They are only copied into the result.
        confidence: Confidence for each site, float [n], of models that all sites share. It is needed if
            `held_out_log_p` also comes from votes of the site's own samples. Default: its largest values.

    Returns:
        The estimates, in the order of the sites.
    """
    site = np.repeat(np.arange(len(sites)), [len(y) for y in labels])
    y, held_out = np.concatenate(labels), np.concatenate(held_out_log_p)
    by_all = held_out if all(map(operator.is_, held_out_log_p, mixed)) else np.concatenate(mixed)
    learnt = has_plateau(held_out.max(1), held_out.argmax(1) == y, site)
    posterior = fit_sites(held_out, y, site, learnt, None if confidence is None else np.concatenate(confidence))
    held_p = 1.0 - _pick_columns(posterior, y)
    counts = count_wrong(held_out, y, site, held_p, learnt)
    if by_all is not held_out or confidence is not None:  # for the order within a site, votes add to the confidence
        posterior = fit_sites(by_all, y, site, learnt)
    by_matrix, by_model = 1.0 - _pick_columns(posterior, y), 1.0 - np.exp(_pick_columns(by_all, y))
    if not learnt:  # EM assumes that confident predictions are right. Instead use 1 - p(given) with halved log-odds
        odds = np.sqrt(by_model / np.maximum(1.0 - by_model, TINY))
        held_p = odds / (1.0 + odds)
    p_wrong = judge_by_number(by_matrix, by_model, held_p, site, counts)
    row, belief = np.arange(len(y)), posterior
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
        less = float((p_wrong - p_now)[of_site].sum())  # expected number of wrong labels that were corrected
        changed = float((now != y)[of_site].sum())  # upper bound of that number
        bounds = (count.low - max(less, changed), count.wrong - less, count.high - less)
        low, wrong, high = (min(max(bound, 0.0), len(rows)) for bound in bounds)
        columns = {} if extra_columns is None else extra_columns[number]
        judged = (p_now[of_site], proposed[of_site], p_proposed[of_site])
        agreement = float((held_out[of_site].argmax(1) == y[of_site]).mean())
        results.append(SiteLabels(name, rows, *judged, wrong, low, high, count.agree, columns, agreement))
    return results


def fit_sites(
    log_p: np.ndarray, labels: np.ndarray, site: np.ndarray, learnt: bool, confidence: np.ndarray | None = None
) -> np.ndarray:
    """Estimate P(true label) by EM, with a transition matrix for each site and one calibration of the model for all.

    The samples of all sites are divided into bins by the confidence of the model. In a bin the most probable class is
    right with a probability that all sites share, and that does not decrease with the confidence. In the most confident
    bins it is fixed near 1, so labels that contradict the model there are wrong. This separates wrong labels from
    errors of the model. It works even if all sites are equally noisy, or if the model has learnt that labels are
    shifted to the next class. The error rate of a row is regularised towards the rate of the site, and the distribution
    of its errors towards that of all sites.

    Sites must share the confidence. If it came from votes of a site's own samples, wrong labels would lower it at this
    site only. Bins with samples of this site only cannot separate its wrong labels from errors of the model.

    If errors of the model do not make the labels more likely, its predictions count as right in all bins, unless it has
    learnt little.

    Args:
        log_p: Log-probabilities of models that have not seen the sample, float64 [n, K].
        labels: Given labels, int64 [n].
        site: Site of each sample, int64 [n], from 0.
        learnt: True if the model is right where it is confident.
        confidence: Confidence of the model, by which bins are made, float [n]. Default: its largest log-probability.

    Returns:
        float64 [n, K].
    """
    n, K = log_p.shape
    S, row, off = int(site.max()) + 1, np.arange(n), 1.0 - np.eye(K)
    even, bins = off / (K - 1), min(max(n // FULL, FEWEST), BINS)
    fixed = max(round(FIXED * bins), 1)
    order = np.argsort(site * K + labels, kind="stable")
    log_p, given, place = log_p[order], labels[order], site[order]
    cell, top = place * K + given, log_p.argmax(1)
    present, starts = np.unique(cell, return_index=True)
    confidence = _pick_columns(log_p, top) if confidence is None else confidence[order]
    rank = np.argsort(np.argsort(confidence, kind="stable"), kind="stable")
    bin_of, sure = rank * bins // n, rank * 2 >= n
    size = np.maximum(np.bincount(bin_of, minlength=bins), TINY)
    others = np.exp(log_p) + 1e-9  # probabilities of the other classes, as predicted by the model
    others[row, top] = 0.0
    others /= others.sum(1, keepdims=True)

    def fit_matrices(counts: np.ndarray) -> np.ndarray:
        """[S, K true, K given] from counts of the same shape."""
        errors = counts * off
        wrong, shared = errors.sum(2), errors.sum(0) + SHAPE * even
        shared /= shared.sum(1, keepdims=True)
        rate = (wrong.sum(1) + 1) / (counts.sum((1, 2)) + 20)
        rates = (wrong + RATE * rate[:, None]) / (counts.sum(2) + RATE)
        pattern = (errors + SHAPE * shared) / (wrong + SHAPE)[..., None]
        return np.asarray(rates[..., None] * pattern + np.eye(K) * (1 - rates)[..., None])

    def climb_likelihood(fixed: int) -> tuple[np.ndarray, float]:
        """EM with this number of fixed bins. Returns P(true label) in the order of the samples, and log-likelihood."""
        counts = np.zeros((S, K, K))
        np.add.at(counts, (place[sure], top[sure], given[sure]), 1.0)
        T = fit_matrices(counts)
        rate = (counts * off).sum() / max(counts.sum(), 1.0)
        right = np.bincount(bin_of, top == given, bins) / size / max(1 - rate, TINY)
        for number in range(ROUNDS + 1):
            right = np.clip(_pool_adjacent(right, size), TINY, SURE)
            right[-fixed:] = SURE
            joint = others * (1 - right[bin_of])[:, None]
            joint[row, top] = right[bin_of]
            joint *= T.transpose(0, 2, 1).reshape(S * K, K)[cell]
            total = joint.sum(1, keepdims=True)
            joint /= total
            if number < ROUNDS:
                right = np.bincount(bin_of, joint[row, top], bins) / size
                counts = np.zeros((S * K, K))
                counts[present] = np.add.reduceat(joint, starts, axis=0)
                T = fit_matrices(counts.reshape(S, K, K).transpose(0, 2, 1))
        return joint, float(np.log(total).sum())

    joint, likelihood = climb_likelihood(fixed)
    if learnt:
        without_errors, its_likelihood = climb_likelihood(bins)
        joint = without_errors if likelihood < its_likelihood + GAIN else joint
    posterior = np.empty_like(joint)
    posterior[order] = joint
    return posterior


def _pool_adjacent(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the nearest non-decreasing values in weighted least squares (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            before = blocks.pop()
            total = before[1] + block[1]
            mean = (before[0] * before[1] + block[0] * block[1]) / total
            block = (mean, total, before[2] + block[2])
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])


def count_wrong(
    log_p: np.ndarray, labels: np.ndarray, site: np.ndarray, p_wrong: np.ndarray, learnt: bool
) -> list[Count]:
    """Estimate the number of wrong labels of every site, by two estimates from out-of-fold predictions.

    The first estimate is the sum of P(wrong). It is too small if only labels of unclear images are wrong. The second
    estimate counts disagreements between model and labels beyond the share of the site with the least disagreement. It
    is too large if the images of a site are harder. To use it, a site must share its number of disagreements. A single
    site has only the first estimate, and its interval ends at the number of disagreements.

    A label that a person guessed from an unclear image looks right to the model. Such labels are expected if the errors
    that are found go to classes that the model considers possible, as errors of people do. The number then includes
    some of the other disagreements, the more, the more errors a site has.

    A model that has learnt little is often wrong where it is most confident. Then only the second estimate is used, and
    the number is not reliable.

    Args:
        log_p: Log-probabilities of models that have not seen the sample, float64 [n, K].
        labels: Given labels, int64 [n].
        site: Site of each sample, int64 [n], from 0.
        p_wrong: P(wrong) of `fit_sites`, float64 [n].
        learnt: True if the model is right where it is confident.
    """
    sizes, by_model = np.bincount(site), np.bincount(site, p_wrong)
    variance = np.bincount(site, p_wrong * (1 - p_wrong))
    contradicted = log_p.argmax(1) != labels
    disagree = np.bincount(site, contradicted)
    share = disagree / sizes
    least = share + np.sqrt(share * (1 - share) / sizes)  # with its sampling error
    least = least[sizes >= min(FEW, sizes.max())].min()
    beyond = np.maximum(disagree - least * sizes, 0.0) / max(1 - least, TINY)
    follow = measure_follow(log_p[contradicted], labels[contradicted], p_wrong[contradicted])
    alone, results = len(sizes) == 1, []
    in_all = contradicted.mean()  # errors of labels and of models, which are separated for all sites together
    shared = in_all * (1 - in_all) / len(labels)  # its variance
    for n, first, second, spread, most in zip(sizes, by_model, beyond, variance, disagree, strict=True):
        agree = bool(second <= 2 * first + APART * n) and learnt
        noise, others = float(np.sqrt(spread + shared * n**2)), max(most - first, 0.0)
        guessed = min(UNCLEAR * follow * first / n, 1.0)  # share of the others
        wrong = max(first + guessed * others, second) if learnt else second
        low = max(first - BELOW * others - noise, 0.0) if agree else 0.0
        beside = others * (1.0 if alone else min(guessed + ABOVE, 1.0))
        by_second = second + ABOVE * max(most - second, 0.0) + Z90 * float(np.sqrt(second * (1 - second / n)))
        high = max(first + beside + noise, by_second)
        results.append(Count(wrong, low, min(high, n), agree))
    return results


def has_plateau(confidence: np.ndarray, agrees: np.ndarray, site: np.ndarray) -> bool:
    """Return False if a model is often wrong where it is confident, beyond sampling error.

    If confident predictions are right, they agree with all labels that are not wrong, at any level of confidence. So
    the share of agreement among a site's samples that rank from 50 to 80 % by confidence is compared with the share in
    the fifth above them. The arguments have an entry for each sample [n].
    """
    shuffled = stream(0, "equal confidences").permutation(len(site))  # rows with one error are often adjacent
    order = np.lexsort((shuffled, confidence, site))
    hits, sizes = agrees[order], np.bincount(site)
    rank = np.arange(len(site)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    middle, top = (np.repeat(start, sizes) for start in (sizes // 2, np.round((1 - FIXED) * sizes)))
    shares, errors = [], []
    for part in (hits[(rank >= middle) & (rank < top)], hits[rank >= top]):
        share = (part.sum() + 1) / (len(part) + 2)
        shares.append(share)
        errors.append((1 - share) / share / max(len(part), 1))
    ratio = shares[0] / shares[1]
    return bool(ratio * (1 + Z90 * np.sqrt(sum(errors))) >= PLATEAU)


def measure_follow(log_p: np.ndarray, labels: np.ndarray, p_wrong: np.ndarray) -> float:
    """Measure how far wrong labels follow the model's uncertainty, from 0 (wrong labels are random) to 1.

    The measure is the model's probability of the given class among all classes except the most probable one, above
    chance. The arguments are those of `count_wrong`, only for labels that the model contradicts. With two classes it
    cannot be measured, and the result is 1.
    """
    chance = 1 / (log_p.shape[1] - 1)
    if chance == 1:
        return 1.0
    doubt = np.exp(_pick_columns(log_p, labels)) / np.maximum(1 - np.exp(log_p.max(1, initial=-np.inf)), TINY)
    mean = float((p_wrong * doubt).sum() / max(p_wrong.sum(), TINY))
    return min(max((mean - chance) / (1 - chance) / FOLLOWED, 0.0), 1.0)


def judge_by_number(
    by_matrix: np.ndarray,
    by_model: np.ndarray,
    p_wrong: np.ndarray,
    site: np.ndarray,
    counts: Sequence[Count],
) -> np.ndarray:
    """Compute P(wrong) [n] with the values of models that have not seen the sample, in the order of all models.

    The order is that of `by_matrix` if the site's matrix can be estimated. This is so if both estimates of the number
    agree and P(wrong) finds enough wrong labels. Otherwise it is the order of 1 - p(given). The log-odds of a site are
    shifted by one number, so that the sum of P(wrong) is the estimated number.

    Args:
        by_matrix: P(wrong) of `fit_sites` by all models, float64 [n].
        by_model: 1 - p(given) by all models, float64 [n].
        p_wrong: P(wrong) by models that have not seen the sample, float64 [n].
        site: Site of each sample, int64 [n], from 0.
        counts: Result of `count_wrong`.
    """
    judged = np.zeros(len(p_wrong))
    for number, count in enumerate(counts):
        rows = np.flatnonzero(site == number)
        by_matrix_first = count.agree and by_matrix[rows].sum() >= ENOUGH
        order = np.lexsort((by_model[rows], by_matrix[rows] if by_matrix_first else by_model[rows]))
        judged[rows[order]] = np.sort(match_number(p_wrong[rows], count.wrong))
    return judged


def match_number(p_wrong: np.ndarray, wrong: float) -> np.ndarray:
    """Shift the log-odds of P(wrong) [n] by one number, so that the sum is `wrong`, as far as possible."""
    odds = np.clip(p_wrong, TINY, 1 - TINY)
    odds /= 1 - odds
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        moved = odds * np.exp(middle)
        low, high = (middle, high) if (moved / (1 + moved)).sum() < wrong else (low, middle)
    return np.asarray(odds * np.exp(low) / (1 + odds * np.exp(low)))

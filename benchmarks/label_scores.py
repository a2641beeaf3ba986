"""Scores of how wrong a given label looks, and numbers of wrong labels, from recorded predictions (`rank_labels`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from cleanlab.rank import get_label_quality_scores

from fednoise_core.ops.label_errors import STEPS, estimate_label_errors

ROUNDS = 8  # of a fold's federation
SKIP = 3  # rounds, or epochs, that means leave out: the model has learnt little by then
TODAY = "suspects.csv today"
CLEANLAB = "cleanlab, pooled"
OWN = "1 - p(given), all folds"
CHOSEN = "P(wrong), chosen"
EM_ROUNDS = 30
SHAPE, RATE = 20.0, 100.0  # samples that pull a row of T to uniform errors, and its rate to that of the site
APART = 0.1  # share of a site by which two estimates that agree may differ
ENOUGH = 30  # wrong labels, three a class, that the estimate of a site's matrix must find there
MISSED = 0.05  # share of the other labels that the model contradicts which the estimate adds
MARGIN, DOUBT, Z90 = 0.2, 0.25, 1.645  # of the interval


def log_mean(log_p: np.ndarray) -> np.ndarray:
    """Log of the mean probability along the first axis."""
    top = log_p.max(0)
    return top + np.log(np.exp(log_p - top).mean(0))


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities of all samples: float64 [rounds, n, K].

    held_out: of the model that has not seen the sample. seen: mean of those that have. pooled: of centralised models
    that have not, by epoch. plain, short: of one federated model that has seen all; None where it was not recorded.
    """

    held_out: np.ndarray
    seen: np.ndarray
    pooled: np.ndarray
    plain: np.ndarray | None
    short: np.ndarray | None


def read_predictions(kept: Mapping[str, np.ndarray]) -> Predictions:
    """Put a record in order."""
    folds, pooled, fold = (kept[name] for name in ("folds", "pooled", "fold"))
    rows, count = np.arange(folds.shape[2]), len(folds)

    def choose(models: np.ndarray, which: np.ndarray) -> np.ndarray:
        return models[which, :, rows].astype(np.float64).transpose(1, 0, 2)

    folds = folds[:, :ROUNDS]

    seen = log_mean(np.stack([choose(folds, (fold + step) % count) for step in range(1, count)]))
    plain, short = (kept[name].astype(np.float64) if name in kept else None for name in ("default", "quick"))
    return Predictions(choose(folds, fold), seen, choose(pooled, kept["pooled_fold"]), plain, short)


def score_labels(kept: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[Count]]:
    """All scores of a federation, and the numbers of wrong labels of its sites. None of it reads the clean labels.

    Args:
        kept: A record of `rank_labels.record`.

    Returns:
        Name -> float [n], high is suspect. What `count_wrong` finds.
    """
    p, given, site = read_predictions(kept), kept["given"], kept["site"]

    def doubt(log_p: np.ndarray) -> np.ndarray:
        return 1 - np.exp(log_p[np.arange(len(given)), given])

    held, mixed = mean_held_out(p), mean_all(p)
    quality = get_label_quality_scores(given, np.exp(p.pooled[-1]), method="normalized_margin")
    counts = count_wrong(held, given, site)
    found = {} if p.plain is None else {TODAY: kept["default_p"], "1 - p(given) today": doubt(p.plain[-1])}
    if p.short is not None:
        found["1 - p(given), one model, mean of rounds"] = doubt(log_mean(p.short[SKIP:]))
    found |= {
        CLEANLAB: doubt(p.pooled[-1]),  # its self_confidence
        "cleanlab, pooled, normalized_margin": 1 - quality,
        "cleanlab, pooled, mean of epochs": doubt(log_mean(p.pooled[SKIP:])),
        "1 - p(given), out of fold, last round": doubt(p.held_out[-1]),
        "1 - p(given), out of fold": doubt(held),
        OWN: doubt(mixed),
        "P(wrong), all folds, today's T": judge_today(mixed, given, site),
        "P(wrong), out of fold": judge(held, given, site),
        "P(wrong), all folds": judge(mixed, given, site),
        CHOSEN: judge_by_number(held, mixed, given, site, counts),
    }
    return found, counts


def mean_held_out(p: Predictions) -> np.ndarray:
    """[n, K] of the models that have not seen a sample, mean over rounds."""
    return log_mean(p.held_out[SKIP:])


def mean_all(p: Predictions) -> np.ndarray:
    """[n, K], half by the model that has not seen a sample, half by those that have."""
    return log_mean(np.stack([mean_held_out(p), log_mean(p.seen[SKIP:])]))


def judge_today(log_p: np.ndarray, given: np.ndarray, site: np.ndarray) -> np.ndarray:
    """P(wrong) [n] by `estimate_label_errors` as it is."""
    rows = [np.flatnonzero(site == number) for number in range(site.max() + 1)]
    found = estimate_label_errors([log_p[r] for r in rows], [given[r] for r in rows], rows, range(len(rows)))
    p_wrong = np.zeros(len(given))
    for one in found:
        p_wrong[one.samples] = one.p_wrong
    return p_wrong


def judge(log_p: np.ndarray, given: np.ndarray, site: np.ndarray) -> np.ndarray:
    """P(wrong) [n] with smoothed transition matrices, at the sharpness of the largest likelihood of all sites."""
    rows = [np.flatnonzero(site == number) for number in range(site.max() + 1)]
    found = [[fit_site(log_p[r], given[r], step) for r in rows] for step in STEPS]
    best = found[int(np.argmax([sum(likelihood for _, likelihood in sites) for sites in found]))]
    p_wrong = np.zeros(len(given))
    for r, (wrong, _) in zip(rows, best, strict=True):
        p_wrong[r] = wrong
    return p_wrong


def fit_site(log_p: np.ndarray, given: np.ndarray, sharpness: float) -> tuple[np.ndarray, float]:
    """(P(wrong) [n] of one site, log-likelihood of its labels), by EM with a smoothed T.

    A row's rate of errors is pulled to the site's, and where its errors go to all classes alike. With all of the pull
    P(wrong) has the order of 1 - p(given), with none of it that of the EM in `label_errors`.
    """
    n, K = log_p.shape
    z = log_p * sharpness
    q = np.exp(z - z.max(1, keepdims=True))
    q /= q.sum(1, keepdims=True)
    off = 1.0 - np.eye(K)
    even, one_hot = off / (K - 1), np.eye(K)[given]
    T = 0.9 * np.eye(K) + 0.1 * even
    for _ in range(EM_ROUNDS):
        joint = q * T.T[given]
        counts = (joint / joint.sum(1, keepdims=True)).T @ one_hot
        wrong = (counts * off).sum(1)
        rate = (wrong.sum() + 1) / (n + 20)
        rates = (wrong + RATE * rate) / (counts.sum(1) + RATE)
        T = rates[:, None] * (counts * off + SHAPE * even) / (wrong + SHAPE)[:, None] + np.diag(1 - rates)
    joint = q * T.T[given]
    total = joint.sum(1)
    return 1 - joint[np.arange(n), given] / total, float(np.log(total).sum())


@dataclass(frozen=True)
class Count:
    """Wrong labels of a site.

    Attributes:
        wrong: The estimate.
        low: Lower end of the interval.
        high: Its upper end.
        told: Whether two estimates agree. If not, the site cannot be told from one whose images are hard.
    """

    wrong: float
    low: float
    high: float
    told: bool


def count_wrong(log_p: np.ndarray, given: np.ndarray, site: np.ndarray) -> list[Count]:
    """Number of wrong labels of every site, by two estimates from predictions out of fold.

    One is the sum of P(wrong), which is too small where the model has learnt the errors. The other takes the site
    where the model disagrees least with the given labels, and counts what other sites have beyond that share, which
    is too large where their images are harder. A site exchanges its number of disagreements for it.

    Args:
        log_p: Log-probabilities of models that have not seen the sample, float64 [n, K].
        given: Given labels, int64 [n].
        site: Site of each sample, int64 [n].
    """
    sizes = np.bincount(site)
    by_model = np.bincount(site, judge(log_p, given, site))
    disagree = np.bincount(site, log_p.argmax(1) != given)
    least = (disagree / sizes).min()
    beyond = (disagree - least * sizes) / (1 - least)
    found = []
    for n, *both, most in zip(sizes, by_model, beyond, disagree, strict=True):
        few, many = min(both), max(both)
        told = bool(many <= 2 * few + APART * n)
        noise = Z90 * float(np.sqrt(many * (1 - many / n)))
        rest = max(most - many, 0.0)
        wrong = many + MISSED * rest
        low, high = max(few - MARGIN * few - noise, 0.0), min(many + DOUBT * rest + noise, n)
        found.append(Count(wrong, low, high, told))
    return found


def judge_by_number(
    held: np.ndarray, mixed: np.ndarray, given: np.ndarray, site: np.ndarray, counts: list[Count]
) -> np.ndarray:
    """P(wrong) [n]: how many and how sure by models that have not seen the sample, the order by all models.

    The order is that of P(wrong) where the site's matrix can be estimated, so where two estimates of the number agree
    and P(wrong) finds enough wrong labels. Elsewhere it is the order of 1 - p(given). The sharpness of a site is the
    one at which the sum of P(wrong) is the estimated number.
    """
    by_matrix, p_wrong = judge(mixed, given, site), np.zeros(len(given))
    own = 1 - np.exp(mixed[np.arange(len(given)), given])
    for number, count in enumerate(counts):
        rows = np.flatnonzero(site == number)
        known = count.told and by_matrix[rows].sum() >= ENOUGH
        order = np.lexsort((own[rows], by_matrix[rows] if known else own[rows]))
        p_wrong[rows[order]] = np.sort(match_number(held[rows], given[rows], count.wrong))
    return p_wrong


def match_number(log_p: np.ndarray, given: np.ndarray, wrong: float) -> np.ndarray:
    """P(wrong) [n] of a site at the sharpness where its sum is this number, as far as there is one."""
    low, high = -2.0, 5.0  # log2 of the sharpness
    for _ in range(9):
        middle = (low + high) / 2
        enough = fit_site(log_p, given, 2.0**middle)[0].sum() >= wrong
        low, high = (low, middle) if enough else (middle, high)
    return fit_site(log_p, given, 2.0**high)[0]

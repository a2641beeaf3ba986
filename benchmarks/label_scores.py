"""Scores of how wrong a given label looks, and numbers of wrong labels, from recorded predictions (`rank_labels`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from cleanlab.rank import get_label_quality_scores

from fednoise_core.label_errors.estimate import Count, count_wrong, estimate_label_errors, judge_by_number, judge_labels

ROUNDS = 8  # of a fold's federation
SKIP = 3  # rounds, or epochs, that means leave out: the model has learnt little by then
TODAY = "suspects.csv today"
CLEANLAB = "cleanlab, pooled"
OWN = "1 - p(given), all folds"
CHOSEN = "P(wrong), chosen"


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
    counts, posterior = count_wrong(held, given, site), judge_labels(mixed, given, site)
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
        "P(wrong), out of fold": doubt(np.log(judge_labels(held, given, site))),
        "P(wrong), all folds": doubt(np.log(posterior)),
        CHOSEN: judge_by_number(held, mixed, posterior, given, site, counts),
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

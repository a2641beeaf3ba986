"""Label-DP by randomised response (Warner 1965; FedDPCont). Closed forms, numpy only.

A label k of K classes is told as it is with probability p, and as each other class with probability q = (1-p)/(K-1);
ε = ln(p/q). K below 2, ε ≤ 0 and NaN raise SpecError everywhere.

What ε covers: one message in which a client tells its labels. Debiasing, projecting and reusing that message is
post-processing and free; R such messages with noise of their own cost R·ε. Model updates trained on the raw labels and
the sizes N_c are not covered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fednoise_core.io import SpecError
from fednoise_core.settings.functions import integer, number


def keep_probability(epsilon: float, K: int) -> float:
    """p = 1 / (1 + (K-1)·e^-ε): the probability to tell the true label, above 1/K and at most 1 (ε = ∞)."""
    number(epsilon, "epsilon", 0, math.inf, open_low=True)
    integer(K, "classes", 2)
    return 1 / (1 + (K - 1) * math.exp(-epsilon))


def epsilon_of(p: float, K: int) -> float:
    """ε = ln(p·(K-1)/(1-p)), the inverse of `keep_probability`; p in (1/K, 1]."""
    integer(K, "classes", 2)
    number(p, "keep", 1 / K, 1, open_low=True)
    return math.inf if p == 1 else math.log(p * (K - 1) / (1 - p))


def randomise(labels: np.ndarray, K: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Each label on its own: kept with probability p, else one of the other K-1, uniformly. int64 [n] → int64 [n].

    All K classes take part, not only those the client has. Send the result shuffled or counted: order carries
    information. Raises SpecError for labels that are no whole numbers in 0..K-1, which would be told as others."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (len(labels) and not 0 <= labels.min() <= labels.max() < K):
        raise SpecError(f"labels must be a vector of whole numbers in 0..{K - 1}")
    labels = labels.astype(np.int64)
    lie = rng.random(len(labels)) >= keep_probability(epsilon, K)
    return np.where(lie, (labels + rng.integers(1, K, len(labels))) % K, labels)


def debias(counts: np.ndarray, epsilon: float, K: int) -> np.ndarray:
    """p̂ = (č - q)/(p-q), float64 [K], from the pooled counts [K] of released labels: unbiased, sums to 1, entries may
    be negative. č: shares of the counts. Raises SpecError for anything but K counts with a positive sum."""
    counts = np.asarray(counts, dtype=np.float64)
    if counts.shape != (K,) or not np.isfinite(counts).all() or (counts < 0).any() or counts.sum() <= 0:
        raise SpecError(f"counts must be {K} numbers ≥ 0, not all 0")
    p = keep_probability(epsilon, K)
    q = p * math.exp(-epsilon)  # (1-p)/(K-1), which would cancel for large ε
    return (counts / counts.sum() - q) / (p - q)


def project(p: np.ndarray) -> np.ndarray:
    """The distribution float64 [K] nearest to the estimate `p` [K] (sums to 1, entries may be negative) in Euclidean
    distance, by sorting (Duchi et al. 2008). Raises SpecError for entries that are not finite."""
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1 or not np.isfinite(p).all():
        raise SpecError("p must be a vector of finite numbers")
    falling = np.sort(p)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(p) + 1)
    result = np.maximum(p - excess[np.flatnonzero(falling > excess)[-1]], 0)
    return result / result.sum()


@dataclass
class Release:
    """The releases of a run: keeps the pooled counts of the latest, and refuses more than `times`, also after a resume.

    Noise that is drawn again costs again: `made` releases cost made·ε (sequential composition). So `state()` belongs
    into the checkpoint.
    """

    epsilon: float
    K: int
    times: int = 1
    made: int = 0
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        keep_probability(self.epsilon, self.K)  # checks both
        integer(self.times, "times", 1)

    def record(self, histograms: Sequence[np.ndarray]) -> None:
        """Pool histograms [K] of labels that clients randomised themselves. RuntimeError if no release is left."""
        self.refuse_more()
        pooled = np.sum([np.asarray(h) for h in histograms], axis=0).astype(np.int64)
        if pooled.shape != (self.K,) or pooled.min() < 0 or pooled.sum() == 0:
            raise SpecError(f"a release needs histograms of {self.K} counts with at least one label")
        self.counts = pooled
        self.made += 1

    def prior(self) -> np.ndarray:
        """The server's estimate p̂ [K] of the label distribution, projected. Post-processing: free to repeat."""
        return project(debias(self._latest(), self.epsilon, self.K))

    def shares(self) -> np.ndarray:
        """The distribution [K] of the released labels as they are, randomised."""
        return self._latest() / self._latest().sum()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps (JSON)."""
        return {**vars(self), "counts": self._latest().tolist()}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Release:
        """The releases of a resumed run: as many are made as the state says."""
        kept = {field.name: state[field.name] for field in fields(cls)}
        return cls(**{**kept, "counts": np.asarray(kept["counts"], dtype=np.int64)})

    def refuse_more(self) -> None:
        """Raise RuntimeError if no release is left."""
        if self.made >= self.times:
            raise RuntimeError(
                f"the labels were released already, as often as allowed ({self.times}): a further release would cost "
                f"ε = {self.epsilon} again"
            )

    def _latest(self) -> np.ndarray:
        if self.counts is None:
            raise RuntimeError("nothing was released yet")
        return self.counts

"""Label differential privacy by randomised response (Warner, 1965; Di et al., 2024). Closed forms, numpy only.

A client reports a label k of K classes as it is with probability p. It reports each other class with probability
q = (1-p)/(K-1). Then ε = ln(p/q). All functions raise SpecError for K below 2, ε ≤ 0 and NaN.

ε covers one message in which a client reports its labels. Debiasing, projecting and reusing that message is
post-processing and costs nothing. R such messages with separate noise cost R·ε. ε does not cover model updates that
were trained on the raw labels, nor the sizes N_c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fednoise_core.io import SpecError
from fednoise_core.settings.functions import check_float, check_int


def keep_probability(epsilon: float, K: int) -> float:
    """Probability to report the true label, p = 1 / (1 + (K-1)·e^-ε).

    Args:
        epsilon: ε > 0; infinity means no noise.
        K: Number of classes, at least 2.

    Returns:
        p in (1/K, 1].

    Raises:
        SpecError: `epsilon` or `K` is out of range.
    """
    check_float(epsilon, "epsilon", 0, math.inf, open_low=True)
    check_int(K, "classes", 2)
    return 1 / (1 + (K - 1) * math.exp(-epsilon))


def epsilon_of(p: float, K: int) -> float:
    """Privacy loss ε = ln(p·(K-1)/(1-p)), the inverse of `keep_probability`.

    Args:
        p: Probability to report the true label, in (1/K, 1].
        K: Number of classes, at least 2.

    Returns:
        ε > 0; infinity for p = 1.

    Raises:
        SpecError: `p` or `K` is out of range.
    """
    check_int(K, "classes", 2)
    check_float(p, "keep", 1 / K, 1, open_low=True)
    return math.inf if p == 1 else math.log(p * (K - 1) / (1 - p))


def randomise_labels(labels: np.ndarray, K: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Apply randomised response to each label independently.

    A label is kept with probability p. Otherwise it becomes one of the other K-1 classes, uniformly. All K classes take
    part, also those that the client does not have. Send the result shuffled or counted, because its order carries
    information.

    Args:
        labels: Whole numbers [n] in 0..K-1.
        K: Number of classes.
        epsilon: Privacy loss ε of the message.
        rng: Stream of the draws.

    Returns:
        The reported labels, int64 [n].

    Raises:
        SpecError: A label is not a whole number in 0..K-1.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (len(labels) and not 0 <= labels.min() <= labels.max() < K):
        raise SpecError(f"labels must be a vector of whole numbers in 0..{K - 1}")
    labels = labels.astype(np.int64)
    lie = rng.random(len(labels)) >= keep_probability(epsilon, K)
    return np.where(lie, (labels + rng.integers(1, K, len(labels))) % K, labels)


def debias_counts(counts: np.ndarray, epsilon: float, K: int) -> np.ndarray:
    """Unbiased estimate p̂ = (č - q)/(p-q) of the label distribution, where č are the shares of the reported counts.

    Args:
        counts: Pooled counts [K] of the reported labels.
        epsilon: ε of the reports.
        K: Number of classes.

    Returns:
        The estimate, float64 [K]. It sums to 1; entries may be negative.
    """
    counts = np.asarray(counts, dtype=np.float64)
    p = keep_probability(epsilon, K)
    q = p * math.exp(-epsilon)  # (1-p)/(K-1), which would cancel for large ε
    return (counts / counts.sum() - q) / (p - q)


def project_to_simplex(p: np.ndarray) -> np.ndarray:
    """Nearest distribution in Euclidean distance, by sorting (Duchi et al., 2008, Fig. 1).

    Args:
        p: Estimate [K] that sums to 1; entries may be negative.

    Returns:
        A distribution, float64 [K].
    """
    p = np.asarray(p, dtype=np.float64)
    falling = np.sort(p)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(p) + 1)
    result = np.maximum(p - excess[np.flatnonzero(falling > excess)[-1]], 0)
    return result / result.sum()


@dataclass
class Release:
    """Releases of randomised labels in one run. Keeps the pooled counts of the latest and limits how many there are.

    Noise that is drawn again costs again: n releases cost n·ε (sequential composition). Therefore `state()` must be
    part of the checkpoint.

    Attributes:
        epsilon: ε of one release.
        K: Number of classes.
        times: Releases that are allowed.
        releases: Number of releases so far.
        counts: Pooled counts of the latest release, int64 [K].
    """

    epsilon: float
    K: int
    times: int = 1
    releases: int = 0
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        keep_probability(self.epsilon, self.K)  # checks both
        check_int(self.times, "times", 1)

    def record(self, histograms: Sequence[np.ndarray]) -> None:
        """Pool the histograms of labels that clients randomised themselves.

        Args:
            histograms: Counts [K], one vector for each client.

        Raises:
            RuntimeError: No release is left.
        """
        self.refuse_more()
        self.counts = np.sum([np.asarray(h) for h in histograms], axis=0).astype(np.int64)
        self.releases += 1

    def estimate_prior(self) -> np.ndarray:
        """Server's estimate of the label distribution, debiased and projected.

        This is post-processing of the release, so it may be repeated at no cost.

        Returns:
            A distribution, float64 [K].
        """
        return project_to_simplex(debias_counts(self._latest_counts(), self.epsilon, self.K))

    def released_shares(self) -> np.ndarray:
        """Distribution of the released labels without debiasing.

        Returns:
            Shares, float64 [K].
        """
        return self._latest_counts() / self._latest_counts().sum()

    def state(self) -> dict[str, Any]:
        """Content for the checkpoint.

        Returns:
            The fields by name, as JSON can hold them.
        """
        return {**vars(self), "counts": self._latest_counts().tolist()}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Release:
        """Continue the releases of a checkpoint.

        Args:
            state: What `state` returned.

        Returns:
            A Release with the same counts and the same number of releases.
        """
        counts = np.asarray(state["counts"], dtype=np.int64)
        return cls(**{field.name: state[field.name] for field in fields(cls)} | {"counts": counts})

    def refuse_more(self) -> None:
        """Check that a release is left.

        Raises:
            RuntimeError: The labels were released `times` times already.
        """
        if self.releases >= self.times:
            raise RuntimeError(
                f"the labels were released already, as often as allowed ({self.times}): a further release would cost "
                f"ε = {self.epsilon} again"
            )

    def _latest_counts(self) -> np.ndarray:
        if self.counts is None:
            raise RuntimeError("nothing was released yet")
        return self.counts

"""The interval of a difference between a few runs, which decides a claim about them.

The variance of a difference of one seed is the largest of three estimates: that of a two-way layout of methods and
seeds (seeds are blocks), pooled over the columns of a paper's tables; the sample variance of the difference itself; and
the swing between evaluations. The variance between processors is added.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from workflow_scripts.report.runs.frames import LAST
from workflow_scripts.report.runs.statistics import LEVEL

PROCESSOR = 1.0
"""Points by which two runs of one cell differ on two kinds of processor.

The cells of FedAvg and of mixed prediction alone (Fashion-MNIST, symmetric noise 0.4, three classes a client, scale
cpu, seed 0) were run on two kinds and differed by 0.8 and 1.0 points.
"""


class Spread(NamedTuple):
    """Variance of one run about its method and its seed, in points², and its degrees of freedom, 0 if not known."""

    variance: float
    freedom: int


def measure_swing(values: Sequence[float], metric: str) -> float:
    """Estimate the standard error of a metric that comes from the swing between evaluations.

    For `last` it is the standard deviation of an evaluation about a local line, from the second differences of the last
    ten (Gasser et al., 1986). For `last10_mean` it is the same divided by √10. For `best` it is the standard deviation
    of the ten highest evaluations, which is about that of the maximum of at most a hundred normal draws.

    Args:
        values: Accuracies of all evaluations, in %.
        metric: "best", "last" or "last10_mean".

    Returns:
        The standard error in points. 0 for fewer than three evaluations.
    """
    if len(values) < 3:
        return 0.0
    if metric == "best":
        return float(np.std(np.sort(values)[-LAST:], ddof=1))
    bends = np.diff(np.asarray(values, dtype=float)[-LAST:], 2)
    swing = math.sqrt(float((bends**2).mean()) / 6)
    return swing if metric == "last" else swing / math.sqrt(min(LAST, len(values)))


def find_peak(values: Sequence[float]) -> float:
    """The highest mean of ten successive evaluations, or the mean of all if there are fewer."""
    window = min(LAST, len(values))
    return float(np.convolve(values, np.ones(window) / window, "valid").max())


def is_collapsed(values: Sequence[float], chance: float) -> bool:
    """Return True if a run was at chance: after its first tenth, in a tenth of its evaluations or more.

    Args:
        values: Accuracies of all evaluations, in %.
        chance: Accuracy of a guess, in %. An accuracy within a point of it is at chance.
    """
    later = np.asarray(values)[len(values) // 10 :]
    return bool((np.abs(later - chance) <= 1).mean() >= 0.1)


def pool_spread(columns: Iterable[Sequence[Mapping[int, float]]]) -> Spread:
    """Pool the variance of runs about their method and seed.

    Args:
        columns: For each column the values of each method by seed. Only seeds that all methods with two seeds or more
            have are used.
    """
    total, freedom = 0.0, 0
    for column in columns:
        methods = [values for values in column if len(values) > 1]
        seeds = sorted(set.intersection(*map(set, methods))) if methods else []
        if len(methods) > 1 and len(seeds) > 1:
            layout = np.array([[values[seed] for seed in seeds] for values in methods])
            rest = layout - layout.mean(0) - layout.mean(1, keepdims=True) + layout.mean()
            total, freedom = total + float((rest**2).sum()), freedom + (len(methods) - 1) * (len(seeds) - 1)
    return Spread(total / freedom if freedom else 0.0, freedom)


def find_interval(
    differences: Sequence[float], weights: Sequence[int], swings: Sequence[float], spread: Spread, comparisons: int
) -> tuple[float, float]:
    """The interval of a mean difference.

    Args:
        differences: One difference per seed, in points.
        weights: Weights of the runs in a difference, such as 1 and -1.
        swings: One variance per seed, of the difference due to the swing between evaluations (`measure_swing`).
        spread: Spread of the paper's runs (`pool_spread`).
        comparisons: Number of comparisons of the claim, which share the level (Bonferroni).

    Returns:
        The ends of the interval. They are infinite if no method has two seeds, as the spread is then unknown.
    """
    mean, squares = float(np.mean(differences)), sum(weight**2 for weight in weights)
    if not spread.freedom:
        return -math.inf, math.inf
    own = float(np.var(differences, ddof=1)) if len(differences) > 1 else 0.0
    variance = max(spread.variance * squares, own, float(np.mean(swings))) + squares * PROCESSOR**2 / 2
    quantile = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, spread.freedom))
    half = quantile * math.sqrt(variance / len(differences))
    return mean - half, mean + half

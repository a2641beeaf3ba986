"""Statistics over seeds, by scipy: mean, spread and bootstrap interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from fednoise_core.rng import stream

LEAST = 3  # values below which an interval would say more than they do
LEVEL = 0.95
DRAWS = 9999


class Spread(NamedTuple):
    """Mean, sample standard deviation (NaN for one value), and ends of an interval of n values.

    `low` and `high` are those of the 95 % bootstrap interval of the mean, NaN for fewer than `LEAST` values. All but n
    are NaN where a value is.
    """

    n: int
    mean: float
    std: float
    low: float
    high: float


def summarize_seeds(values: Sequence[float]) -> Spread:
    """Mean, deviation and bootstrap interval of the values of a few seeds.

    The interval is the percentile one: for so few values the corrected kinds rest on too little. The draws are the same
    every time, so that equal values give equal ends.

    Args:
        values: One a seed.
    """
    sample = np.asarray(values, dtype=float)
    nothing = math.nan
    if not len(sample) or np.isnan(sample).any():
        return Spread(len(sample), nothing, nothing, nothing, nothing)
    mean = float(sample.mean())
    std = float(sample.std(ddof=1)) if len(sample) > 1 else nothing
    if len(sample) < LEAST:
        return Spread(len(sample), mean, std, nothing, nothing)
    if np.ptp(sample) == 0:
        return Spread(len(sample), mean, std, mean, mean)
    interval = stats.bootstrap(
        (sample,), np.mean, n_resamples=DRAWS, confidence_level=LEVEL, method="percentile", rng=stream(0, "bootstrap")
    ).confidence_interval
    return Spread(len(sample), mean, std, float(interval.low), float(interval.high))

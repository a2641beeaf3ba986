"""Statistics over seeds, by scipy: mean, spread and bootstrap interval."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from fednoise_core.rng import stream

LEAST = 3  # fewest values for an interval
LEVEL = 0.95  # of every interval
DRAWS = 9999


def summarize_seeds(values: Sequence[float]) -> dict[str, float]:
    """Mean, deviation and bootstrap interval of the values of a few seeds.

    It is a percentile interval, since corrected intervals are unreliable for so few values. The random draws are always
    the same, so that equal values give equal ends.

    Args:
        values: One value per seed.

    Returns:
        `mean`, `std` (sample standard deviation, NaN for one value), and `low` and `high`, the ends of the 95 %
        interval of the mean (NaN for fewer than `LEAST` values). All are NaN if a value is NaN.
    """
    sample = np.asarray(values, dtype=float)
    mean = std = low = high = math.nan
    if len(sample) and not np.isnan(sample).any():
        mean = float(sample.mean())
        std = float(sample.std(ddof=1)) if len(sample) > 1 else math.nan
    if len(sample) >= LEAST and not math.isnan(mean):
        low = high = mean
        if np.ptp(sample) > 0:
            draws = {"n_resamples": DRAWS, "method": "percentile", "rng": stream(0, "bootstrap")}
            result = stats.bootstrap((sample,), np.mean, confidence_level=LEVEL, **draws)
            low, high = map(float, result.confidence_interval)
    return {"mean": mean, "std": std, "low": low, "high": high}

"""Channel means and standard deviations of images."""

from typing import Any

import numpy as np

SAMPLE = 2000  # images looked at when they must be decoded one by one


def mean_and_std(x: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) per channel of pixels scaled to [0, 1], rounded to 4 decimals; x uint8 [n, H, W] or [n, H, W, C].

    Computed from exact integer histograms, so the result does not depend on the order of summation. Of images that are
    read on demand, at most 2,000 evenly spaced ones count. A constant channel gets std 1: dividing by 0 would make its
    pixels infinite.
    """
    n = len(x)
    if hasattr(x, "paths") and n > SAMPLE:
        x = x.take(np.linspace(0, n - 1, SAMPLE).astype(np.int64))
    x = x[:]
    channels = [x] if x.ndim == 3 else [x[..., channel] for channel in range(x.shape[-1])]
    value = np.arange(256, dtype=np.float64) / 255
    means, stds = [], []
    for channel in channels:
        weight = np.bincount(channel.ravel(), minlength=256) / channel.size
        mean = float(weight @ value)
        std = float(np.sqrt(max(weight @ (value - mean) ** 2, 0.0)))
        means.append(round(mean, 4))
        stds.append(round(std, 4) or 1.0)
    return tuple(means), tuple(stds)

"""Channel means and standard deviations of images."""

from typing import Any

import numpy as np

SAMPLE = 2000  # images looked at when they must be decoded one by one


def mean_and_std(x: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) per channel of pixels scaled to [0, 1], rounded to 4 decimals; x uint8 [n, H, W] or [n, H, W, C].

    For feature vectors, float32 [n, 1, 1, d], there is a mean and std for each feature. Clients could share them as the
    sums and the sums of squares of their features.

    They are computed from exact integer histograms, so the result does not depend on the order of summation. For images
    that are read on demand, at most 2,000 evenly spaced images are used. A constant channel gets std 1, because a
    division by 0 would make its pixels infinite.
    """
    n = len(x)
    if hasattr(x, "paths") and n > SAMPLE:
        x = x.take(np.linspace(0, n - 1, SAMPLE).astype(np.int64))
    x = x[:]
    if x.dtype.kind == "f":
        return _standardise_features(x.reshape(n, -1).astype(np.float64))
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


def _standardise_features(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean = x.mean(0)
    std = np.sqrt(np.maximum((x**2).mean(0) - mean**2, 0.0))
    return tuple(mean.tolist()), tuple(np.where(std > 1e-6 * np.abs(mean), std, 1.0).tolist())

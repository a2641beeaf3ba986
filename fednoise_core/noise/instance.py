"""Instance-dependent noise: the wrong label is a function of the image."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.noise.models import none
from fednoise_core.noise.sampling import NoiseResult, Spec, noise_model
from fednoise_core.rng import stream
from fednoise_core.settings.declare import Share, Shown

BLOCK = 512  # images multiplied at a time


def _mean_rate(spec: Spec, K: int) -> float:
    """Mean of the truncated flip rates, to three digits. It is above small rates: 0.101 for 0.05."""
    from scipy.stats import truncnorm

    rate, spread = spec["rate"], spec["spread"]
    if not rate or not spread:
        return float(rate)
    mean = float(truncnorm.mean(-rate / spread, (1 - rate) / spread, loc=rate, scale=spread))
    return float(rate) if abs(mean - rate) < 5e-4 else round(mean, 3)


@noise_model(
    example={"rate": 0.4},
    display_name="{rate} of labels wrong, by image",
    nominal_rate=_mean_rate,
    random_state=True,
)
def instance(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator | np.random.RandomState,
    *,
    images: np.ndarray,
    rate: Annotated[
        Share,
        Field(description="Mean of the flip rates before they are truncated to 0..1, which raises small rates."),
    ],
    spread: Annotated[
        Share, Field(description="Standard deviation of the flip rates before truncation to 0..1.")
    ] = 0.1,
    scale: Annotated[
        Literal["raw", "unit"],
        Shown(display_name={"raw": "pixels from 0 to 255", "unit": "pixels from 0 to 1"}),
        Field(description="Range of pixels: 0..255 (authors' code), or 0..1, which makes the flips less predictable."),
    ] = "raw",
) -> NoiseResult:
    """The wrong label is a function of the image: part-dependent noise (Xia et al. 2020).

    Each class has a random projection. Sample n flips with probability q_n ~ Normal(rate, spread) truncated to
    [0, 1], to class softmax(x_nᵀ W[y_n]) without its own, W ~ N(0, 1).

    x is the flattened image. With `raw` its pixels are 0..255 as in the authors' code, and the softmax is nearly
    one-hot. With `unit` they are 0..1. A RandomState draws in the authors' order (q, W, labels). A Generator draws W
    class by class, which needs K times less memory. T_nominal is the mean over the samples of a class. With a `rate` of
    0 there is no noise.
    """
    factor = 1.0 if scale == "raw" else 1 / 255
    if rate == 0:
        return none(y, K, np.random.default_rng(0))
    q = _truncated_normal(rate, spread, rng.random(len(y)))
    D = int(np.prod(images.shape[1:]))
    weights = _class_weights(K, D, rng)
    P = np.zeros((len(y), K))
    for k in range(K):
        members = np.flatnonzero(y == k)
        if len(members):
            W = weights(k)
            for start in range(0, len(members), BLOCK):
                part = members[start : start + BLOCK]
                P[part] = _flip_probabilities(
                    np.asarray(images[part], dtype=np.float64).reshape(len(part), D) @ W * factor, k
                )
    P *= q[:, None]
    P[np.arange(len(y)), y] = 1 - q
    cumulative = np.cumsum(P, 1)
    noisy = (rng.random(len(y))[:, None] >= cumulative / cumulative[:, -1:]).sum(1)
    T = np.eye(K)
    for k in np.unique(y):
        T[k] = P[y == k].mean(0)
    return NoiseResult(noisy, T / T.sum(1, keepdims=True))


def _truncated_normal(mean: float, spread: float, u: np.ndarray) -> np.ndarray:
    """Normal(mean, spread) truncated to [0, 1], by inversion of the uniforms `u`."""
    if spread == 0:
        return np.full(len(u), mean)
    from scipy.special import ndtr, ndtri

    low, high = ndtr(-mean / spread), ndtr((1 - mean) / spread)
    return np.clip(mean + spread * ndtri(low + u * (high - low)), 0, 1)


def _class_weights(K: int, D: int, rng: np.random.Generator | np.random.RandomState) -> Any:
    """K → W[k] float64 [D, K]; float32 values, as in the authors' code."""
    if isinstance(rng, np.random.RandomState):
        W = rng.standard_normal((K, D, K)).astype(np.float32)
        return lambda k: W[k].astype(np.float64)
    seed = int(rng.integers(1 << 63))
    return lambda k: stream(seed, "projection", k).standard_normal((D, K), dtype=np.float32).astype(np.float64)


def _flip_probabilities(scores: np.ndarray, k: int) -> np.ndarray:
    """Softmax of the scores [m, K] over all classes but `k`."""
    scores[:, k] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)

"""Asymmetric noise with a given share of impossible flips, as in cleanlab's generator, which FedEFC uses.

It was written from the description. M = Tᵀ has the orientation of the generator: columns are true classes and sum to
one. It draws from numpy's legacy generator in a fixed order, because the published experiments depend on this order.
`np.random.RandomState(42)` gives the matrices and the noisy labels of FedEFC.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.noise.sampling import NoiseResult, Rounding, Sampling, noise_model, sample
from fednoise_core.settings.declare import Share, Shown
from fednoise_core.settings.functions import check_float

TRIES = 10_000  # of a whole matrix
PUSHES = 100_000  # of one entry back into its range
SLACK = 1e-6


@noise_model(
    example={"rate": 0.4, "sparsity": 0.8, "noise_seed": 42},
    display_name="{rate} of labels wrong, asymmetric",
    random_state=True,
)
def asymmetric(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator | np.random.RandomState,
    *,
    rate: Annotated[float, Field(ge=0, lt=1, description="Mean noise rate over classes, below 1 - 1/K.")],
    sparsity: Annotated[
        Share,
        Field(
            description="Share of the off-diagonal entries that are 0, at most (K-2)/(K-1). Flips between look-alike "
            "classes of CIFAR-10, which papers call asymmetric too, are kind semantic."
        ),
    ],
    diag: Annotated[
        Literal["random", "constant"],
        Shown(display_name="{} diagonal"),
        Field(description="constant: every class keeps 1 - rate of its labels."),
    ] = "random",
    sampling: Annotated[Sampling, Field(description="As for symmetric; the paper's code is exact.")] = "exact",
    rounding: Annotated[
        Rounding, Field(description="Rounding of the counts in the exact modes; the paper's code rounds down.")
    ] = "floor",
) -> NoiseResult:
    """Class-dependent with a mean rate ρ and a share ζ of impossible flips (FedEFC; cleanlab's generator).

    noise_seed 42 gives the published matrices and labels. The diagonal is random per class, or 1 - ρ for all classes
    with `diag="constant"`. ζ is at most (K-2)/(K-1), and ρ is below 1 - 1/K. ρ = 0 is no noise. The defaults `exact`
    and `floor` round every count down like the paper's code. With 100 classes much of the noise is lost by rounding:
    ρ = .1 and ζ = 0 on CIFAR-100 flip 4 %. If `rng` is a Generator, it seeds a legacy generator.
    """
    legacy = rng if isinstance(rng, np.random.RandomState) else np.random.RandomState(int(rng.integers(1 << 32)))
    prior = np.bincount(y, minlength=K) / max(1, len(y))
    M = asymmetric_matrix(K, rate, sparsity, prior, legacy, constant=diag == "constant")
    if (sampling, rounding) == ("exact", "floor"):
        return NoiseResult(_flip_exactly(y, M, prior, legacy), M.T)
    return NoiseResult(sample(y, M.T, legacy, sampling, rounding), M.T)


def asymmetric_matrix(
    K: int, rate: float, sparsity: float, prior: np.ndarray, rng: np.random.RandomState, *, constant: bool = False
) -> np.ndarray:
    """Draw a matrix in which each label is more likely for its own class than on average over all classes.

    Args:
        K: number of classes.
        rate: mean noise rate ρ.
        sparsity: share ζ of impossible flips.
        prior: share of each class, [K].
        rng: the generator.
        constant: whether every class keeps 1 - ρ of its labels.

    Returns:
        M [K, K], the transpose of T: columns sum to one.

    Raises:
        SpecError: ρ ≥ 1 - 1/K, ζ is above its limit, or 10 000 tries find no such matrix.
    """
    check_float(rate, "rate", 0, 1 - 1 / K, open_high=True)
    check_float(sparsity, "sparsity", 0, 1 if K == 2 else (K - 2) / (K - 1) + 1e-12)
    trace = (1 - rate) * K
    if rate == 0:
        return np.eye(K)
    if K == 2:
        return _two_class_matrix(rate, trace, sparsity, rng, constant)
    for _ in range(TRIES):
        d = np.full(K, 1 - rate) if constant else random_sum(K, trace, 1.0, 1e-5, rng)
        M = np.diag(d)
        noisy = np.flatnonzero(d != 1)
        zeros = max(0, int(K * (K - 1) * sparsity) - (K - len(noisy)) * (K - 1))
        for j, empty in zip(noisy, _into_bins(zeros, len(noisy), K - 2, rng), strict=True):
            filled = K - 1 - empty
            values = random_sum(filled, 1 - d[j], 1 - 1e-5, 0.0, rng)
            rows = rng.choice(np.delete(np.arange(K), j), filled, replace=False)
            M[rows, j] = values[::-1]  # the published order takes values from the end
        if (np.diagonal(M) > M @ prior).all():
            return M
    raise SpecError(
        f"asymmetric: no valid matrix in {TRIES} tries with rate {rate}, sparsity {sparsity} and this class balance"
    )


def _two_class_matrix(
    rate: float, trace: float, sparsity: float, rng: np.random.RandomState, constant: bool
) -> np.ndarray:
    """Draw a matrix for two classes. From ζ = .5 on, one random class is clean. Else both rates have a fixed sum."""
    if sparsity >= 0.5:
        M = np.array([[1.0, 2 - trace], [0.0, trace - 1]])
        return M if rng.rand() > 0.5 else M[::-1, ::-1].copy()
    d = np.full(2, 1 - rate) if constant else random_sum(2, trace, 1.0, 0.0, rng)
    return np.array([[d[0], 1 - d[1]], [1 - d[0], d[1]]])


def random_sum(n: int, total: float, high: float, low: float, rng: np.random.RandomState) -> np.ndarray:
    """Draw n numbers in [low, high] (up to 1e-6) with sum `total`: Dir(1)·total with outliers corrected in pairs."""
    if n == 0:
        return np.zeros(0)
    if high + SLACK < total / n or low > (total + SLACK) / n:
        raise SpecError(f"asymmetric: {n} numbers between {low} and {high} cannot sum to {total}")
    x = rng.dirichlet(np.ones(n)) * total
    for _ in range(PUSHES):
        if x.max() <= high + SLACK:
            break
        base = x.min() + (x.max() - high)
        shift = (high - base) * rng.rand()
        x[x.argmin()] = base + shift
        x[x.argmax()] = high - shift
    for _ in range(PUSHES):
        if x.min() >= low - SLACK:
            return x
        base = x.max() - (low - x.min())
        shift = (base - low) * rng.rand()
        x[x.argmax()] = base - shift
        x[x.argmin()] = low + shift
    raise SpecError(f"asymmetric: no {n} numbers between {low} and {high} with sum {total} were found")


def _into_bins(balls: int, bins: int, cap: int, rng: np.random.RandomState) -> np.ndarray:
    """Whole counts [bins] that sum to `balls`, at most `cap` each (fewer balls if they do not fit)."""
    if balls == 0:
        return np.zeros(bins, dtype=np.int64)
    cap = min(cap, balls)
    balls = min(balls, cap * bins)
    x = np.round(random_sum(bins, 1, cap / balls, 0.0, rng) * balls)
    while x.sum() > balls:
        x[x.argmax()] -= 1
    while x.sum() < balls:
        x[x.argmin()] += 1
    return x.astype(np.int64)


def _flip_exactly(y: np.ndarray, M: np.ndarray, prior: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Flip exactly ⌊M[i, j]·π_j·n⌋ samples of class j to i. A class with more flips than samples is not changed."""
    counts = (M * prior * len(y)).astype(
        int
    )  # this product and its truncation, in this order, give the published labels
    np.fill_diagonal(counts, 0)
    noisy = y.copy()
    for j in range(len(M)):
        targets = np.repeat(np.arange(len(M)), counts[:, j])
        members = np.flatnonzero(y == j)
        if 0 < len(targets) <= len(members):
            noisy[rng.choice(members, len(targets), replace=False)] = targets
    return noisy

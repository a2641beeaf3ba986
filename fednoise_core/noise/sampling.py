"""Functions that draw noisy labels from a transition matrix, and that measure the realised noise.

In all functions T[i, j] = P(noisy = j | clean = i), float64 [K, K]. Rows sum to one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import Shown
from fednoise_core.settings.functions import largest_remainder, with_settings

M = TypeVar("M", bound=Callable[..., "NoiseResult"])
Spec = Mapping[str, Any]

# settings of several models
Sampling = Annotated[
    Literal["iid", "exact", "exact_rate"],
    Shown(in_headings=False),
    Field(
        description="iid: each label is drawn independently; exact: fixed counts per class and target; exact_rate: "
        "fixed number of flips per class, targets are drawn."
    ),
]
Rounding = Annotated[
    Literal["largest_remainder", "floor"],
    Shown(in_headings=False),
    Field(description="Rounding of the counts in the exact modes."),
]
Superclass = Annotated[
    Literal["consecutive5", "coarse"] | None,
    Shown(display_name={"consecutive5": "within blocks of five classes", "coarse": "within coarse superclasses"}),
    Field(
        description="Restrict flips to blocks of five class numbers (FedNoisy), or to the data set's true superclasses."
    ),
]
Flip = Annotated[Literal["symmetric", "pair"], Field(description="Flips to any other class, or to the next class.")]


@dataclass(frozen=True)
class NoiseResult:
    """Result of a noise model.

    y_noisy: noisy labels, int64 [n]. T_nominal: [K, K], [C, K, K] or None (unknown). level: noise level that each
    client was assigned [C], or None. arrays: further arrays for the artifact. notes: further facts (JSON).
    """

    y_noisy: np.ndarray
    T_nominal: np.ndarray | None
    level: np.ndarray | None = None
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


def noise_model(
    *,
    example: Spec,
    display_name: str = "",
    nominal_rate: Callable[[Spec, int], float | None] = lambda spec, K: spec.get("rate"),
    published_rate: Callable[[Spec], float | None] = lambda spec: None,
    random_state: bool = False,
) -> Callable[[M], M]:
    """Decorator of noise models. It adds the facts that the signature does not tell.

    Args:
        example: Settings for the one-line example on the reference page.
        display_name: Name in tables and figures. Default: the kind.
        nominal_rate: Function of the spec and the number of classes K that returns the expected share of wrong labels,
            or None if it is unknown.
        published_rate: Function of the spec that returns the published noise rate of published labels, or None.
        random_state: Whether the model draws from np.random.RandomState if a noise_seed is given, like the authors.
    """

    def make_model(function: M) -> M:
        model = with_settings(example=example, display_name=display_name)(function)
        facts = {"nominal_rate": nominal_rate, "published_rate": published_rate, "random_state": random_state}
        vars(model).update(facts, decorator="noise_model")
        return model

    return make_model


def check_matrix(T: np.ndarray, name: str = "T", tolerance: float = 1e-8) -> np.ndarray:
    """Check a transition matrix.

    Args:
        T: entries ≥ 0, [..., K, K], whose rows sum to one.
        name: the beginning of messages.
        tolerance: how far a sum may be from one.

    Returns:
        The same as float64.

    Raises:
        SpecError: it is not one.
    """
    T = np.asarray(T, dtype=np.float64)
    if T.ndim < 2 or T.shape[-1] != T.shape[-2]:
        raise SpecError(f"{name}: must be square, got {list(T.shape)}")
    if not np.isfinite(T).all() or (T < 0).any():
        raise SpecError(f"{name}: entries must be numbers ≥ 0")
    if (worst := np.abs(T.sum(-1) - 1).max()) > tolerance:
        raise SpecError(f"{name}: rows must sum to 1, one is off by {worst:.2g}")
    return T


def sample(
    y: np.ndarray,
    T: np.ndarray,
    rng: np.random.Generator | np.random.RandomState,
    sampling: str = "iid",
    rounding: str = "largest_remainder",
) -> np.ndarray:
    """Draw noisy labels int64 [n] from T for the clean labels `y`.

    `iid`: every label is drawn independently. `exact`: random samples of class i get label j, n_i·T[i, j] in number.
    `floor` rounds the off-diagonal counts down, and `largest_remainder` keeps the row sum. `exact_rate`: the number of
    flips per class is fixed (rounded down with `floor`, else to the nearest whole number), and their targets are drawn
    independently, as in FedLSR.
    """
    K = len(T)
    noisy = y.copy()
    if sampling == "iid":
        u = rng.random(len(y))
    for i in range(K):
        members = np.flatnonzero(y == i)
        if not len(members) or T[i, i] == 1:
            continue
        if sampling == "iid":
            noisy[members] = _draw_categorical(T[i], u[members])
            continue
        off = np.where(np.arange(K) == i, 0.0, T[i])
        members = rng.permutation(members)
        if sampling == "exact":
            counts = _whole_counts(T[i], len(members), rounding)
            targets = np.repeat(np.arange(K), counts)
        else:
            keep = np.array([T[i, i], off.sum()])
            flips = _whole_counts(keep, len(members), rounding)[1]
            targets = _draw_categorical(off / off.sum(), rng.random(flips))
        noisy[members[: len(targets)]] = targets
    return noisy


def _whole_counts(row: np.ndarray, n: int, rounding: str) -> np.ndarray:
    """Round the counts of a row of n samples. With `floor` they may sum to less, and the rest keeps its label."""
    return np.floor(row * n + 1e-9).astype(np.int64) if rounding == "floor" else largest_remainder(row, n)


def _draw_categorical(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draw from `p` by inversion of the uniform numbers `u` in [0, 1). An entry of probability 0 is never drawn."""
    cumulative = np.cumsum(p)
    return np.searchsorted(cumulative / cumulative[-1], u, side="right").astype(np.int64)


def pack_generator(rng: np.random.RandomState) -> np.ndarray:
    """Pack the state of a legacy generator into uint32 [625] for the labels artifact."""
    _, keys, position, *_ = rng.get_state()
    return np.append(np.asarray(keys), position).astype(np.uint32)


def continue_cohorts(state: np.ndarray | None, clients: int, size: int) -> Iterator[list[int]]:
    """Draw cohorts from the generator that drew the labels, as in the code of Yu et al. (2025).

    Args:
        state: `Labels.generator`.
        clients: Number of clients.
        size: Clients of a cohort.

    Returns:
        One cohort after the other, without end.

    Raises:
        SpecError: The labels artifact has no generator.
    """
    if state is None:
        raise SpecError("train.sampling: 'continued' needs labels drawn by noise with a noise_seed")
    rng, p = np.random.RandomState(), np.full(clients, 1 / clients)
    rng.set_state(("MT19937", state[:624], int(state[624]), 0, 0.0))
    return (rng.choice(clients, size, replace=False, p=p).tolist() for _ in count())


def realised_matrix(clean: np.ndarray, noisy: np.ndarray, K: int) -> np.ndarray:
    """Realised T float64 [K, K]; the row of a class without samples is NaN (undefined)."""
    counts = np.bincount(clean * K + noisy, minlength=K * K).reshape(K, K).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(1, keepdims=True)


def wrong_share(wrong: np.ndarray, clients: Sequence[np.ndarray]) -> np.ndarray:
    """Share of wrong labels per client, float64 [C]; NaN for a client without samples."""
    return np.array([wrong[index].mean() if len(index) else np.nan for index in clients], dtype=np.float64)

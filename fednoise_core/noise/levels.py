"""Noise that differs from client to client: who gets how much (methods.md 2.6, 2.7).

These models need the partition, as `clients`: one array of sample numbers per client, disjoint. Samples of nobody stay
clean. `level` in the result is the probability (or share) each client was assigned; T_nominal is [C, K, K]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.noise.models import pair_targets, symmetric_matrix
from fednoise_core.noise.sampling import T_CLIENT_LIMIT, Flip, NoiseResult, Superclass, check_labels, finish
from fednoise_core.params import described, largest_remainder, number
from fednoise_core.settings import NoBool, Settings, Share

__all__ = ["client_groups", "fedcorr", "fednoro", "globalized", "localized", "owners"]

BUG_CLASSES = 10  # FedCorr's code draws replacements from 0..9 whatever the data set


def owners(clients: Sequence[np.ndarray], n: int) -> np.ndarray:
    """Client of each sample, int64 [n], -1: nobody's. Raises SpecError if a sample belongs to two clients."""
    owner = np.full(n, -1, dtype=np.int64)
    index = np.concatenate([np.zeros(0, np.int64), *clients])
    if len(np.unique(index)) < len(index):
        raise SpecError("noise per client: the partition overlaps, a sample would have two labels")
    owner[index] = np.repeat(np.arange(len(clients)), [len(part) for part in clients])
    return owner


@described(example={"rho": 0.6, "tau": 0.5})
def fedcorr(
    y_clean: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    clients: Sequence[np.ndarray],
    rho: Annotated[Share, Field(description="Probability that a client is noisy.")],
    tau: Annotated[Share, Field(description="Lowest level of a noisy client.")],
    fedcorr_label_bug: Annotated[
        bool, Field(description="Draw replacements from 0..9 whatever the data set, as FedCorr's code does.")
    ] = False,
) -> NoiseResult:
    """Client-level noise of FedCorr: a client is noisy with probability ρ, at level U(τ, 1); labels uniform over all K
    classes.

    Each sample of a noisy client gets, with that probability, a label uniform over all K, the true one included: the
    real rate is level·(K-1)/K.

    FedCorr's code draws the label from 0..9 for CIFAR-100 too; `fedcorr_label_bug` does the same.
    """
    if fedcorr_label_bug and K < BUG_CLASSES:
        raise SpecError(f"fedcorr_label_bug: labels 0..9 do not exist among {K} classes")
    C = len(clients)
    noisy_client = rng.random(C) < rho
    level = noisy_client * (tau + (1 - tau) * rng.random(C))
    return _uniform(y_clean, K, rng, clients, level, drawn=BUG_CLASSES if fedcorr_label_bug else K, inclusive=True)


@described(example={"rho": 0.6, "lower": 0.5, "upper": 0.7})
def fednoro(
    y_clean: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    clients: Sequence[np.ndarray],
    rho: Annotated[Share, Field(description="Share of noisy clients.")],
    lower: Annotated[Share, Field(description="Lowest level.")],
    upper: Annotated[Share, Field(description="Highest level.")],
    inclusive: Annotated[bool, Field(description="New labels are drawn from all K classes, the true one too.")] = True,
) -> NoiseResult:
    """Client-level noise of FedNoRo: exactly ⌊ρC⌋ clients are noisy, at levels U(lower, upper).

    Labels as in `fedcorr`, or uniform over the K-1 others (`inclusive=False`)."""
    number(lower, "lower", 0, upper)
    C = len(clients)
    level = np.zeros(C)
    chosen = rng.permutation(C)[: int(rho * C + 1e-9)]
    level[chosen] = rng.uniform(lower, upper, len(chosen))
    return _uniform(y_clean, K, rng, clients, level, drawn=K, inclusive=inclusive)


def _uniform(
    y_clean: np.ndarray,
    K: int,
    rng: np.random.Generator,
    clients: Sequence[np.ndarray],
    level: np.ndarray,
    *,
    drawn: int,
    inclusive: bool,
) -> NoiseResult:
    """Each sample of client c gets a label uniform over 0..drawn-1 (or over the K-1 others) with probability
    level[c]."""
    y = check_labels(y_clean, K)
    owner = owners(clients, len(y))
    hit = (rng.random(len(y)) < level[owner]) & (owner >= 0)
    label = rng.integers(0, drawn, len(y)) if inclusive else (y + rng.integers(1, K, len(y))) % K

    def T(c: int) -> np.ndarray:
        if not inclusive:
            return symmetric_matrix(K, level[c])
        return (1 - level[c]) * np.eye(K) + level[c] * np.tile((np.arange(K) < drawn) / drawn, (K, 1))

    return _result(y, np.where(hit, label, y), K, clients, level, T)


class Group(Settings):
    """Clients whose rates rise linearly from the first to the last."""

    share: Annotated[Share, Field(description="Share of the clients.")]
    low: Annotated[Share, Field(description="Rate of the first client.")]
    high: Annotated[Share, Field(description="Rate of the last client.")]
    flip: Annotated[Literal["symmetric", "pair"], Field(description="To any other class or to the neighbour.")] = (
        "symmetric"
    )
    offset: Annotated[Literal[1, -1], NoBool, Field(description="Which neighbour; -1 as in FedRN.")] = -1


@described(example={"groups": [{"share": 1.0, "low": 0.0, "high": 0.4}]})
def client_groups(
    y_clean: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    clients: Sequence[np.ndarray],
    groups: Annotated[
        list[Group],
        Field(
            min_length=1,
            description="Groups in client order; rates rise linearly from low to high inside a group, shares sum to 1.",
        ),
    ],
) -> NoiseResult:
    """Groups of clients whose rates rise from client to client, with exact counts (FedRN, FNBench).

    Client c flips exactly ⌊N_c·rate_c⌋ random samples, always to a wrong class."""
    y = check_labels(y_clean, K)
    shares = [group.share for group in groups]
    if not shares or abs(sum(shares) - 1) > 1e-9:
        raise SpecError(f"groups: shares must sum to 1, they sum to {sum(shares):g}")
    owners(clients, len(y))
    level = np.zeros(len(clients))
    targets: list[np.ndarray | None] = [None] * len(clients)
    first = 0
    for group, count in zip(groups, largest_remainder(np.array(shares), len(clients)), strict=True):
        low = number(group.low, "groups: low", 0, group.high)
        level[first : first + count] = np.linspace(low, group.high, count)
        if group.flip == "pair":
            targets[first : first + count] = [pair_targets(K, group.offset)] * int(count)
        first += count
    noisy = y.copy()
    for part, rate, target in zip(clients, level, targets, strict=True):
        chosen = rng.permutation(part)[: int(len(part) * rate + 1e-9)]
        noisy[chosen] = (y[chosen] + rng.integers(1, K, len(chosen))) % K if target is None else target[y[chosen]]

    def T(c: int) -> np.ndarray:
        target = targets[c]
        return symmetric_matrix(K, level[c]) if target is None else _pair_matrix(target, level[c])

    return _result(y, noisy, K, clients, level, T)


@described(example={"rate": 0.4})
def globalized(
    y_clean: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    coarse: np.ndarray | None = None,
    rate: Annotated[Share, Field(description="Share of wrong labels.")],
    flip: Flip = "symmetric",
    within_superclass: Superclass = None,
) -> NoiseResult:
    """FedNoisy's globalised scene: one rate, exactly ⌊n·rate⌋ wrong labels."""
    y = check_labels(y_clean, K)
    chosen = rng.permutation(len(y))[: int(len(y) * rate + 1e-9)]
    noisy = y.copy()
    if flip == "symmetric":
        noisy[chosen] = (y[chosen] + rng.integers(1, K, len(chosen))) % K
        return finish(y, noisy, K, symmetric_matrix(K, rate))
    target = pair_targets(K, 1, within_superclass, coarse)
    noisy[chosen] = target[y[chosen]]
    return finish(y, noisy, K, _pair_matrix(target, rate))


@described(example={"low": 0.2, "high": 0.6})
def localized(
    y_clean: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    clients: Sequence[np.ndarray],
    coarse: np.ndarray | None = None,
    low: Annotated[Share, Field(description="Lowest rate of a client.")],
    high: Annotated[Share, Field(description="Highest rate of a client.")],
    flip: Flip = "symmetric",
    within_superclass: Superclass = None,
) -> NoiseResult:
    """FedNoisy's localised scene: a rate per client, U(low, high); labels never leave the client's own classes.

    Client c flips ⌊N_c·η_c⌋ random samples, η_c ~ U(low, high), inside its classes 𝒴_c. symmetric: uniform over 𝒴_c
    without the true class; pair: the next larger class of 𝒴_c, cyclically (within the superclass if asked for). A
    client with fewer than two classes stays clean and is named in the notes; so does a sample that is alone in its
    superclass."""
    y = check_labels(y_clean, K)
    number(low, "low", 0, high)
    blocks = np.zeros(K, np.int64) if within_superclass is None else _blocks(K, within_superclass, coarse)
    owners(clients, len(y))
    level = rng.uniform(low, high, len(clients))
    own = [np.unique(y[part]) for part in clients]
    level[[len(classes) < 2 for classes in own]] = 0
    noisy = y.copy()
    for part, classes, rate in zip(clients, own, level, strict=True):
        if rate == 0:
            continue
        chosen = rng.permutation(part)[: int(len(part) * rate + 1e-9)]
        at = np.searchsorted(classes, y[chosen])
        if flip == "symmetric":
            noisy[chosen] = classes[(at + rng.integers(1, len(classes), len(chosen))) % len(classes)]
        else:
            noisy[chosen] = _next(classes, blocks)[at]

    def T(c: int) -> np.ndarray:
        classes, result = own[c], np.eye(K)
        if level[c] > 0 and flip == "symmetric":
            result[np.ix_(classes, classes)] = symmetric_matrix(len(classes), level[c])
        elif level[c] > 0:
            result[classes] *= 1 - level[c]
            result[classes, _next(classes, blocks)] += level[c]
        return result

    left = [c for c, classes in enumerate(own) if len(classes) < 2]
    return _result(y, noisy, K, clients, level, T, notes={"clean_clients": left})


def _blocks(K: int, within_superclass: str, coarse: np.ndarray | None) -> np.ndarray:
    """Superclass of each class; `pair_targets` has checked the setting."""
    pair_targets(K, 1, within_superclass, coarse)
    return np.arange(K) // 5 if within_superclass == "consecutive5" or coarse is None else coarse


def _next(classes: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """For each of the sorted `classes`, the next one in the same block, cyclically (itself if it is alone)."""
    result = classes.copy()
    for block in np.unique(blocks[classes]):
        inside = blocks[classes] == block
        result[inside] = np.roll(classes[inside], -1)
    return result


def _pair_matrix(target: np.ndarray, rate: float) -> np.ndarray:
    T = (1 - rate) * np.eye(len(target))
    T[np.arange(len(target)), target] += rate
    return T


def _result(
    y: np.ndarray,
    noisy: np.ndarray,
    K: int,
    clients: Sequence[np.ndarray],
    level: np.ndarray,
    T: Callable[[int], np.ndarray],
    notes: Mapping[str, Any] | None = None,
) -> NoiseResult:
    """The result with one nominal matrix per client, or, if they would not fit, their mean weighted by samples per
    class."""
    C, notes = len(clients), dict(notes or {})
    if C * K * K <= T_CLIENT_LIMIT:
        nominal = np.stack([T(c) for c in range(C)])
    else:
        total, weight = np.zeros((K, K)), np.zeros((K, 1))
        for c, part in enumerate(clients):
            count = np.bincount(y[part], minlength=K)[:, None]
            total, weight = total + count * T(c), weight + count
        nominal = np.where(weight > 0, total / np.maximum(weight, 1), np.eye(K))
        notes["T_nominal"] = "mean over clients"
    return finish(y, noisy, K, nominal, clients=clients, level=level, notes=notes)

"""Noise whose level differs from client to client.

These models need the partition as `clients`, which is one array of sample numbers per client. The arrays must be
disjoint. Samples without a client stay clean. In the result, `level` is the probability (or share) that each client was
assigned, and T_nominal is [C, K, K].
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.noise.models import next_classes, pair_matrix, superclass_of, symmetric_matrix
from fednoise_core.noise.sampling import Flip, NoiseResult, Superclass, noise_model
from fednoise_core.settings.declare import NoBool, Settings, Share
from fednoise_core.settings.functions import check_float, largest_remainder


@noise_model(
    example={"rho": 0.6, "tau": 0.5},
    display_name="FedCorr noise, {rho} of clients noisy, levels from {tau}",
    nominal_rate=lambda spec, K: spec["rho"] * (1 + spec["tau"]) / 2 * (K - 1) / K,
)
def fedcorr(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    clients: Sequence[np.ndarray],
    rho: Annotated[Share, Field(description="Probability that a client is noisy.")],
    tau: Annotated[Share, Field(description="Lowest level of a noisy client.")],
) -> NoiseResult:
    """Client-level noise of FedCorr: a client is noisy with probability ρ, at level U(τ, 1).

    With this probability, a sample of a noisy client gets a label that is drawn uniformly from all K classes, including
    the true class. So the real rate is level·(K-1)/K. (FedCorr's code draws from 0..9 even for CIFAR-100.)
    """
    C = len(clients)
    noisy_client = rng.random(C) < rho
    level = noisy_client * (tau + (1 - tau) * rng.random(C))
    return _flip_uniformly(y, K, rng, clients, level, inclusive=True)


def _fednoro_rate(spec: Mapping[str, Any], K: int) -> float:
    level = (spec["lower"] + spec["upper"]) / 2
    return float(spec["rho"] * level * ((K - 1) / K if spec.get("inclusive", True) else 1))


@noise_model(
    example={"rho": 0.6, "lower": 0.5, "upper": 0.7},
    display_name="FedNoRo noise, {rho} of clients noisy, levels {lower} to {upper}",
    nominal_rate=_fednoro_rate,
)
def fednoro(
    y: np.ndarray,
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

    Labels as in `fedcorr`, or uniform over the K-1 others (`inclusive=False`).
    """
    check_float(lower, "lower", 0, upper)
    C = len(clients)
    level = np.zeros(C)
    chosen = rng.permutation(C)[: int(rho * C + 1e-9)]
    level[chosen] = rng.uniform(lower, upper, len(chosen))
    return _flip_uniformly(y, K, rng, clients, level, inclusive=inclusive)


def _flip_uniformly(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    clients: Sequence[np.ndarray],
    level: np.ndarray,
    *,
    inclusive: bool,
) -> NoiseResult:
    """Each sample of client c gets a label uniform over all K classes (or the K-1 others) with probability level[c]."""
    rate = np.zeros(len(y))
    for part, share in zip(clients, level, strict=True):
        rate[part] = share
    hit = rng.random(len(y)) < rate
    label = rng.integers(0, K, len(y)) if inclusive else (y + rng.integers(1, K, len(y))) % K
    if inclusive:
        T = [(1 - share) * np.eye(K) + share * np.full((K, K), 1 / K) for share in level]
    else:
        T = [symmetric_matrix(K, share) for share in level]
    return NoiseResult(np.where(hit, label, y), np.stack(T), level)


class Group(Settings):
    """Clients whose rates rise linearly from the first to the last."""

    share: Annotated[Share, Field(description="Share of the clients.")]
    low: Annotated[Share, Field(description="Rate of the first client.")]
    high: Annotated[Share, Field(description="Rate of the last client.")]
    flip: Annotated[Literal["symmetric", "pair"], Field(description="To any other class or to the neighbour.")] = (
        "symmetric"
    )
    offset: Annotated[Literal[1, -1], NoBool, Field(description="Which neighbour; -1 as in FedRN.")] = -1


@noise_model(
    example={"groups": [{"share": 1.0, "low": 0.0, "high": 0.4}]},
    display_name="labels wrong at rates that differ by client",
    nominal_rate=lambda spec, K: sum(group["share"] * (group["low"] + group["high"]) / 2 for group in spec["groups"]),
)
def client_groups(
    y: np.ndarray,
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

    Client c flips exactly ⌊N_c·rate_c⌋ random samples, always to a wrong class.
    """
    shares = [group.share for group in groups]
    if abs(sum(shares) - 1) > 1e-9:
        raise SpecError(f"groups: shares must sum to 1, they sum to {sum(shares):g}")
    counts = largest_remainder(np.array(shares), len(clients))
    for group in groups:
        check_float(group.low, "groups: low", 0, group.high)
    level = np.concatenate(
        [np.linspace(group.low, group.high, count) for group, count in zip(groups, counts, strict=True)]
    )
    group_of = [group for group, count in zip(groups, counts, strict=True) for _ in range(count)]
    noisy, T = y.copy(), []
    for part, rate, group in zip(clients, level, group_of, strict=True):
        chosen = rng.permutation(part)[: int(len(part) * rate + 1e-9)]
        if group.flip == "pair":
            target = (np.arange(K) + group.offset) % K
            noisy[chosen] = target[y[chosen]]
            T.append(pair_matrix(target, rate))
        else:
            noisy[chosen] = (y[chosen] + rng.integers(1, K, len(chosen))) % K
            T.append(symmetric_matrix(K, rate))
    return NoiseResult(noisy, np.stack(T), level)


@noise_model(example={"rate": 0.4}, display_name="{rate} of labels wrong, exactly ({flip})")
def globalized(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    coarse: np.ndarray | None = None,
    rate: Annotated[Share, Field(description="Share of wrong labels.")],
    flip: Flip = "symmetric",
    within_superclass: Superclass = None,
) -> NoiseResult:
    """FedNoisy's globalised scene: one rate, exactly ⌊n·rate⌋ wrong labels."""
    chosen = rng.permutation(len(y))[: int(len(y) * rate + 1e-9)]
    noisy = y.copy()
    if flip == "symmetric":
        noisy[chosen] = (y[chosen] + rng.integers(1, K, len(chosen))) % K
        return NoiseResult(noisy, symmetric_matrix(K, rate))
    target = next_classes(np.arange(K), superclass_of(K, within_superclass, coarse))
    noisy[chosen] = target[y[chosen]]
    return NoiseResult(noisy, pair_matrix(target, rate))


@noise_model(
    example={"low": 0.2, "high": 0.6},
    display_name="noise differs by client ({flip}), rates {low} to {high}",
    nominal_rate=lambda spec, K: (spec["low"] + spec["high"]) / 2,
)
def localized(
    y: np.ndarray,
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
    """FedNoisy's localised scene: a rate U(low, high) per client, with flips among the client's own classes.

    Client c flips ⌊N_c·η_c⌋ random samples, η_c ~ U(low, high), inside its classes 𝒴_c. symmetric: uniform over 𝒴_c
    without the true class. pair: the next larger class of 𝒴_c, cyclically, with `within_superclass` inside the
    superclass. A client with fewer than two classes stays clean and is named in the notes. A sample also stays clean if
    the client has no other class of its superclass.
    """
    check_float(low, "low", 0, high)
    blocks = superclass_of(K, within_superclass, coarse)
    level = rng.uniform(low, high, len(clients))
    client_classes = [np.unique(y[part]) for part in clients]
    level[[len(classes) < 2 for classes in client_classes]] = 0
    noisy, T = y.copy(), np.tile(np.eye(K), (len(clients), 1, 1))
    for c, (part, classes, rate) in enumerate(zip(clients, client_classes, level, strict=True)):
        if rate == 0:
            continue
        chosen = rng.permutation(part)[: int(len(part) * rate + 1e-9)]
        positions = np.searchsorted(classes, y[chosen])
        if flip == "symmetric":
            noisy[chosen] = classes[(positions + rng.integers(1, len(classes), len(chosen))) % len(classes)]
            T[c][np.ix_(classes, classes)] = symmetric_matrix(len(classes), rate)
        else:
            following = next_classes(classes, blocks)
            noisy[chosen] = following[positions]
            T[c][classes] *= 1 - rate
            T[c][classes, following] += rate
    left = [c for c, classes in enumerate(client_classes) if len(classes) < 2]
    return NoiseResult(noisy, T, level, notes={"clean_clients": left})

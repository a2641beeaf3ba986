"""Partitions by skew: Dirichlet over labels, Dirichlet over sizes (methods.md 3.5)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.params import described, largest_remainder
from fednoise_core.partition.schemes import by_owner

__all__ = ["dirichlet", "quantity", "raise_floor"]

REDRAWS = 100


@described(example={"clients": 100, "alpha": 0.5})
def dirichlet(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    alpha: Annotated[float, Field(gt=0, description="Concentration: the smaller, the stronger the skew.")],
    min_size: Annotated[
        int, Field(ge=0, description="Smallest client; after 100 draws samples move from the largest clients.")
    ] = 10,
) -> list[np.ndarray]:
    """Label skew: the samples of a class go to all clients by Dir(α).

    Drawn again until every client has `min_size` samples, at most 100 times; then random samples of the largest clients
    move to those that have too few (noted as `moved`)."""
    n = len(labels)
    if min_size * C > n:
        raise SpecError(f"partition dirichlet: min_size: {C} clients with {min_size} samples each need more than {n}")
    members = [np.flatnonzero(labels == k) for k in range(classes)]
    for _ in range(REDRAWS):
        cuts = np.stack([_cuts(rng.dirichlet(np.full(C, alpha)), len(samples)) for samples in members])
        sizes = np.diff(cuts, axis=1).sum(0)
        if sizes.min() >= min_size:
            break
    owner = np.empty(n, dtype=np.int64)
    for samples, cut in zip(members, cuts, strict=True):
        owner[rng.permutation(samples)] = np.repeat(np.arange(C), np.diff(cut))
    wanted = raise_floor(sizes, min_size)
    notes["moved"] = int(np.maximum(wanted - sizes, 0).sum())
    return by_owner(_move(owner, sizes, wanted, rng), C)


def _cuts(shares: np.ndarray, total: int) -> np.ndarray:
    """Bounds [C + 1] that cut `total` samples into the shares; each part is off by less than 1."""
    cumulative = np.concatenate([[0.0], np.cumsum(shares)])
    return np.floor(cumulative / cumulative[-1] * total + 1e-9).astype(np.int64)


def raise_floor(sizes: np.ndarray, floor: int) -> np.ndarray:
    """Sizes int64 [C] of the same sum, none below `floor`: the largest are cut down to one level, which is as high as
    possible."""
    wanted = np.maximum(sizes, floor).astype(np.int64)
    excess = int(wanted.sum() - sizes.sum())
    if excess == 0:
        return wanted
    low, high = floor, int(wanted.max())
    while low < high:  # the highest level at which the cut clients give at least `excess`
        level = (low + high + 1) // 2
        if np.maximum(wanted - level, 0).sum() >= excess:
            low = level
        else:
            high = level - 1
    cut = np.minimum(wanted, low)
    back = int(wanted.sum() - cut.sum()) - excess
    cut[np.flatnonzero(wanted > low)[:back]] += 1
    return cut


def _move(owner: np.ndarray, sizes: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Owners after random samples of clients above their wanted size went to those below."""
    gives, needs = np.maximum(sizes - wanted, 0), np.maximum(wanted - sizes, 0)
    if not gives.any():
        return owner
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]  # client after client, in random order within
    rank = np.arange(len(owner)) - np.repeat(np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    free = order[rank < np.repeat(gives, sizes)]
    result = owner.copy()
    result[rng.permutation(free)] = np.repeat(np.arange(len(sizes)), needs)
    return result


@described(example={"clients": 100, "alpha": 1.0})
def quantity(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    notes: dict[str, Any],
    alpha: Annotated[float, Field(gt=0, description="Concentration: the smaller, the more unequal the sizes.")],
    min_size: Annotated[int, Field(ge=0, description="Smallest client.")] = 1,
) -> list[np.ndarray]:
    """Quantity skew: sizes by Dir(α), samples at random.

    Clients below `min_size` are filled up from the largest."""
    n = len(labels)
    if min_size * C > n:
        raise SpecError(f"partition quantity: min_size: {C} clients with {min_size} samples each need more than {n}")
    drawn = largest_remainder(rng.dirichlet(np.full(C, alpha)), n)
    sizes = raise_floor(drawn, min_size)
    notes["moved"] = int(np.maximum(sizes - drawn, 0).sum())
    return [np.sort(part) for part in np.split(rng.permutation(n), np.cumsum(sizes)[:-1])]

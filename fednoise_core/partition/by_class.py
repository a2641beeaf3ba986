"""n classes per client (methods.md 3.3): FedLSR's overlapping draws, shards, and classes dealt out evenly."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.params import described, integer, largest_remainder
from fednoise_core.partition.schemes import by_owner

__all__ = ["classes_per_client", "deal"]

SHUFFLES = 30  # rounds of swaps per class and client; pairings are well mixed long before


@described(example={"clients": 100, "n": 3})
def classes_per_client(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    n: Annotated[int, Field(ge=1, description="Classes (or shards) per client.")],
    mode: Annotated[
        Literal["fedlsr", "shards", "disjoint_classes"],
        Field(
            description="fedlsr: equal sizes, clients overlap; shards: label-sorted pieces; disjoint_classes: "
            "every class held by the same number of clients."
        ),
    ] = "fedlsr",
) -> list[np.ndarray]:
    """n classes per client: FedLSR's overlapping draws (FedMixCon), shards, or classes dealt out evenly.

    `fedlsr` (FedLSR, FedMixCon): a client picks n classes, weights U(0, 1), and draws that many of its ⌊N/C⌋ samples
    from each, without replacement within the client: clients overlap, and not every sample is used. Where a class has
    too few samples, the client's other classes fill up; if they cannot, it stays smaller (noted as `short_clients`).
    `shards`: sorted by label, cut into C·n shards of equal size (±1), n random shards per client: disjoint, complete,
    fewer than n classes are possible. `disjoint_classes`: every class goes to the same number of clients (nC/K, ±1) in
    equal parts (±1)."""
    integer(n, "n", 1, None if mode == "shards" else classes)
    if mode == "shards":
        return _shards(labels, C, rng, n)
    members = [np.flatnonzero(labels == k) for k in range(classes)]
    return _fedlsr(members, C, rng, n, notes) if mode == "fedlsr" else _disjoint(members, C, rng, n)


def _fedlsr(
    members: list[np.ndarray], C: int, rng: np.random.Generator, n: int, notes: dict[str, Any]
) -> list[np.ndarray]:
    there = np.flatnonzero([len(samples) for samples in members])
    if n > len(there):
        raise SpecError(f"partition classes_per_client: n: {n} classes, only {len(there)} have samples")
    size = sum(map(len, members)) // C
    room = np.array([len(samples) for samples in members])
    parts = []
    for _ in range(C):
        picked = rng.choice(there, n, replace=False)
        counts = _fill(largest_remainder(rng.random(n), size), room[picked])
        drawn = [
            members[k][rng.choice(room[k], count, replace=False, shuffle=False)]
            for k, count in zip(picked, counts, strict=True)
        ]
        parts.append(np.sort(np.concatenate(drawn)))
    notes["short_clients"] = sum(len(part) < size for part in parts)
    return parts


def _fill(counts: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Counts capped at `room`; what does not fit goes to entries with room left, the roomiest first."""
    capped = np.minimum(counts, room)
    missing = int((counts - capped).sum())
    for at in np.argsort(capped - room, kind="stable"):
        extra = min(missing, int(room[at] - capped[at]))
        capped[at] += extra
        missing -= extra
    return capped


def _shards(labels: np.ndarray, C: int, rng: np.random.Generator, n: int) -> list[np.ndarray]:
    if C * n > len(labels):
        raise SpecError(f"partition classes_per_client: n: {C * n} shards for {len(labels)} samples")
    shards = np.array_split(np.argsort(labels, kind="stable"), C * n)
    return [np.sort(np.concatenate([shards[s] for s in mine])) for mine in rng.permutation(C * n).reshape(C, n)]


def _disjoint(members: list[np.ndarray], C: int, rng: np.random.Generator, n: int) -> list[np.ndarray]:
    if C * n < len(members):
        raise SpecError(
            f"partition classes_per_client: n: {C} clients with {n} classes cannot hold {len(members)} classes"
        )
    held = deal(len(members), C, n, rng)
    owner = np.empty(sum(map(len, members)), dtype=np.int64)
    for k, samples in enumerate(members):
        holders = rng.permutation(np.flatnonzero((held == k).any(1)))
        counts = largest_remainder(np.ones(len(holders)), len(samples))
        owner[rng.permutation(samples)] = np.repeat(holders, counts)
    return by_owner(owner, C)


def deal(K: int, C: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """n distinct classes for each of C clients, int64 [C, n], every class held by ⌊nC/K⌋ or ⌈nC/K⌉ clients (n ≤ K)."""
    copies = np.full(K, n * C // K)
    copies[rng.permutation(K)[: n * C % K]] += 1
    # A class's copies lie side by side and are at most C, so in n rounds of dealing nobody gets it twice.
    order = rng.permutation(K)
    hands = np.repeat(order, copies[order]).reshape(n, C).T.copy()
    for _ in range(SHUFFLES * n):  # swaps that keep hands distinct: away from the regular pattern of the deal
        clients = rng.permutation(C)
        a, b = clients[: C // 2], clients[C // 2 : C // 2 * 2]
        i, j = rng.integers(0, n, len(a)), rng.integers(0, n, len(a))
        mine, yours = hands[a, i], hands[b, j]
        fits = ~(hands[a] == yours[:, None]).any(1) & ~(hands[b] == mine[:, None]).any(1)
        hands[a[fits], i[fits]], hands[b[fits], j[fits]] = yours[fits], mine[fits]
    return hands

"""Partitions by skew: Dirichlet over labels, Dirichlet over sizes, n classes per client."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.partition.schemes import by_owner, partition_scheme
from fednoise_core.settings.declare import Shown
from fednoise_core.settings.functions import check_int, largest_remainder

REDRAWS = 100
SHUFFLES = 30  # rounds of swaps per class and client; pairings are well mixed long before


@partition_scheme(
    example={"clients": 100, "alpha": 0.5}, display_name="classes shared unevenly (Dirichlet)", labels="clean"
)
def dirichlet(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    alpha: Annotated[float, Field(gt=0, description="Concentration: the smaller, the stronger the skew.")],
    min_size: Annotated[
        int,
        Shown(in_headings=False),
        Field(ge=0, description="Smallest client; after 100 draws samples move from the largest clients."),
    ] = 10,
) -> list[np.ndarray]:
    """Label skew: the samples of a class go to all clients by Dir(α).

    The partition is drawn again until every client has `min_size` samples, at most 100 times. Then random samples of
    the largest clients are moved to clients with too few samples. The notes have their number as `moved`.
    """
    n = len(labels)
    if min_size * C > n:
        raise SpecError(f"partition dirichlet: min_size: {C} clients with {min_size} samples each need more than {n}")
    members = [np.flatnonzero(labels == k) for k in range(classes)]
    for _ in range(REDRAWS):
        cuts = np.stack([_cut_shares(rng.dirichlet(np.full(C, alpha)), len(samples)) for samples in members])
        sizes = np.diff(cuts, axis=1).sum(0)
        if sizes.min() >= min_size:
            break
    owner = np.empty(n, dtype=np.int64)
    for samples, cut in zip(members, cuts, strict=True):
        owner[rng.permutation(samples)] = np.repeat(np.arange(C), np.diff(cut))
    targets = raise_floor(sizes, min_size)
    notes["moved"] = int(np.maximum(targets - sizes, 0).sum())
    return by_owner(_move_samples(owner, sizes, targets, rng), C)


def _cut_shares(shares: np.ndarray, total: int) -> np.ndarray:
    """Bounds [C + 1] that cut `total` samples into the shares; each part is off by less than 1."""
    cumulative = np.concatenate([[0.0], np.cumsum(shares)])
    return np.floor(cumulative / cumulative[-1] * total + 1e-9).astype(np.int64)


def raise_floor(sizes: np.ndarray, floor: int) -> np.ndarray:
    """Raise small sizes to a floor, and reduce the largest sizes to a common level, which is as high as possible.

    Args:
        sizes: int64 [C].
        floor: the smallest size.

    Returns:
        int64 [C] of the same sum.
    """
    targets = np.maximum(sizes, floor).astype(np.int64)
    excess = int(targets.sum() - sizes.sum())
    if excess == 0:
        return targets
    low, high = floor, int(targets.max())
    while low < high:  # the highest level at which the cut clients give at least `excess`
        level = (low + high + 1) // 2
        if np.maximum(targets - level, 0).sum() >= excess:
            low = level
        else:
            high = level - 1
    cut = np.minimum(targets, low)
    back = int(targets.sum() - cut.sum()) - excess
    cut[np.flatnonzero(targets > low)[:back]] += 1
    return cut


def _move_samples(owner: np.ndarray, sizes: np.ndarray, targets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move random samples from clients above their target size to clients below. Return the new owners."""
    gives, needs = np.maximum(sizes - targets, 0), np.maximum(targets - sizes, 0)
    if not gives.any():
        return owner
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]  # client after client, in random order within
    rank = np.arange(len(owner)) - np.repeat(np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    free = order[rank < np.repeat(gives, sizes)]
    result = owner.copy()
    result[rng.permutation(free)] = np.repeat(np.arange(len(sizes)), needs)
    return result


@partition_scheme(example={"clients": 100, "alpha": 1.0}, display_name="sizes differ")
def quantity(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    notes: dict[str, Any],
    alpha: Annotated[float, Field(gt=0, description="Concentration: the smaller, the more unequal the sizes.")],
    min_size: Annotated[int, Shown(in_headings=False), Field(ge=0, description="Smallest client.")] = 1,
) -> list[np.ndarray]:
    """Quantity skew: sizes by Dir(α), samples at random.

    Clients below `min_size` are filled up from the largest.
    """
    n = len(labels)
    if min_size * C > n:
        raise SpecError(f"partition quantity: min_size: {C} clients with {min_size} samples each need more than {n}")
    drawn = largest_remainder(rng.dirichlet(np.full(C, alpha)), n)
    sizes = raise_floor(drawn, min_size)
    notes["moved"] = int(np.maximum(sizes - drawn, 0).sum())
    return [np.sort(part) for part in np.split(rng.permutation(n), np.cumsum(sizes)[:-1])]


@partition_scheme(example={"clients": 100, "n": 3}, display_name="{n} {mode} a client", labels="clean")
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
        Shown(display_name={"fedlsr": "classes", "disjoint_classes": "evenly dealt classes"}),
        Field(
            description="fedlsr: clients of equal size that overlap; shards: pieces of the samples sorted by label; "
            "disjoint_classes: every class has the same number of clients."
        ),
    ] = "fedlsr",
) -> list[np.ndarray]:
    """N classes per client: FedLSR's overlapping draws (FedMixCon), shards, or classes dealt out evenly.

    `fedlsr` (FedLSR, FedMixCon): a client has n random classes and ⌊N/C⌋ samples. Weights from U(0, 1) give the share
    of each class. Samples are drawn without replacement within a client, so clients overlap and some samples are not
    used. If a class has too few samples, the client gets more of its other classes. If these do not suffice, the client
    is smaller (noted as `short_clients`). `shards`: the samples are sorted by label and cut into C·n shards of equal
    size (±1). Each client gets n random shards, so clients are disjoint, every sample is used, and a client may have
    fewer than n classes. `disjoint_classes`: every class goes to nC/K clients (±1) in equal parts (±1).
    """
    check_int(n, "n", 1, None if mode == "shards" else classes)
    if mode == "shards":
        return _deal_shards(labels, C, rng, n)
    members = [np.flatnonzero(labels == k) for k in range(classes)]
    return _deal_fedlsr(members, C, rng, n, notes) if mode == "fedlsr" else _deal_disjoint(members, C, rng, n)


def _deal_fedlsr(
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
        counts = _fill_counts(largest_remainder(rng.random(n), size), room[picked])
        drawn = [
            members[k][rng.choice(room[k], count, replace=False, shuffle=False)]
            for k, count in zip(picked, counts, strict=True)
        ]
        parts.append(np.sort(np.concatenate(drawn)))
    notes["short_clients"] = sum(len(part) < size for part in parts)
    return parts


def _fill_counts(counts: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Limit counts to `room`. The excess goes to entries with room left, those with the most room first."""
    capped = np.minimum(counts, room)
    missing = int((counts - capped).sum())
    for index in np.argsort(capped - room, kind="stable"):
        extra = min(missing, int(room[index] - capped[index]))
        capped[index] += extra
        missing -= extra
    return capped


def _deal_shards(labels: np.ndarray, C: int, rng: np.random.Generator, n: int) -> list[np.ndarray]:
    if C * n > len(labels):
        raise SpecError(f"partition classes_per_client: n: {C * n} shards for {len(labels)} samples")
    shards = np.array_split(np.argsort(labels, kind="stable"), C * n)
    return [np.sort(np.concatenate([shards[s] for s in hand])) for hand in rng.permutation(C * n).reshape(C, n)]


def _deal_disjoint(members: list[np.ndarray], C: int, rng: np.random.Generator, n: int) -> list[np.ndarray]:
    if C * n < len(members):
        raise SpecError(
            f"partition classes_per_client: n: {C} clients with {n} classes cannot hold {len(members)} classes"
        )
    hands = deal_classes(len(members), C, n, rng)
    owner = np.empty(sum(map(len, members)), dtype=np.int64)
    for k, samples in enumerate(members):
        holders = rng.permutation(np.flatnonzero((hands == k).any(1)))
        counts = largest_remainder(np.ones(len(holders)), len(samples))
        owner[rng.permutation(samples)] = np.repeat(holders, counts)
    return by_owner(owner, C)


def deal_classes(K: int, C: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Deal classes to clients, every class to ⌊nC/K⌋ or ⌈nC/K⌉ of them.

    Args:
        K: number of classes.
        C: number of clients.
        n: different classes of each client, at most K.
        rng: the generator.

    Returns:
        int64 [C, n].
    """
    copies = np.full(K, n * C // K)
    copies[rng.permutation(K)[: n * C % K]] += 1
    # The copies of a class are adjacent and at most C, so no client gets a class twice in n rounds of dealing.
    order = rng.permutation(K)
    hands = np.repeat(order, copies[order]).reshape(n, C).T.copy()
    for _ in range(SHUFFLES * n):  # random swaps without duplicates, because the dealt classes have a regular pattern
        clients = rng.permutation(C)
        a, b = clients[: C // 2], clients[C // 2 : C // 2 * 2]
        i, j = rng.integers(0, n, len(a)), rng.integers(0, n, len(a))
        left_class, right_class = hands[a, i], hands[b, j]
        fits = ~(hands[a] == right_class[:, None]).any(1) & ~(hands[b] == left_class[:, None]).any(1)
        hands[a[fits], i[fits]], hands[b[fits], j[fits]] = right_class[fits], left_class[fits]
    return hands

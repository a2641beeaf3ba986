"""Partitions without a skew (iid, random draws, natural) and those by who has which class (open set, Bernoulli +
Dirichlet).

Every scheme is `scheme(labels, C, rng, *, settings…) -> list of C sorted int64 arrays`. `labels` int64 [n] in 0..K-1
are the clean or the noisy ones; which, the caller decides. A scheme that takes `notes` puts facts for the artifact
there. Wrong settings raise SpecError."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.params import described, integer, largest_remainder

__all__ = ["bernoulli_dirichlet", "by_owner", "iid", "natural", "openset", "presence", "random_draws"]

Uncovered = Annotated[
    Literal["assign", "drop", "redraw"],
    Field(description="A class no client has: give it to one, leave its samples out, or draw all again."),
]
REDRAWS = 10_000  # of a row of indicators (methods.md 3.1)
ALLOCATIONS = 100  # of a whole allocation, for `min_size`


def by_owner(owner: np.ndarray, C: int) -> list[np.ndarray]:
    """One sorted index array per client from the owner of each sample, int64 [n]; -1 belongs to nobody."""
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(C + 1))
    return np.split(order[bounds[0] :], bounds[1:-1] - bounds[0])


@described(example={"clients": 100})
def iid(labels: np.ndarray, C: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A random permutation cut into C parts whose sizes differ by at most 1."""
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), C)]


def presence(
    C: int, K: int, p: float, rng: np.random.Generator, *, forbid_full: bool, uncovered: str, notes: dict[str, Any]
) -> np.ndarray:
    """Indicators bool [C, K], independent Bernoulli(p); a client's whole row is drawn again while it is all 0 (or, with
    `forbid_full`, all 1).

    A class that no client has is handed to one client, uniformly among the rows that stay admissible (`assign`; if
    there is none, all rows are drawn again), left out (`drop`), or all rows are drawn again (`redraw`). Raises
    SpecError after 10 000 redraws."""
    for _ in range(REDRAWS):
        rows = _rows(C, K, p, rng, forbid_full)
        missing = np.flatnonzero(~rows.any(0))
        if uncovered == "assign":
            for k in rng.permutation(missing):
                room = np.flatnonzero(rows.sum(1) < (K - 1 if forbid_full else K))
                if len(room):
                    rows[rng.choice(room), k] = True
        if uncovered == "drop" or rows.any(0).all():
            notes["uncovered_classes"] = [int(k) for k in missing]
            return rows
    raise SpecError(f"partition: no draw in {REDRAWS} gave every one of the {K} classes to one of {C} clients")


def _rows(C: int, K: int, p: float, rng: np.random.Generator, forbid_full: bool) -> np.ndarray:
    rows = rng.random((C, K)) < p
    for _ in range(REDRAWS):
        count = rows.sum(1)
        bad = np.flatnonzero((count == 0) | (forbid_full & (count == K)))
        if not len(bad):
            return rows
        rows[bad] = rng.random((len(bad), K)) < p
    raise SpecError(
        f"partition: rows of indicators were still empty or full after {REDRAWS} redraws with probability {p}"
    )


@described(example={"clients": 100, "mode": "nonuniform"})
def openset(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    mode: Annotated[
        Literal["uniform", "nonuniform"],
        Field(description="How the samples of a class are shared among its clients: in equal parts, or by Dir(1)."),
    ],
    q: Annotated[
        float, Field(gt=0, lt=1, description="Probability that a client has a class. The paper does not say it.")
    ] = 0.5,
    uncovered: Uncovered = "assign",
    min_size: Annotated[
        int,
        Field(
            ge=0,
            description="If above 0, draw the allocation again (at most 100 times) until every client has as many "
            "samples.",
        ),
    ] = 0,
) -> list[np.ndarray]:
    """Every client has at least one class and lacks at least one entirely (FedDPCont section 3.3), drawn over the noisy
    labels.

    The samples of class k go to the clients that have it: in equal shares (`mode="uniform"`, sizes differ by at most 1)
    or in shares drawn from Dir(1) (`"nonuniform"`, whole numbers by largest remainder). The paper draws it over the
    noisy labels and never says what `q`, the probability to have a class, is. Clients may end up empty; `min_size` > 0
    draws the allocation again, up to 100 times."""
    rows = presence(C, classes, q, rng, forbid_full=True, uncovered=uncovered, notes=notes)
    members = [np.flatnonzero(labels == k) for k in range(classes)]
    for _ in range(ALLOCATIONS):
        owner = np.full(len(labels), -1, dtype=np.int64)
        for k, samples in enumerate(members):
            holders = rng.permutation(np.flatnonzero(rows[:, k]))
            if not len(holders):
                continue
            shares = np.ones(len(holders))
            if mode == "nonuniform":
                shares = rng.dirichlet(shares)
            owner[rng.permutation(samples)] = np.repeat(holders, largest_remainder(shares, len(samples)))
        if min_size == 0 or np.bincount(owner[owner >= 0], minlength=C).min() >= min_size:
            return by_owner(owner, C)
    raise SpecError(
        f"partition openset: min_size: a client had fewer than {min_size} samples in each of {ALLOCATIONS} draws"
    )


@described(example={"clients": 100, "p": 0.5, "alpha": 10})
def bernoulli_dirichlet(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    p: Annotated[float, Field(gt=0, le=1, description="Probability that a client has a class.")] = 0.7,
    alpha: Annotated[float, Field(gt=0, description="Concentration: the larger, the more even.")] = 10.0,
    uncovered: Uncovered = "assign",
) -> list[np.ndarray]:
    """A client has a class with probability p; its samples go to the holders by Dir(α) (FedCorr, FedEFC).

    Rows without any class are drawn again; every sample of a class goes, on its own, to one of its holders. Clients may
    end up empty.
    """
    rows = presence(C, classes, p, rng, forbid_full=False, uncovered=uncovered, notes=notes)
    owner = np.full(len(labels), -1, dtype=np.int64)
    for k in range(classes):
        members, holders = np.flatnonzero(labels == k), np.flatnonzero(rows[:, k])
        if len(holders):
            cumulative = np.cumsum(rng.dirichlet(np.full(len(holders), alpha)))
            place = np.searchsorted(cumulative / cumulative[-1], rng.random(len(members)), side="right")
            owner[members] = holders[place]
    return by_owner(owner, C)


@described(example={"clients": 4, "size": 10000})
def random_draws(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    size: Annotated[int, Field(ge=1, description="Samples per client.")],
    overlap: Annotated[bool, Field(description="Clients may draw the same sample; false deals disjoint draws.")] = True,
) -> list[np.ndarray]:
    """Every client draws a number of random samples, for itself (RHFL, FedHNL).

    Without replacement, so that only different clients hold the same sample."""
    n = len(labels)
    integer(size, "size", 1, n if overlap else n // C)
    if overlap:
        return [np.sort(rng.choice(n, size, replace=False, shuffle=False)) for _ in range(C)]
    return list(np.sort(rng.permutation(n)[: C * size].reshape(C, size), axis=1))


@described(example={})
def natural(labels: np.ndarray, C: int, rng: np.random.Generator, *, client_ids: np.ndarray | None) -> list[np.ndarray]:
    """The clients that the data set itself names.

    In the order of their ids; `C` is not used."""
    if client_ids is None:
        raise SpecError("partition natural: this data set has no client ids")
    ids, owner = np.unique(client_ids, return_inverse=True)
    return by_owner(owner, len(ids))

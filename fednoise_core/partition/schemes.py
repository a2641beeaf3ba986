"""Partitions without skew (iid, random draws, natural), and partitions in which clients lack classes.

Every scheme is a function `scheme(labels, C, rng, *, settings…) -> list of C sorted int64 arrays`. The caller passes
the clean or the noisy labels as `labels` int64 [n] in 0..K-1. A scheme with an argument `notes` adds facts for the
artifact to it. Wrong settings raise SpecError.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import Shown
from fednoise_core.settings.functions import check_int, largest_remainder, with_settings

S = TypeVar("S", bound=Callable[..., list[np.ndarray]])
REDRAWS = 10_000  # of a row of indicators


def partition_scheme(
    *, example: Mapping[str, Any], display_name: str = "", labels: Literal["clean", "noisy"] | None = None
) -> Callable[[S], S]:
    """Decorator of schemes. It adds the facts that the signature does not tell.

    Args:
        example: Settings for the one-line example on the reference page.
        display_name: Name in tables and figures, in which "{n}" stands for the setting n. Default: the kind.
        labels: Default of the setting `labels`, the labels that the scheme uses. None: it does not use labels.
    """

    def make_scheme(function: S) -> S:
        scheme = with_settings(example=example, display_name=display_name)(function)
        vars(scheme).update(labels=labels, decorator="partition_scheme")
        return scheme

    return make_scheme


def by_owner(owner: np.ndarray, C: int) -> list[np.ndarray]:
    """Samples of each client.

    Args:
        owner: the client of each sample, int64 [n].
        C: number of clients.

    Returns:
        One sorted index array per client.
    """
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, C)))


@partition_scheme(example={"clients": 100}, display_name="classes spread evenly")
def iid(labels: np.ndarray, C: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A random permutation cut into C parts whose sizes differ by at most 1."""
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), C)]


def draw_presence(
    C: int, K: int, p: float, rng: np.random.Generator, *, forbid_full: bool, notes: dict[str, Any]
) -> np.ndarray:
    """Draw which client has which class: bool [C, K], independent Bernoulli(p).

    A client's whole row is drawn again while it is all 0 (or, with `forbid_full`, all 1). A class that no client has is
    assigned to one client, drawn uniformly from the clients whose row stays admissible. If there is no such client, all
    rows are drawn again. Raises SpecError after 10 000 redraws.
    """
    for _ in range(REDRAWS):
        rows = _draw_rows(C, K, p, rng, forbid_full)
        missing = np.flatnonzero(~rows.any(0))
        for k in rng.permutation(missing):
            room = np.flatnonzero(rows.sum(1) < (K - 1 if forbid_full else K))
            if len(room):
                rows[rng.choice(room), k] = True
        if rows.any(0).all():
            notes["uncovered_classes"] = [int(k) for k in missing]
            return rows
    raise SpecError(f"partition: no draw in {REDRAWS} gave every one of the {K} classes to one of {C} clients")


def _draw_rows(C: int, K: int, p: float, rng: np.random.Generator, forbid_full: bool) -> np.ndarray:
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


@partition_scheme(
    example={"clients": 100, "mode": "nonuniform"}, display_name="clients lack classes ({mode} shares)", labels="noisy"
)
def openset(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    mode: Annotated[
        Literal["uniform", "nonuniform"],
        Shown(display_name={"uniform": "equal", "nonuniform": "unequal"}),
        Field(description="Shares of a class's samples among its clients: equal, or drawn from Dir(1)."),
    ],
    q: Annotated[
        float, Field(gt=0, lt=1, description="Probability that a client has a class. The paper does not state it.")
    ] = 0.5,
) -> list[np.ndarray]:
    """Every client has at least one class and lacks at least one entirely (FedDPCont section 3.3).

    The samples of class k are divided among the clients that have the class. With `mode="uniform"` the shares are equal
    and sizes differ by at most 1. With `"nonuniform"` they are drawn from Dir(1) and rounded by largest remainder. As
    in the paper, classes are those of the noisy labels. The paper does not state `q`, the probability that a client has
    a class. Clients may end up empty.
    """
    rows = draw_presence(C, classes, q, rng, forbid_full=True, notes=notes)
    owner = np.empty(len(labels), dtype=np.int64)
    for k in range(classes):
        samples, holders = np.flatnonzero(labels == k), rng.permutation(np.flatnonzero(rows[:, k]))
        shares = np.ones(len(holders))
        if mode == "nonuniform":
            shares = rng.dirichlet(shares)
        owner[rng.permutation(samples)] = np.repeat(holders, largest_remainder(shares, len(samples)))
    return by_owner(owner, C)


@partition_scheme(
    example={"clients": 100, "p": 0.5, "alpha": 10},
    display_name="clients lack classes (Bernoulli–Dirichlet)",
    labels="clean",
)
def bernoulli_dirichlet(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    classes: int,
    notes: dict[str, Any],
    p: Annotated[float, Field(gt=0, le=1, description="Probability that a client has a class.")] = 0.7,
    alpha: Annotated[float, Field(gt=0, description="Concentration: the larger, the more even.")] = 10.0,
) -> list[np.ndarray]:
    """A client has a class with probability p; Dir(α) gives the shares of its clients (FedCorr, FedEFC).

    A client without any class is drawn again. Every sample of a class is assigned independently to one of the clients
    that have the class. Clients may end up empty.
    """
    rows = draw_presence(C, classes, p, rng, forbid_full=False, notes=notes)
    owner = np.empty(len(labels), dtype=np.int64)
    for k in range(classes):
        members, holders = np.flatnonzero(labels == k), np.flatnonzero(rows[:, k])
        cumulative = np.cumsum(rng.dirichlet(np.full(len(holders), alpha)))
        place = np.searchsorted(cumulative / cumulative[-1], rng.random(len(members)), side="right")
        owner[members] = holders[place]
    return by_owner(owner, C)


@partition_scheme(example={"clients": 4, "size": 10000}, display_name="{size} images a client")
def random_draws(
    labels: np.ndarray,
    C: int,
    rng: np.random.Generator,
    *,
    size: Annotated[int, Field(ge=1, description="Samples per client.")],
    overlap: Annotated[bool, Field(description="Clients may draw the same sample; false: draws are disjoint.")] = True,
) -> list[np.ndarray]:
    """Every client independently draws a number of random samples (RHFL, FedHNL).

    A client draws without replacement. Different clients may draw the same sample.
    """
    n = len(labels)
    check_int(size, "size", 1, n if overlap else n // C)
    if overlap:
        return [np.sort(rng.choice(n, size, replace=False, shuffle=False)) for _ in range(C)]
    return list(np.sort(rng.permutation(n)[: C * size].reshape(C, size), axis=1))


@partition_scheme(example={})
def natural(labels: np.ndarray, C: int, rng: np.random.Generator, *, client_ids: np.ndarray | None) -> list[np.ndarray]:
    """The clients that the data set itself names.

    In the order of their ids; `C` is not used.
    """
    if client_ids is None:
        raise SpecError("partition natural: this data set has no client ids")
    ids, owner = np.unique(client_ids, return_inverse=True)
    return by_owner(owner, len(ids))

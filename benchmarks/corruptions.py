"""Fashion-MNIST with labels spoilt on purpose, at sites that differ in kind and rate; the caller keeps the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.mean_std import mean_and_std

ALIKE = {0: 6, 6: 0, 2: 4, 4: 2, 3: 6, 5: 7, 7: 5, 9: 7, 1: 3, 8: 8}  # the class that a class is taken for
PAIRS = ((2, 4), (0, 6), (5, 7), (3, 1))
KINDS = ("uniform", "alike", "swap", "dark", "shift", "pair")
# three federations of six sites each: (kind, share of wrong labels); the first is nearly clean
SCENARIOS: dict[str, Sequence[tuple[str, float]]] = {
    "A": [("uniform", 0.02), ("uniform", 0.29), ("alike", 0.15), ("swap", 0.06), ("dark", 0.18), ("shift", 0.18)],
    "B": [("uniform", 0.01), ("pair", 0.30), ("swap", 0.12), ("uniform", 0.10), ("shift", 0.30), ("alike", 0.05)],
    "C": [("uniform", 0.03), ("uniform", 0.45), ("dark", 0.10), ("alike", 0.25), ("pair", 0.08), ("swap", 0.10)],
}


@dataclass(frozen=True)
class Spoilt:
    """data: what a user would have, clean labels unknown. clean int64 [n]; site int64 [n]."""

    data: Arrays
    clean: np.ndarray
    site: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """bool [n]: the given label is wrong."""
        return self.data.y_train != self.clean


def spoil(kind: str, x: np.ndarray, y: np.ndarray, share: float, draw: np.random.Generator) -> np.ndarray:
    """Labels int64 [n] of one site, about `share` of them wrong. x uint8 [n, H, W], y int64 [n] of 10 classes."""
    n, given = len(y), y.copy()
    other = (y + draw.integers(1, 10, n)) % 10
    chance = np.full(n, share)
    if kind == "alike":  # taken for a class that looks alike
        other = np.array([ALIKE[label] for label in y.tolist()])
    elif kind == "swap":  # two classes confused with each other
        a, b = PAIRS[draw.integers(len(PAIRS))]
        other = np.where(y == a, b, np.where(y == b, a, y))
    elif kind == "pair":  # the next class
        other = (y + 1) % 10
    elif kind == "dark":  # only of the darker two fifths
        light = x.reshape(n, -1).mean(1)
        chance = np.where(light < np.quantile(light, 0.4), share, 0.0)
    elif kind == "shift":  # a stretch of the list shifted by one
        length = min(round(share * n / 0.9), n)
        start = int(draw.integers(n - length + 1))
        given[start : start + length] = np.roll(y[start : start + length], 1)
        return given
    can = (other != y) & (chance > 0)
    wrong = can & (draw.random(n) < np.minimum(share * n / max(can.sum(), 1), 0.9))
    given[wrong] = other[wrong]
    return given


def source(places: Sequence[str | Path]) -> tuple[np.ndarray, np.ndarray]:
    """All training images and labels of Fashion-MNIST, from one of these folders."""
    arrays = sources.read("fashion_mnist", list(places))
    return arrays.x_train, arrays.y_train


def spoilt(
    x: np.ndarray, y: np.ndarray, n: int, sites: int, split: str, kinds: Sequence[tuple[str, float]], seed: int
) -> Spoilt:
    """n random images at so many sites, site s spoilt in the way kinds[s], and 500 more as a trusted test set.

    split: "iid", or "skewed": Dirichlet(.5) shares of every class. Sites without images are left out.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(y))[: n + 500]
    mine, held = order[:n], order[n:]
    site = np.arange(n) % sites
    if split == "skewed":
        for label in np.unique(y[mine]):
            rows = np.flatnonzero(y[mine] == label)
            site[rows] = draw.choice(sites, len(rows), p=draw.dirichlet(np.full(sites, 0.5)))
        site = np.unique(site, return_inverse=True)[1]
    given = y[mine].copy()
    for number in range(int(site.max()) + 1):
        rows = np.flatnonzero(site == number)
        kind, share = kinds[number]
        given[rows] = spoil(kind, x[mine][rows], y[mine][rows], share, draw)
    mean, std = mean_and_std(x[mine])
    owner = site.astype(np.int64)
    data = Arrays(x[mine], given, x[held], y[held], classes=10, mean=mean, std=std, client=owner, clean_known=False)
    return Spoilt(data, y[mine], owner)

"""Federations of five unlike sites whose given labels are spoilt in six ways, for `benchmarks.rank_labels`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import uniform_filter

from benchmarks.corruptions import ALIKE, Spoilt, spoil
from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.mean_std import mean_and_std

KINDS = ("uniform", "alike", "mirrored", "blurred", "duplicates", "annotator")
SIZES = (900, 650, 500, 350, 250)  # images of a site
# (what spoils it, share of wrong labels) of a site; "main" is the federation's own kind, "other" the next of KINDS
RATES = (("main", 0.30), ("main", 0.18), ("main", 0.08), ("other", 0.20), ("uniform", 0.02))
LOOKS: Mapping[str, Mapping[int, int]] = {
    "fashion_mnist": ALIKE,
    "mnist": {0: 6, 6: 0, 1: 7, 7: 1, 2: 7, 3: 5, 5: 3, 4: 9, 9: 4, 8: 3},
}
FEW = 150  # clean images that the weak annotator has seen


@dataclass(frozen=True)
class Images:
    """A data set to draw from: x uint8 [n, H, W], y int64 [n]."""

    name: str
    x: np.ndarray
    y: np.ndarray


def load_images(name: str, folder: str | Path) -> Images:
    """The training images and clean labels of a data set."""
    arrays = sources.read(name, [folder])
    return Images(name, np.asarray(arrays.x_train), arrays.y_train)


def make_federation(images: Images, kind: str, seed: int) -> Spoilt:
    """Five sites of different sizes; three are spoilt in this way at unlike rates, one in another, one hardly."""
    draw = np.random.default_rng([seed, KINDS.index(kind)])
    n = sum(SIZES)
    order = draw.permutation(len(images.y))[: n + FEW + 500]
    mine, few, held = np.split(order, [n, n + FEW])
    x, clean = images.x[mine].copy(), images.y[mine].copy()
    site = np.repeat(np.arange(len(SIZES)), draw.permutation(SIZES))
    given = clean.copy()
    other = KINDS[(KINDS.index(kind) + 1) % len(KINDS)]
    weak = fit_annotator(images.x[few], images.y[few])
    for number, (what, share) in enumerate(RATES):
        rows = np.flatnonzero(site == number)
        name = {"main": kind, "other": other}.get(what, what)
        x[rows], clean[rows], given[rows] = _spoil_site(name, x[rows], clean[rows], share, draw, images.name, weak)
    mean, std = mean_and_std(x)
    data = Arrays(
        x, given, images.x[held], images.y[held], classes=10, mean=mean, std=std, client=site, clean_known=False
    )
    return Spoilt(data, clean, site)


def fit_annotator(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weights [features, 10] of ridge regression on few clean images, in the place of a person who knows little."""
    features = _pixels(x)
    return np.linalg.solve(features.T @ features + 5 * np.eye(features.shape[1]), features.T @ np.eye(10)[y])


def _pixels(x: np.ndarray) -> np.ndarray:
    small = x[:, ::2, ::2].reshape(len(x), -1) / 255
    return np.concatenate([small, np.ones((len(x), 1))], 1)


def _spoil_site(
    kind: str, x: np.ndarray, y: np.ndarray, share: float, draw: np.random.Generator, name: str, weak: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(images, clean labels, given labels) of a site, about this share of the labels wrong."""
    n, x, y = len(y), x.copy(), y.copy()
    count, given = round(share * n), y.copy()
    if kind == "uniform":
        return x, y, spoil("uniform", x, y, share, draw)
    if kind == "alike":
        looks = np.array([LOOKS[name][label] for label in range(10)])
        able = np.flatnonzero(looks[y] != y)
        rows = draw.choice(able, min(count, len(able)), replace=False)
        given[rows] = looks[y[rows]]
    elif kind == "mirrored":  # a stretch of the list was made with the order of the classes reversed
        start = int(draw.integers(n - count + 1))
        given[start : start + count] = 9 - y[start : start + count]
    elif kind == "blurred":  # wrong are some of the images that are blurred and dark
        rows = draw.choice(n, min(round(1.8 * count), n), replace=False)
        x[rows] = (uniform_filter(x[rows].astype(float), (0, 5, 5)) * 0.4).astype(np.uint8)
        rows = rows[:count]
        given[rows] = (y[rows] + draw.integers(1, 10, len(rows))) % 10
    elif kind == "duplicates":  # exact copies of other images of the site, labelled differently
        rows, originals = np.split(draw.permutation(n)[: 2 * count], 2)
        x[rows], y[rows] = x[originals], y[originals]
        given = y.copy()
        given[rows] = (y[rows] + draw.integers(1, 10, len(rows))) % 10
    elif kind == "annotator":  # the images that are hardest for a weak annotator got its label
        scores = _pixels(x) @ weak
        right = scores[np.arange(n), y].copy()
        scores[np.arange(n), y] = -np.inf
        rows = np.argsort(right - scores.max(1) + 0.15 * draw.gumbel(size=n))[:count]
        given[rows] = scores[rows].argmax(1)
    return x, y, given

"""Stratified choices of samples: test part, public part, subsets. Each part has a stream of its own."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fednoise_core import rng
from fednoise_core.data.array_checks import ArraysError
from fednoise_core.data.arrays import Arrays, take_rows
from fednoise_core.io import SpecError


def split_shares(counts: np.ndarray, n: int) -> np.ndarray:
    """Compute the number of samples to take from each class, in proportion, by largest remainders.

    Args:
        counts: samples of each class, int [K].
        n: total number of samples to take.

    Returns:
        int64 [K]. Ties go to the smaller class number.
    """
    exact = counts * (n / counts.sum())
    floor = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - floor), kind="stable")  # ties go to the smaller class number
    floor[order[: n - floor.sum()]] += 1
    return floor


def split_off(labels: np.ndarray, n: int, seed: int, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Split off a stratified choice of samples, from stream (seed, "split", part).

    Args:
        labels: int64 [m].
        n: how many are taken, at most m.
        seed: of the split.
        part: the stream's name.

    Returns:
        Sorted positions of the rest, int64 [m - n], and of those taken, int64 [n].
    """
    draw = rng.stream(seed, "split", part)
    classes, counts = np.unique(labels, return_counts=True)
    parts = [
        draw.permutation(np.flatnonzero(labels == label))[:share]
        for label, share in zip(classes, split_shares(counts, n), strict=True)
    ]
    taken = np.sort(np.concatenate(parts)).astype(np.int64)
    remaining = np.setdiff1d(np.arange(len(labels), dtype=np.int64), taken, assume_unique=True)
    return remaining, taken


def holdout_share(spec: Mapping[str, Any]) -> float | None:
    """The share of the setting `test: {holdout: share}`; None without it."""
    test = spec.get("test")
    return float(test["holdout"]) if isinstance(test, Mapping) else None


def held_out(labels: np.ndarray, share: float) -> int:
    """Count the samples that `hold_out` sets aside."""
    return int((np.unique(labels, return_counts=True)[1] * share + 1e-9).astype(np.int64).sum())


def hold_out(arrays: Arrays, spec: Mapping[str, Any]) -> Arrays:
    """Apply `test: {holdout: share}`. This share of the training samples, rounded down in each class, is the test set.

    If the clean labels are unknown, those of the test set are unknown, too (`test_known`). Raises SpecError if no class
    has enough samples.
    """
    share, seed = holdout_share(spec), int(spec.get("split_seed", 0))
    if share is None:
        return arrays
    n = held_out(arrays.y_train, share)
    if not n:
        raise SpecError(f"dataset: test: holdout: {share} of {arrays.n} training samples is less than one of a class")
    draw, y = rng.stream(seed, "split", "heldout"), arrays.y_train
    parts = [draw.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    taken = np.sort(np.concatenate([part[: int(len(part) * share + 1e-9)] for part in parts]))
    remaining = np.setdiff1d(np.arange(arrays.n, dtype=np.int64), taken, assume_unique=True)
    test = {"x_test": take_rows(arrays.x_train, taken), "y_test": y[taken], "test_known": arrays.clean_known}
    return dataclasses.replace(arrays.take(remaining), **test)


def public_count(spec: Mapping[str, Any]) -> int:
    """Count the training images that `public` sets aside. The count is 0 if `public` names another data set."""
    public = spec.get("public", 0)
    return 0 if isinstance(public, Mapping) else int(public)


def all_classes_occur(labels: Iterable[np.ndarray], classes: int, names: Sequence[str], where: str) -> None:
    """Check that every class has a training image. A class without images cannot be learnt.

    The usual causes are labels that start at 1, a misspelt folder, or a wrong number of classes.

    Args:
        labels: sets of training labels, int64 [n].
        classes: number of classes.
        names: their names, or none.
        where: the beginning of the message.

    Raises:
        ArraysError: A class occurs in no set. The message names it.
    """
    seen = np.unique(np.concatenate(list(labels)))
    seen = seen[(seen >= 0) & (seen < classes)]
    if len(seen) == classes:
        return
    first = int(np.flatnonzero(np.append(seen, -1) != np.arange(len(seen) + 1))[0])
    named = f" ({names[first]!r})" if names else ""
    hint = "; labels count from 0: if yours begin at 1, subtract 1" if first == 0 else ""
    raise ArraysError(f"{where}: no training image has class {first}{named} of 0..{classes - 1}{hint}")


def apply_split(arrays: Arrays, spec: Mapping[str, Any]) -> Arrays:
    """Apply `public: n`, which sets images aside without labels, and then `subset: {train, test}` to the rest.

    Subsets are taken from the private part, so `train: 1000` gives 1,000 private samples with or without `public`.
    Raises SpecError for a setting that requests more samples than there are. The message names the setting.
    """
    seed = int(spec.get("split_seed", 0))
    public = public_count(spec)
    if public:
        if public >= arrays.n:
            raise SpecError(f"dataset: public: {public} leaves nothing of {arrays.n} training samples")
        remaining, taken = split_off(arrays.y_train, public, seed, "public")
        arrays = dataclasses.replace(arrays.take(remaining), x_public=np.asarray(take_rows(arrays.x_train, taken)[:]))
    subset = spec.get("subset", {})
    if "train" in subset:
        _check_subset("train", subset["train"], arrays.n)
        arrays = arrays.take(split_off(arrays.y_train, subset["train"], seed, "train")[1])
    if "test" in subset:
        _check_subset("test", subset["test"], len(arrays.y_test))
        index = split_off(arrays.y_test, subset["test"], seed, "test")[1]
        arrays = dataclasses.replace(arrays, x_test=take_rows(arrays.x_test, index), y_test=arrays.y_test[index])
    return arrays


def _check_subset(part: str, n: int, available: int) -> None:
    if not 0 < n <= available:
        raise SpecError(f"dataset: subset: {part}: {n}, but there are {available} samples")

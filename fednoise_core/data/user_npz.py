"""The user's own arrays: one npz with x_train, y_train, x_test, y_test and, where known, given labels and owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.array_checks import ArraysError, as_images, as_labels
from fednoise_core.data.arrays import Arrays, content_sha256
from fednoise_core.data.locate import user_path
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.data.npz import members, shape
from fednoise_core.data.setting_checks import text, whole, yes_no
from fednoise_core.data.splits import all_classes_occur
from fednoise_core.io import ArtifactError, SpecError

__all__ = ["SETTINGS", "facts", "files", "read"]

SETTINGS = {"path": text, "clean_known": yes_no, "classes": whole(2)}

KNOWN = ("x_train", "y_train", "x_test", "y_test", "x_public", "client", "names")  # others are left alone


def read(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
    """Arrays of `path`. Keys: x_train, x_test uint8 [n, H, W] or [n, H, W, C]; y_train, y_test integers [n] from 0.

    Optional keys: `given` or `given_<name>` (labels as collected), `client` (owner of each training image), `x_public`,
    `names`. With `clean_known: false`, or without y_train, the training labels are the ones as collected.
    Raises ArtifactError naming the file and the array that is missing or wrong.
    """
    path = user_path(spec, places)
    found = members(path, lambda name: name in KNOWN or _is_given(name))
    given = {name.removeprefix("given_"): _labels(path, name, found[name]) for name in found if _is_given(name)}
    clean_known = bool(spec.get("clean_known", "y_train" in found))
    if "y_train" in found:
        if given and not clean_known:
            both = f"y_train and given labels ({', '.join(given)})"
            raise SpecError(f"dataset npz: clean_known: false, but {path} has {both}: keep one")
        y_train = _labels(path, "y_train", found["y_train"])
    elif len(given) == 1 and not clean_known:
        y_train, given = next(iter(given.values())), {}
    elif clean_known:
        raise SpecError(f"dataset npz: clean_known: true, but {path} has no y_train")
    else:
        raise ArtifactError(f"{path}: it has neither y_train nor exactly one set of given labels")
    y_test = _labels(path, "y_test", _need(path, found, "y_test"))
    x_train = _images(path, "x_train", _need(path, found, "x_train"))
    names = _names(path, found)
    sets = {"y_train": y_train, **{f"given_{key}": labels for key, labels in given.items()}}
    classes = _classes(path, spec, len(x_train), names, {**sets, "y_test": y_test})
    mean, std = mean_and_std(x_train)
    arrays = Arrays(
        x_train=x_train,
        y_train=y_train,
        x_test=_images(path, "x_test", _need(path, found, "x_test")),
        y_test=y_test,
        x_public=_images(path, "x_public", found["x_public"]) if "x_public" in found else None,
        classes=classes,
        mean=mean,
        std=std,
        given=given,
        client=_labels(path, "client", found["client"]) if "client" in found else None,
        names=names,
        clean_known=clean_known,
        source_sha256={name: content_sha256(found[name]) for name in sorted(found) if found[name].dtype.kind in "ui"},
    )
    all_classes_occur(sets.values(), classes, names, str(path))
    return arrays


def facts(spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
    """(training samples, classes, (H, W)). Reads headers and, if the settings do not say the classes, the labels."""
    path = user_path(spec, places)
    images = shape(path, "x_train")
    if len(images) not in (3, 4):
        raise ArtifactError(f"{path}: x_train has shape {images}, not [n, H, W] or [n, H, W, C]")
    n, sides = images[0], (images[1], images[2])
    found: dict[str, np.ndarray] = {}
    if "classes" not in spec:
        found = members(path, lambda name: name in ("y_train", "y_test", "names") or _is_given(name))
    names = _names(path, found)
    labels = {name: _labels(path, name, y) for name, y in found.items() if name != "names"}
    return n, _classes(path, spec, n, names, labels), sides


def files(spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
    """What is read: the npz."""
    return [user_path(spec, places)]


def _is_given(name: str) -> bool:
    return name == "given" or name.startswith("given_")


def _need(path: Path, found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in found:
        raise ArtifactError(f"{path}: it has no {name}")
    return found[name]


def _classes(
    path: Path, spec: Mapping[str, Any], n: int, names: tuple[str, ...], labels: Mapping[str, np.ndarray]
) -> int:
    """Number of classes: as the settings say, as many as there are names, or the greatest label + 1."""
    if "classes" in spec:
        k, why = int(spec["classes"]), "by the setting `classes`"
    elif names:
        k, why = len(names), "by `names`"
    elif not labels:
        raise ArtifactError(f"{path}: it has no labels (y_test, and y_train or given)")
    else:
        most = max(labels, key=lambda name: int(labels[name].max(initial=-1)))
        k, why = int(labels[most].max(initial=-1)) + 1, f"by the greatest label in {most}"
    if k > n:  # before anything is made that has a row per class
        raise ArtifactError(f"{path}: {k} classes {why}, but {n} training images; every class needs one")
    return k


def _names(path: Path, found: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    if "names" not in found:
        return ()
    names = found["names"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise ArtifactError(f"{path}: names is {names.dtype} {list(names.shape)}; a vector of texts is needed")
    return tuple(str(name) for name in names)


def _images(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    try:
        return as_images(name, x)
    except ArraysError as error:
        raise ArtifactError(f"{path}: {error}") from error


def _labels(path: Path, name: str, y: np.ndarray) -> np.ndarray:
    try:
        return as_labels(name, y)
    except ArraysError as error:
        raise ArtifactError(f"{path}: {error}") from error

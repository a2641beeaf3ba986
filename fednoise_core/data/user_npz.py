"""The user's own arrays: one npz with x_train, y_train, x_test, y_test and, where known, given labels and owners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import MISSING, Field

from fednoise_core.data.array_checks import ArraysError, as_images, as_labels
from fednoise_core.data.arrays import Arrays, content_sha256
from fednoise_core.data.from_user import from_user
from fednoise_core.data.locate import user_path
from fednoise_core.data.npz import arrays_in, members, shape
from fednoise_core.data.owners import owners_named
from fednoise_core.data.settings import Dataset, OwnTest
from fednoise_core.data.splits import held_out, holdout_share
from fednoise_core.io import ArtifactError, SpecError

__all__ = ["SETTINGS", "content", "facts", "files", "is_given", "read"]


class Npz(Dataset):
    """The user's arrays: x_train, x_test uint8 [n,H,W] or [n,H,W,C] (channels last), y_train, y_test from 0, every
    class in training; optional given or given_<name> (labels as collected), client (owners: integers or texts),
    x_public, names.
    """

    example: ClassVar = {"path": "mine.npz", "clean_known": False}

    path: Annotated[str, Field(min_length=1, description="The npz file, in the working folder or below data_root.")]
    clean_known: Annotated[
        bool | MISSING,
        Field(
            description="false: the training labels are as collected and may be wrong; default: true if the file has "
            "y_train."
        ),
    ] = MISSING
    classes: Annotated[
        int | MISSING,
        Field(ge=2, description="Number of classes; default: the names', or the greatest label + 1."),
    ] = MISSING
    test: OwnTest = MISSING


SETTINGS = {"npz": Npz}

KNOWN = ("x_train", "y_train", "x_test", "y_test", "x_public", "client", "names")  # others are left alone


def read(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
    """Arrays of `path`. Keys: x_train, x_test uint8 [n, H, W] or [n, H, W, C]; y_train, y_test integers [n] from 0.

    Optional keys: `given` or `given_<name>` (labels as collected), `client` (owner of each training image: integers or
    texts), `x_public`, `names`. With `test: {holdout: share}` there is no x_test and no y_test. With `clean_known:
    false`, or without y_train, the training labels are the ones as collected.
    Raises ArtifactError naming the file and the array that is missing or wrong.
    """
    path = user_path(spec, places)
    found = members(path, lambda name: name in KNOWN or is_given(name))
    given = {name.removeprefix("given_"): _labels(path, name, found[name]) for name in found if is_given(name)}
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
    _check_test(path, spec, found)
    x_train = _images(path, "x_train", _need(path, found, "x_train"))
    test = None
    if "test" not in spec:
        x_test, y_test = (_need(path, found, name) for name in ("x_test", "y_test"))
        test = _images(path, "x_test", x_test), _labels(path, "y_test", y_test)
    names = _names(path, found)
    sets = {"y_train": y_train, **{f"given_{key}": labels for key, labels in given.items()}}
    classes = _classes(path, spec, len(x_train), names, sets if test is None else {**sets, "y_test": test[1]})
    return from_user(
        spec,
        str(path),
        x_train,
        y_train,
        test,
        classes=classes,
        owners=_owners(path, found),
        names=names,
        given=given,
        x_public=_images(path, "x_public", found["x_public"]) if "x_public" in found else None,
        clean_known=clean_known,
        origin=np.arange(len(x_train)),
        source_sha256=content(found),
    )


def content(found: Mapping[str, np.ndarray]) -> dict[str, str]:
    """SHA-256 of each array of integers that `read` reads, by its name; `found` may hold others."""
    names = [name for name in sorted(found) if name in KNOWN or is_given(name)]
    return {name: content_sha256(found[name]) for name in names if found[name].dtype.kind in "ui"}


def facts(spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
    """(training samples, classes, (H, W)). Reads headers and, if the settings do not say the classes, the labels."""
    path = user_path(spec, places)
    images = shape(path, "x_train")
    if len(images) not in (3, 4):
        raise ArtifactError(f"{path}: x_train has shape {images}, not [n, H, W] or [n, H, W, C]")
    n, sides = images[0], (images[1], images[2])
    _check_test(path, spec, arrays_in(path))
    found: dict[str, np.ndarray] = {}
    if "classes" not in spec or "test" in spec:
        found = members(path, lambda name: name in ("y_train", "y_test", "names") or is_given(name))
    names = _names(path, found)
    labels = {name: _labels(path, name, y) for name, y in found.items() if name != "names"}
    held = 0
    if (share := holdout_share(spec)) is not None:
        used = labels.get("y_train", next((y for name, y in labels.items() if is_given(name)), None))
        held = 0 if used is None else held_out(used, share)
    return n - held, _classes(path, spec, n, names, labels), sides


def files(spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
    """What is read: the npz."""
    return [user_path(spec, places)]


def _check_test(path: Path, spec: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise SpecError or ArtifactError unless there is exactly one test set, in the file or by the setting `test`."""
    there = [name for name in ("x_test", "y_test") if name in names]
    if "test" in spec and there:
        raise SpecError(f"dataset npz: test: {path} has {' and '.join(there)}; remove the setting `test` to use that")
    if "test" not in spec and len(there) < 2:
        missing = "y_test" if there == ["x_test"] else "x_test"
        cure = "add trusted test images and labels, or let a share of the given data stand in: test: {holdout: 0.2}"
        raise ArtifactError(f"{path}: it has no {missing}; {cure}")


def _owners(path: Path, found: Mapping[str, np.ndarray]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """(owner of each training image int64 [n] or None, what the owners are called where they are texts)."""
    if "client" not in found:
        return None, ()
    ids = found["client"]
    if ids.dtype.kind != "U":
        return _labels(path, "client", ids), ()
    if ids.ndim != 1:
        raise ArtifactError(f"{path}: client has shape {ids.shape}; a vector is needed")
    return owners_named([str(name) for name in ids])


def is_given(name: str) -> bool:
    """Whether an array of this name holds labels as collected."""
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

"""Checks of a data set's arrays: types, shapes, ranges. The first problem is the error."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fednoise_core.io import SpecError


class ArraysError(SpecError):
    """Arrays that do not fit together; the message begins with the array that is wrong."""


def check(arrays: Any) -> None:
    """Check a new `Arrays`. Only type and shape of images are checked, not their values.

    Args:
        arrays: the `Arrays`. Its class cannot be named here, because its module imports this one.

    Raises:
        ArraysError: an array does not fit. The message begins with its name.
    """
    _check_images(arrays)
    _check_labels(arrays)
    _check_facts(arrays)


def as_images(name: str, x: np.ndarray) -> np.ndarray:
    """Convert images of any integer type to uint8. Floats are refused, since 0..1 would be black, and NaN is no pixel.

    Feature vectors [n, d] are the exception. They become float32 [n, 1, 1, d], which are images of one pixel with d
    channels.

    Args:
        name: the argument's name, for messages.
        x: integers 0..255, [n, H, W] or [n, H, W, C], or floats [n, d].

    Raises:
        ArraysError: the type, the shape or a value does not fit.
    """
    if x.dtype.kind == "f" and not (finite := np.isfinite(x)).all():
        place = f"first at {np.argwhere(~finite)[0].tolist()}; images are integers 0..255, features finite floats"
        raise ArraysError(f"{name} holds NaN or infinite values, {place}")
    if x.dtype.kind == "f" and x.size and (x.ndim == 2 or x.shape[1:-1] == (1, 1)):
        _require_valid(np.abs(x).max() < 1e30, f"{name} holds values beyond 1e30")
        return np.ascontiguousarray(x.reshape(len(x), 1, 1, -1), np.float32)
    cure = "images are integers 0..255 (255 * x, rounded), feature vectors floats [n, d]"
    _require_valid(x.dtype.kind in "ui", f"{name} is {x.dtype}; {cure}")
    _require_valid(x.ndim in (3, 4), f"{name} has shape {x.shape}, not [n, H, W] or [n, H, W, C]")
    _require_valid(x.size, f"{name} has shape {x.shape}: it holds no pixel")
    if x.dtype != np.uint8:  # every uint8 is a grey level
        low, high = x.min(), x.max()
        _require_valid(low >= 0 and high <= 255, f"{name} holds {low}..{high}; images are integers 0..255")
    return np.ascontiguousarray(x, np.uint8)


def as_labels(name: str, y: np.ndarray) -> np.ndarray:
    """Labels or owners of any integer type as int64 [n].

    Args:
        name: the argument's name, for messages.
        y: integers from 0, [n].

    Raises:
        ArraysError: the type, the shape or a value does not fit.
    """
    _require_valid(y.dtype.kind in "ui", f"{name} is {y.dtype}; integers are needed")
    _require_valid(y.ndim == 1, f"{name} has shape {y.shape}; a vector is needed")
    if y.size:
        low, high = y.min(), y.max()
        _require_valid(low >= 0 and high < 1 << 62, f"{name} holds {low}..{high}; they count from 0")
    return y.astype(np.int64)


def owners_of(ids: np.ndarray, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number owners that are given as numbers or texts [n]. `name` is for messages.

    Returns (owner of each image int64 [n], names of the owners 0, 1 …). If all ids are whole numbers from 0, as numbers
    or texts, they are the owners' numbers and the names are (). Other ids are numbered in alphabetical order.
    """
    if ids.dtype.kind not in "uiU" or ids.ndim != 1:
        raise ArraysError(f"{name}: got {ids.dtype} {list(ids.shape)}; numbers or texts, one per image, are needed")
    texts = [str(text) for text in ids.tolist()]
    if all(_is_number(text) for text in set(texts)):
        return np.array([int(text) for text in texts], np.int64), ()
    names, owner = np.unique(np.array(texts), return_inverse=True)
    return owner.astype(np.int64), tuple(str(text) for text in names)


def _is_number(text: str) -> bool:
    return len(text) <= 18 and text.isascii() and text.isdecimal() and str(int(text)) == text


def _require_valid(condition: Any, problem: str) -> None:
    if not condition:
        raise ArraysError(problem)


def _check_images(arrays: Any) -> None:
    """Check types and shapes of the images. Values need no check, because every uint8 is valid."""
    for name in ("x_train", "x_test", "x_public"):
        x = getattr(arrays, name)
        if x is None and name == "x_public":
            continue
        readable = isinstance(x, np.ndarray) or hasattr(x, "paths")  # paths: ImageFiles, read on demand
        _require_valid(readable, f"{name} is of type {type(x).__name__}; a numpy array is needed")
        cure = ": np.rint(255 * x).astype(np.uint8) for images in 0..1" if x.dtype.kind == "f" else ""
        vectors = x.dtype == np.float32 and tuple(x.shape[1:3]) == (1, 1)
        _require_valid(vectors or x.dtype == np.uint8, f"{name} is {x.dtype}, not uint8 (0..255){cure}")
        shape, train = tuple(x.shape), tuple(arrays.x_train.shape[1:])
        _require_valid(len(shape) in (3, 4), f"{name} has shape {shape}, not [n, H, W] or [n, H, W, C]")
        _require_valid(0 not in shape, f"{name} has shape {shape}: it holds no pixel")
        first = not vectors and len(shape) == 4 and shape[1] <= 4 < shape[3]
        cure = f"channels last are needed: {name}.transpose(0, 2, 3, 1)"
        _require_valid(not first, f"{name} has shape {shape}, which looks like channels first; {cure}")
        _require_valid(shape[1:] == train, f"{name} has images {shape[1:]}, x_train {train}")


def _check_labels(arrays: Any) -> None:
    k, n = arrays.classes, len(arrays.x_train)
    is_whole = isinstance(k, int | np.integer) and not isinstance(k, bool)
    _require_valid(is_whole and k >= 2, f"classes is {k}; a whole number of at least 2 is needed")
    _require_valid(isinstance(arrays.given, Mapping), "given is no mapping from a name to labels")
    labels = {"y_train": (arrays.y_train, n), "y_test": (arrays.y_test, len(arrays.x_test))}
    labels |= {f"given_{key}": (label_set, n) for key, label_set in arrays.given.items()}
    labels |= {} if arrays.first is None else {"first": (arrays.first, n)}
    for name, (y, length) in labels.items():
        _check_vector(name, y, length)
        where = "; classes are counted from 0: subtract 1" if y.min() == 1 and y.max() == k else ""
        _require_valid(y.min() >= 0 and y.max() < k, f"{name} holds {y.min()}..{y.max()}; labels are 0..{k - 1}{where}")
    if arrays.client is not None:
        _check_vector("client", arrays.client, n)
        low, high = arrays.client.min(), arrays.client.max()
        named = len(arrays.sites) or high + 1
        _require_valid(low >= 0 and high < named, f"client holds {low}..{high}; owners are 0..{named - 1}")
    if arrays.origin is not None:
        fits = isinstance(arrays.origin, np.ndarray) and arrays.origin.dtype.kind in "Ui"
        _require_valid(fits and arrays.origin.shape == (n,), f"origin: {n} integers or texts are needed")
    if arrays.coarse is not None:
        _check_vector("coarse", arrays.coarse, k)


def _check_vector(name: str, y: Any, length: int) -> None:
    _require_valid(
        isinstance(y, np.ndarray), f"{name} is of type {type(y).__name__}; a numpy array is needed: np.array({name})"
    )
    _require_valid(y.shape == (length,), f"{name} has shape {y.shape}; {(length,)} is needed")
    _require_valid(y.dtype == np.int64, f"{name} is {y.dtype}, not int64: {name}.astype(np.int64)")


def _check_facts(arrays: Any) -> None:
    """Check names, mean and std. Names must be texts of one line, because they are shown in tables and pages."""
    names, channels = arrays.names, (*arrays.x_train.shape, 1)[3]
    _require_valid(
        isinstance(names, tuple | list), f"names is of type {type(names).__name__}; a tuple of texts is needed"
    )
    _require_valid(len(names) in (0, arrays.classes), f"{len(names)} class names for {arrays.classes} classes")
    for title, texts in (("class name", names), ("key of given", arrays.given)):
        for text in texts:
            good = isinstance(text, str) and text.strip() and text.isprintable()
            _require_valid(good, f"{title} {text!r}: a text of visible letters in one line is needed")
    twice = [name for name, count in Counter(names).items() if count > 1]
    _require_valid(not twice, f"names: {', '.join(map(repr, twice[:3]))} comes twice")
    for name, values, low in (("mean", arrays.mean, -math.inf), ("std", arrays.std, 0)):
        several = isinstance(values, tuple | list) and len(values) == channels
        _require_valid(several, f"{name}: mean and std need {channels} value(s) each, one per channel")
        numbers = all(isinstance(value, int | float) and math.isfinite(value) and value > low for value in values)
        _require_valid(numbers, f"{name} is {values}; finite numbers{' above 0' if name == 'std' else ''} are needed")

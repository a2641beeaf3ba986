"""A data set from arrays in memory: checked, labels and owners numbered, mean and std worked out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fednoise_core.data.array_checks import ArraysError, as_images, as_labels, owners_of
from fednoise_core.data.arrays import Arrays, content_sha256
from fednoise_core.data.from_user import from_user
from fednoise_core.data.settings import Holdout
from fednoise_core.data.user_values import read_plain_column, read_samples
from fednoise_core.settings.declare import check_value, did_you_mean


def arrays(
    x: Any,
    y: Any,
    *,
    test: tuple[Any, Any] | Mapping[str, float],
    owner: Any = None,
    classes: int | Sequence[str] | None = None,
    public: Any = None,
    clean_known: bool = False,
) -> Arrays:
    """Your own images as a data set for `inject`, `partition_of` and `run`.

    x: images, integers 0..255, [n, H, W] or [n, H, W, C], or feature vectors, numbers [n, d]; an array, a DataFrame or
    a torch Dataset. y: their labels [n], class numbers from 0 or class names; None for those of a Dataset. test:
    (images, labels) to measure accuracy on, which should be right; `{"holdout": share}` sets a share of the given data
    aside instead, and what is measured on it is called agreement with given labels. owner: who holds each image [n],
    numbers or texts; then `fn.partition_of(data, "natural")` makes each owner a client, in sorted order of owners.
    classes: their number, or their names in order of the class numbers; default: the names in sorted order, or as many
    as the greatest label says. public: images [p, …] that nobody owns. clean_known: whether `y` is known to be right;
    if not, they are trained on as they are (`fn.run(data, y, …)`), and nothing is reported that needs the truth.

    Raises SpecError, naming the argument, for whatever does not fit: floats, channels first, labels out of range, a
    class without an image, a missing value (with its row), vectors of another length. Raises TypeError for what is no
    array.
    """
    spec: dict[str, Any] = {"source": "arrays"}
    if isinstance(test, Mapping):
        spec["test"] = check_value(Holdout, test, "test").model_dump()
    elif not isinstance(test, tuple | list) or len(test) != 2:
        raise TypeError("test: pass a pair (images, labels) to measure accuracy on, or {'holdout': 0.2}")
    clean_known = check_value(bool, clean_known, "clean_known")
    x, y = read_samples(x, y)
    x_train, label_sets = as_images("x", x), {"y": read_plain_column(y, "y")}
    x_test = None
    if not isinstance(test, Mapping):
        images, labels = read_samples(*test, "test[0]")
        x_test, label_sets["test[1]"] = as_images("test[0]", images), read_plain_column(labels, "test[1]")
    names, count = _class_names(label_sets, classes)
    numbers = {name: _number_labels(name, values, names) for name, values in label_sets.items()}
    owners = (None, ()) if owner is None else owners_of(read_plain_column(owner, "owner"), "owner")
    for name, column in (("y", numbers["y"]), ("owner", owners[0])):
        if column is not None and len(column) != len(x_train):
            raise ArraysError(f"{name} has {len(column)} values for {len(x_train)} samples in x")
    return from_user(
        spec,
        "y",
        x_train,
        numbers["y"],
        None if x_test is None else (x_test, numbers["test[1]"]),
        classes=count,
        owners=owners,
        names=names,
        x_public=None if public is None else as_images("public", read_samples(public, (), "public")[0]),
        clean_known=clean_known,
        origin=np.arange(len(x_train)),
        spec=spec,
        source_sha256={"x_train": content_sha256(x_train), "y_train": content_sha256(numbers["y"])},
    )


def _class_names(label_sets: dict[str, np.ndarray], classes: Any) -> tuple[tuple[str, ...], int]:
    """(class names, number of classes); no names where labels and `classes` are numbers."""
    texts = [values for values in label_sets.values() if values.dtype.kind == "U"]
    if classes is None and texts:
        if len(texts) != len(label_sets):
            raise ArraysError("y and test[1]: one has numbers, the other names; pass classes=[names in order]")
        classes = sorted({str(name) for name in label_sets["y"]})
    if classes is None:
        greatest = [values.max() for values in label_sets.values() if values.dtype.kind in "ui" and values.size]
        return (), int(max(greatest, default=0)) + 1
    if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
        if texts:
            raise ArraysError("classes: a number, but the labels are names; pass the names in order")
        return (), int(classes)
    if not isinstance(classes, list | tuple | np.ndarray) or not all(isinstance(name, str) for name in classes):
        raise TypeError(f"classes: got {classes!r}; pass a number, or the class names in order")
    return tuple(str(name) for name in classes), len(classes)


def _number_labels(name: str, values: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Labels as class numbers int64 [n]."""
    if values.dtype.kind != "U" or values.ndim != 1:
        return as_labels(name, values)
    numbers = {text: number for number, text in enumerate(names)}
    if unknown := sorted({str(text) for text in values} - numbers.keys()):
        raise ArraysError(f"{name}: {unknown[0]!r} is no class{did_you_mean(unknown[0], names)}")
    return np.array([numbers[str(text)] for text in values], np.int64)

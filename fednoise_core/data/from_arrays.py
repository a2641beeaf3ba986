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
    """Make a data set of your own images for `inject`, `partition_of` and `run`.

    Args:
        x: Images, integers 0..255, [n, H, W] or [n, H, W, C], or feature vectors, numbers [n, d]. It can be an array, a
            DataFrame or a torch Dataset.
        y: Labels [n], class numbers from 0 or class names. None: the labels of the Dataset.
        test: (images, labels) to measure the accuracy. The labels should be right. `{"holdout": share}` instead holds
            out a share of the given data, and the result is called agreement with given labels.
        owner: Owner of each image [n], numbers or texts. `fn.partition_of(data, "natural")` makes each owner a client,
            in sorted order.
        classes: Number of classes, or their names in order. Default: the names in sorted order, or the largest label
            plus 1.
        public: Images [p, …] without an owner.
        clean_known: Whether `y` is known to be right. If not, use `fn.run(data, y, …)`. Results that need the clean
            labels are then not reported.

    Raises:
        SpecError: An argument does not fit, such as float images, channels first, labels out of range, a class without
            an image, a missing value, or vectors of another length. The message names the argument.
        TypeError: An argument is not an array.
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
    """Return (class names, number of classes). There are no names if labels and `classes` are numbers."""
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

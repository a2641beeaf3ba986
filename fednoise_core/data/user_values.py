"""Conversion of samples, labels, owners and predictions in common formats to plain arrays."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.io import NAMED, SpecError
from fednoise_core.settings.words import short_repr


@dataclass(frozen=True)
class ClassLabels:
    """Labels as class numbers.

    Attributes:
        numbers: Class number of each sample, int64 [n].
        classes: The user's values for the classes 0, 1 …, any type [K].
    """

    numbers: np.ndarray
    classes: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, or () if the user's values are their numbers."""
        names = tuple(str(value) for value in self.classes.tolist())
        return () if names == tuple(map(str, range(len(names)))) else names


def read_samples(x: Any, y: Any = None, name: str = "x") -> tuple[np.ndarray, Any]:
    """Read samples, and labels from `y` or from a Dataset.

    Args:
        x: An array of numbers, a DataFrame of numbers, a sparse matrix, or a map-style torch Dataset of (sample, label)
            or a DataLoader of such a Dataset. Its images may be PIL images, or tensors [C, H, W] in 0..1.
        y: The labels. Default: the labels of the Dataset.
        name: The argument's name, for messages.

    Returns:
        Images or float32 feature vectors [n, …], and labels in any form.

    Raises:
        SpecError: A value is no number. The message names its column and row.
        TypeError: No array can be made of the samples.
    """
    torch_data = sys.modules.get("torch.utils.data")  # not imported here: whoever passes a Dataset has imported it
    if torch_data and isinstance(x, torch_data.DataLoader):
        x = x.dataset  # in the order of the Dataset, even if the loader shuffles
    if torch_data and isinstance(x, torch_data.Dataset):
        x, y = _read_dataset(x, y, name)
    if y is None:
        raise SpecError(f"y: expected labels, or for {name} a torch Dataset that has them")
    if isinstance(x, pd.DataFrame):
        for column in x.columns:
            if not (pd.api.types.is_numeric_dtype(x[column]) or pd.api.types.is_bool_dtype(x[column])):
                value = next((value for value in x[column] if not isinstance(value, int | float)), None)
                raise SpecError(
                    f"{name}: column {column!r} is not numeric (it has {value!r}); leave it out, encode it, or "
                    "name it as the owners (owner=, --client)"
                )
        columns, x = [repr(column) for column in x.columns], x.to_numpy(np.float64, na_value=np.nan)
    else:
        if isinstance(x, np.ma.MaskedArray) and x.mask.any():
            x = np.ma.filled(x.astype(np.float32), np.nan)
        try:
            x = np.asarray(x.toarray() if hasattr(x, "toarray") else x)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name}: no array can be made of it ({error})") from error
        if x.ndim == 0:
            raise TypeError(f"{name}: expected an array of samples, got {short_repr(x.item())}")
        columns = [str(number) for number in range(x.shape[1])] if x.ndim == 2 else []
    if x.ndim == 2 and x.dtype.kind in "bui":
        x = x.astype(np.float32)
    if x.ndim == 2 and x.dtype.kind == "f" and not np.isfinite(x).all():
        rows, bad = np.nonzero(~np.isfinite(x))
        others = f", and so are {len(rows) - 1} other values" if len(rows) > 1 else ""
        raise SpecError(
            f"{name}: column {columns[bad[0]]} is {x[rows[0], bad[0]]} in row {rows[0]}{others}. Fill them in"
        )
    return x, y


def _read_dataset(dataset: Any, y: Any, name: str) -> tuple[np.ndarray, Any]:
    """Stack the items of a map-style data set."""
    if not hasattr(dataset, "__len__"):
        raise SpecError(f"{name}: expected a map-style data set, got {type(dataset).__name__} without a length")
    items = [dataset[row] for row in range(len(dataset))]
    if isinstance(items[0], tuple | list):
        labels = [item[1] for item in items]
        y = [getattr(label, "item", lambda label=label: label)() for label in labels] if y is None else y
        items = [item[0] for item in items]
    samples = [np.asarray(item) for item in items]
    if shapes := {sample.shape for sample in samples} - {samples[0].shape}:
        raise SpecError(f"{name}: items of shapes {samples[0].shape} and {shapes.pop()}; add a Resize to the transform")
    x = np.stack(samples)
    if x.ndim == 4 and hasattr(items[0], "numel"):  # torch has channels first
        x = x.transpose(0, 2, 3, 1)
    if x.ndim > 2 and x.dtype.kind == "f":
        if x.min() < 0 or x.max() > 1:
            raise SpecError(f"{name}: images of {x.min():.3g} to {x.max():.3g}; expected 0..1. Leave Normalize out")
        x = np.rint(255 * x).astype(np.uint8)
    return x, y


def list_words(values: Iterable[Any]) -> str:
    """List values in a message."""
    return ", ".join(map(str, values))


def read_column(values: Any, name: str) -> pd.Series:
    """Read a value for each sample: a list, an array, a tensor, or a column of a table.

    Args:
        values: One for each of n samples. Floats must be whole numbers.
        name: The argument's name, for messages.

    Returns:
        Integers, bools, categories or texts [n].

    Raises:
        SpecError: A value is missing or not whole. The message names all such rows.
    """
    if not isinstance(values, list | pd.Series):
        if not isinstance(values, np.ma.MaskedArray):  # pandas takes what it hides as missing
            values = np.asarray(values)
        values = values.astype(object) if values.dtype.kind == "S" else values
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise SpecError(f"{name}: expected one value for each sample, got shape {list(values.shape)}")
    column = _decode_texts(pd.Series(values).reset_index(drop=True), name)
    missing = column.isna() | (column == "").fillna(False)
    if pd.api.types.is_numeric_dtype(column) and column.nunique() > 2:
        missing |= column == -1  # as scikit-learn and votes write it
    if missing.any():
        rows = np.flatnonzero(missing)
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        raise SpecError(f"{name}: no value in row {list_words(rows[:NAMED])}{more}. Leave such samples out")
    column = column.infer_objects()
    if pd.api.types.is_float_dtype(column):
        if (column % 1 != 0).any():
            row = int((column % 1 != 0).argmax())
            raise SpecError(f"{name}: expected whole numbers or names, got {column[row]} in row {row}")
        column = column.astype(np.int64)
    kinds = {type(value).__name__ for value in column} if column.dtype == object else set()
    if len(kinds) > 1:
        raise SpecError(f"{name}: expected values of one type, got {list_words(sorted(kinds))}")
    return column


def _decode_texts(column: pd.Series, name: str) -> pd.Series:
    """Decode texts that are bytes, as h5py reads them."""
    if column.dtype != object or not any(isinstance(value, bytes) for value in column):
        return column
    try:
        return column.map(lambda value: value.decode() if isinstance(value, bytes) else value)
    except UnicodeDecodeError as error:
        raise SpecError(f"{name}: {error.object!r} is no UTF-8 text") from error


def number_labels(y: Any, classes: Sequence[Any] | None = None) -> ClassLabels:
    """Number the classes of labels.

    Args:
        y: Labels [n]: any whole numbers, bools, names, or categories of pandas.
        classes: All classes in order. Default: the classes that occur, in order of their categories or values.

    Raises:
        SpecError: A label is missing or is not a class. The message names its row.
    """
    column = read_column(y, "y")
    if classes is None and isinstance(column.dtype, pd.CategoricalDtype):
        classes = [value for value in column.cat.categories if value in set(column)]
    order = np.asarray(sorted(set(column)) if classes is None else classes)
    numbers = {value: number for number, value in enumerate(order.tolist())}
    if unknown := [row for row, value in enumerate(column) if value not in numbers]:
        raise SpecError(
            f"y: row {unknown[0]}: {column[unknown[0]]!r} is none of the classes {list_words(order[:NAMED])}"
        )
    if len(numbers) < 2:
        raise SpecError(f"y: expected at least 2 classes, got {list_words(order) + ' alone' if numbers else 'none'}")
    return ClassLabels(np.array([numbers[value] for value in column], np.int64), order)


def read_plain_column(values: Any, name: str) -> np.ndarray:
    """Read a value for each sample, as `read_column`, as integers or texts [n]."""
    column = read_column(values, name)
    return column.to_numpy(np.int64 if pd.api.types.is_integer_dtype(column) else str)


def read_probabilities(pred_probs: Any, y: Any) -> tuple[np.ndarray, ClassLabels]:
    """Read the predictions of the user's own models, and number the labels by their columns.

    Args:
        pred_probs: Probabilities [n, K]. Columns are classes: by the names of a DataFrame's columns, or class numbers
            from 0 if the labels are such numbers, or else the classes that occur in `y`, in sorted order.
        y: Labels [n], as for `number_labels`.

    Returns:
        Probabilities float64 [n, K], each row with the sum 1, and the labels.

    Raises:
        SpecError: A row has no valid probabilities, or columns and classes do not fit. The message says which.
    """
    p = np.asarray(pred_probs, np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise SpecError(f"pred_probs: expected a column for each class, got shape {list(p.shape)}")
    good = np.isfinite(p).all(1) & (p >= 0).all(1) & (np.abs(p.sum(1) - 1) < 0.01)
    if not good.all():
        row = int(good.argmin())
        raise SpecError(f"pred_probs: row {row} has the sum {p[row].sum():.3g}; expected probabilities, not logits")
    if isinstance(pred_probs, pd.DataFrame):
        return p / p.sum(1, keepdims=True), number_labels(y, list(pred_probs.columns))
    column = read_column(y, "y")
    by_number = pd.api.types.is_integer_dtype(column) and column.min() >= 0 and column.max() < p.shape[1]
    labels = number_labels(column, range(p.shape[1]) if by_number else None)
    if len(labels.classes) != p.shape[1]:
        found = list_words(labels.classes[:NAMED])
        raise SpecError(f"pred_probs: {p.shape[1]} columns for the {len(labels.classes)} classes of y, {found}")
    return p / p.sum(1, keepdims=True), labels

"""fn.arrays: images, labels and owners from memory, checked before anything is trained on them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset

import fednoise_core as fn
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.io import SpecError

DRAW = np.random.default_rng(0)
X, Y = DRAW.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8), np.arange(12) % 3
TEST = (DRAW.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8), np.array([2, 1, 0, 1]))
VECTORS = DRAW.normal(size=(12, 4))


class Uneven(Dataset[Any]):
    """Images of two sizes."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, row: int) -> Any:
        return torch.zeros(3, 4 + row // 6, 4 + row // 6), row % 3


def test_numbers_are_taken_as_they_are_and_the_rest_is_worked_out():
    data = fn.arrays(X, Y.astype(np.uint8), test=TEST)
    np.testing.assert_array_equal(data.y_train, Y)
    assert data.y_train.dtype == np.int64
    assert (data.mean, data.std) == mean_and_std(X)
    assert (data.classes, data.names, data.clean_known, data.client) == (3, (), False, None)
    wide = fn.arrays(X.astype(np.int32), torch.from_numpy(Y), test=TEST, classes=3, clean_known=True)
    assert wide.x_train.dtype == np.uint8
    np.testing.assert_array_equal(wide.x_train, X)
    assert fn.inject(wide, {"kind": "symmetric", "rate": 0.5}).clean is not None
    assert data.source_sha256 == wide.source_sha256


def test_names_of_classes_and_owners_are_numbered():
    names = np.array(["cat", "emu", "dog"])
    data = fn.arrays(X, names[Y], test=(TEST[0], names[TEST[1]]), owner=[f"site {'ba'[i % 2]}" for i in range(12)])
    assert data.names == ("cat", "dog", "emu")  # sorted
    np.testing.assert_array_equal(data.y_train, np.array([0, 2, 1])[Y])
    np.testing.assert_array_equal(data.client, [1, 0] * 6)
    assert data.sites == ("site a", "site b")
    ordered = fn.arrays(X, names[Y], test=TEST, classes=["cat", "emu", "dog"], owner=np.arange(12) - 50)
    np.testing.assert_array_equal(ordered.y_train, Y)
    np.testing.assert_array_equal(ordered.y_test, TEST[1])
    assert fn.partition_of(ordered, "natural").clients == 12
    assert fn.partition_of(data, "natural").of(1).tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X / 255}, r"x is float64; images are integers 0\.\.255 \(255 \* x, rounded\)"),
        ({"x": np.where(X > 9, X, np.nan)}, "x holds NaN or infinite values"),
        ({"x": np.where(X > 9, X, np.inf)}, "x holds NaN or infinite values"),
        ({"x": np.repeat(X[:1], 12, 0)}, "x_train holds the same image everywhere"),
        ({"x": X.astype(int) + 1}, r"x holds 1\.\.256"),
        ({"x": X.transpose(0, 3, 1, 2), "test": (TEST[0].transpose(0, 3, 1, 2), TEST[1])}, "channels first"),
        ({"x": X[0, 0, 0]}, r"x has shape \(3,\)"),
        (
            {"x": np.where(np.arange(4) == 2, np.nan, VECTORS)},
            "x: column 2 is nan in row 0, and so are 11 other values",
        ),
        ({"x": pd.DataFrame(VECTORS, columns=list("abcd")).assign(c="red")}, "x: column 'c' is not numeric .*'red'"),
        ({"x": Uneven(), "y": None}, r"x: items of shapes \(3, 4, 4\) and \(3, 5, 5\); add a Resize"),
        ({"test": (np.where(VECTORS > 9, 1, np.nan), Y)}, r"test\[0\]: column 0 is nan in row 0"),
        ({"x": X[:0], "y": Y[:0]}, "holds no pixel"),
        ({"y": Y[:-1]}, "y has 11 values for 12 samples in x"),
        ({"y": Y[None]}, r"y: expected one value for each sample, got shape \[1, 12\]"),
        ({"y": [None, *Y[1:].tolist()]}, r"y: no value in row 0\."),
        ({"y": Y + 0.5}, r"y: expected whole numbers or names, got 0\.5 in row 0"),
        ({"y": Y - 1}, r"y: no value in row 0, 3, 6, 9\."),
        ({"y": Y * 2 - 2}, r"y holds -2\.\.2; they count from 0"),
        ({"y": Y + 1}, r"y: no training image has class 0 of 0\.\.3; labels count from 0"),
        ({"classes": 2}, r"y_train holds 0\.\.2; labels are 0\.\.1"),
        ({"classes": 4}, r"y: no training image has class 3 of 0\.\.3"),
        ({"classes": ["a", "b"]}, r"y_train holds 0\.\.2; labels are 0\.\.1"),
        ({"classes": ["a", "b", "b"]}, "names: 'b' comes twice"),
        ({"y": np.array(["cat", "dog", "emu"])[Y]}, "one has numbers, the other names"),
        ({"y": np.array(["cat", "dgo", "emu"])[Y], "classes": ["cat", "dog", "emu"]}, "y: 'dgo' is no class; did you"),
        ({"test": (TEST[0], TEST[1] + 5)}, "no training image has class 3"),
        ({"test": (TEST[0], TEST[1] + 5), "classes": 3}, r"y_test holds 5\.\.7; labels are 0\.\.2"),
        ({"test": (TEST[0][:, :5], TEST[1])}, r"x_test has images \(5, 5, 3\), x_train \(6, 5, 3\)"),
        ({"owner": np.arange(11)}, "owner has 11 values for 12 samples in x"),
        ({"owner": np.arange(12) / 2}, r"owner: expected whole numbers or names, got 0\.5 in row 1"),
        ({"owner": ["a", None] * 6}, r"owner: no value in row 1, 3, 5, 7, 9, 11\."),
        ({"public": X[:2, :, :, :1]}, "x_public has images"),
        ({"clean_known": "no"}, "clean_known: expected"),
    ],
)
def test_arrays_that_do_not_fit_are_named(change: dict[str, Any], message: str):
    arguments = {"x": X, "y": Y, "test": TEST, **change}
    with pytest.raises(SpecError, match=message):
        fn.arrays(arguments.pop("x"), arguments.pop("y"), **arguments)


def test_a_held_out_share_stands_in_for_a_test_set():
    labelled = np.repeat(X, 5, axis=0), np.repeat(Y, 5)
    data = fn.arrays(*labelled, test={"holdout": 0.2}, owner=np.repeat(["b", "a"], 30))
    assert (data.n, len(data.y_test), data.test_known) == (48, 12, False)
    np.testing.assert_array_equal(data.x_train, labelled[0][data.origin])  # origin: rows of the user's array
    np.testing.assert_array_equal(data.client, (data.origin < 30).astype(int))
    with pytest.raises(SpecError, match="test"):
        fn.arrays(*labelled, test={"holdout": 2})

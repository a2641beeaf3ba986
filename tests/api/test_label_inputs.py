"""Inputs of fn.find_label_errors: every form gives the same list, and an error names the row with the problem."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import fednoise_core as fn
from fednoise_core.api.find_label_errors import find_label_errors
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.rng import stream

K, N = 4, 400
OWNERS = np.arange(N) % 2


def make_vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [n, 6] around a centre for each class, true labels, and given labels of which every tenth is wrong."""
    draw = stream(0, "vectors").normal(size=(N, 6))
    true = np.arange(N) // 2 % K
    labels = np.where(np.arange(N) % 10 == 0, (true + 1) % K, true)
    return (draw + 6 * np.eye(K, 6)[true]).astype(np.float32), true, labels


X, TRUE, Y = make_vectors()
WRONG = set(np.flatnonzero(TRUE != Y).tolist())


def find(x: Any, y: Any = None, owner: Any = OWNERS, **settings: Any) -> Any:
    return find_label_errors(x, y, owner, progress=False, **settings)


@pytest.fixture(scope="module")
def expected() -> Any:
    return find(X, Y)


def as_names(y: np.ndarray) -> np.ndarray:
    return np.array(["cat", "dog", "eel", "fox"])[y]


@pytest.mark.parametrize(
    "y",
    [
        Y.tolist(),
        Y + 1,
        Y * 10 - 5,
        Y.astype(float),
        as_names(Y),
        as_names(Y).astype(bytes),
        pd.Series(as_names(Y)),
        pd.Series(as_names(Y), index=range(7, 7 + N)),
        pd.Categorical(as_names(Y), categories=["cat", "dog", "eel", "fox", "gnu"]),
        pd.Series(Y, dtype="Int64"),
        torch.from_numpy(Y),
        Y[:, None],
    ],
    ids=[
        "list",
        "from 1",
        "gaps",
        "floats",
        "names",
        "bytes",
        "series",
        "index",
        "categories",
        "Int64",
        "tensor",
        "column",
    ],
)
def test_labels_in_every_form_give_the_same_list(y: Any, expected: Any) -> None:
    frame = find(X, y)
    pd.testing.assert_frame_equal(
        pd.DataFrame(frame)[["sample", "p_wrong"]], pd.DataFrame(expected)[["sample", "p_wrong"]]
    )


@pytest.mark.parametrize(
    "x",
    [
        pd.DataFrame(X, columns=list("abcdef")),
        X.tolist(),
        X.astype(np.float64),
        sparse.csr_matrix(X),
        torch.from_numpy(X),
        TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=7, shuffle=True),
    ],
    ids=["DataFrame", "list", "float64", "sparse", "tensor", "Dataset", "DataLoader"],
)
def test_samples_in_every_form_give_the_same_list(x: Any, expected: Any) -> None:
    frame = find(x, None if isinstance(x, TensorDataset | DataLoader) else Y)
    assert frame["sample"].tolist() == expected["sample"].tolist()


def test_bools_whole_numbers_and_owners_of_any_kind() -> None:
    counts = np.rint(10 * X).astype(int)
    frame = find(counts, Y >= 2, OWNERS.astype(float))
    assert set(frame["given"]) == {0, 1}
    names = find(X, Y, np.array(["north", "south"])[OWNERS])
    assert [site["site"] for site in names.attrs["sites"]] == ["north", "south"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"y": [None if row in (3, 8) else value for row, value in enumerate(Y.tolist())]},
            r"y: no value in row 3, 8\.",
        ),
        ({"y": np.where(np.arange(N) == 5, np.nan, Y)}, "y: no value in row 5"),
        ({"y": np.where(np.arange(N) == 5, 1.5, Y)}, r"y: expected whole numbers or names, got 1\.5 in row 5"),
        ({"y": np.ma.masked_array(Y, np.arange(N) == 5)}, "y: no value in row 5"),
        ({"y": np.ma.masked_array(as_names(Y).astype(bytes), np.arange(N) == 5)}, "y: no value in row 5"),
        ({"y": np.array(["é".encode("latin-1"), b"fox"])[Y % 2]}, "y: .* is no UTF-8 text"),
        ({"x": np.ma.masked_array(X, np.arange(N * 6).reshape(N, 6) == 14)}, r"x: column 2 is nan in row 2\. Fill"),
        ({"y": np.zeros(N, int)}, "y: expected at least 2 classes"),
        ({"y": Y[:-1]}, "y: expected one for each of the 400 samples of x, got 399"),
        ({"owner": [None, *OWNERS.tolist()[1:]]}, "owner: no value in row 0"),
        ({"owner": OWNERS + 0.5}, r"owner: expected whole numbers or names, got 0\.5 in row 0"),
        ({"x": np.where(np.arange(6) == 2, np.nan, X)}, r"x: column 2 is nan in row 0, and so are 399 other values"),
        (
            {"x": pd.DataFrame(X, columns=list("abcdef")).assign(c="red")},
            "x: column 'c' is not numeric .*'red'.*owner=",
        ),
        ({"pred_probs": np.ones((N, K))}, r"pred_probs: row 0 has the sum 4; expected probabilities"),
        ({"pred_probs": np.full((N, 3), 1 / 3)}, "pred_probs: 3 columns for the 4 classes of y"),
        ({"pred_probs": np.full((N, K), 1 / K), "rounds": 3}, "rounds: nothing is trained with pred_probs"),
        ({"round": 3}, r"round: no such argument; did you mean 'rounds'\?"),
        ({"method": "fedavg"}, "method: no such argument; known: augment"),
        ({"x": "mine.npz"}, 'x: expected an array of samples, got "mine.npz"'),
        ({"y": np.eye(K, dtype=int)[Y]}, r"y: its rows look one-hot, .*; pass y\.argmax\(1\)"),
        ({"x": X[:0], "y": []}, "y: expected at least 2 classes, got none"),
    ],
)
def test_bad_input_is_refused_with_its_place(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((SpecError, TypeError), match=message):
        find(**{"x": X, "y": Y, "owner": OWNERS, **arguments})


def test_a_data_set_without_numbers_is_refused() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(SpecError, match="expected a map-style data set, got Endless"):
        find(Endless())


def test_images_of_a_torch_dataset_are_channels_last() -> None:
    images = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="1 of 1 sites"):  # there is nothing to learn
        frame = find(TensorDataset(images, torch.arange(60) % 2), owner=None, rounds=1, epochs=1)
    assert frame.data.x_train.shape == (60, 8, 8, 3)
    np.testing.assert_array_equal(frame.data.x_train[3], np.rint(255 * images[3].permute(1, 2, 0).numpy()))


def test_own_probabilities_need_no_training() -> None:
    p = np.full((N, K), 0.05)
    p[np.arange(N), TRUE] = 0.85
    frame = find(None, as_names(Y), pred_probs=pd.DataFrame(p, columns=["cat", "dog", "eel", "fox"]))
    assert set(frame["sample"].head(len(WRONG)).tolist()) == WRONG
    assert len(frame.attrs["sites"]) == 2
    by_array = find(X, Y, pred_probs=p)
    assert by_array["sample"].tolist() == frame["sample"].tolist()
    assert set(range(N)) - set(frame.corrected(drop=True)[0].tolist()) == WRONG


def test_an_empty_list_says_why() -> None:
    noise = stream(1, "noise").normal(size=(N, 6)).astype(np.float32)
    with pytest.warns(UserWarning, match="2 of 2 sites are left out .*no more often than chance"):
        frame = find(noise, stream(2, "labels").integers(0, K, N))
    assert len(frame) == 0


def test_the_result_writes_its_page_and_corrects_the_labels(tmp_path: Any) -> None:
    images = fn.dataset({"source": "digits", "test": 360}).x_train
    frame = find(X, as_names(Y))
    frame.page(tmp_path / "labels.html", images=images[:N], title="Mine")
    text = (tmp_path / "labels.html").read_text()
    assert "Mine" in text
    frame.page(tmp_path / "vectors.html", title="Mine")
    assert (tmp_path / "vectors.html").read_text() != text  # its pictures are others
    rows, labels = frame.corrected()
    assert rows.tolist() == list(range(N))
    before, after = (as_names(Y) != as_names(TRUE)).mean(), (labels != as_names(TRUE)).mean()
    assert after < before / 4
    rows, labels = frame.corrected(drop=True)
    assert len(rows) < N
    assert (labels == as_names(Y)[rows]).all()
    assert len(WRONG & set(rows.tolist())) < len(WRONG) / 4
    assert (pickle.loads(pickle.dumps(frame)).corrected(drop=True)[0] == rows).all()


def test_pictures_of_feature_vectors_are_read_from_files(tmp_path: Any) -> None:
    Image.fromarray(np.full((8, 8), 9, np.uint8)).save(tmp_path / "a.png")
    frame, sizes = find(X, Y), {}
    for name, images in {"files": [tmp_path / "a.png"] * N, "cells": None}.items():
        frame.page(tmp_path / name, images=images)
        sizes[name] = "image/jpeg" in (tmp_path / name).read_text(encoding="utf-8")
    assert sizes == {"files": True, "cells": False}
    with pytest.raises(SpecError, match=f"images: expected one for each of {N} samples, got 2"):
        frame.page(tmp_path / "files", images=["a.png"] * 2)
    with pytest.raises(ArtifactError, match=r"b\.png: no such file"):
        frame.page(tmp_path / "files", images=["b.png"] * N)


def test_relabelling_that_would_not_help_is_refused() -> None:
    doubtful = find(X, Y)
    doubtful["p_proposed"] = 0.1
    doubtful["p_wrong"] = 0.6
    with pytest.raises(SpecError, match="corrected: relabelling would not help"):
        doubtful.corrected()
    rows, _ = doubtful.corrected(drop=True)
    assert len(rows) < N


def test_training_settings_are_used() -> None:
    frame = find(X, Y, rounds=2, lr=0.01)
    assert len(frame) == N
    for changed in ({"rounds": 3, "lr": 0.01}, {"rounds": 2, "lr": 0.02}):
        assert not frame["p_wrong"].equals(find(X, Y, **changed)["p_wrong"])

"""Labels drawn from the user's own probabilities."""

from pathlib import Path

import numpy as np
import pytest
import toy

import fednoise_core as fn
from fednoise_core.io import SpecError


def probabilities() -> np.ndarray:
    """Right with probability .7 or .1, by the sample; else the next class."""
    data = toy.arrays()
    P, right = np.zeros((data.n, data.classes)), np.where(np.arange(data.n) % 2, 0.7, 0.1)
    P[np.arange(data.n), data.y_train] = right
    P[np.arange(data.n), (data.y_train + 1) % data.classes] = 1 - right
    return P


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_each_label_is_drawn_from_its_row(tmp_path: Path, ending: str) -> None:
    data, P, file = toy.arrays(), probabilities(), tmp_path / f"soft.{ending}"
    if ending == "csv":
        np.savetxt(file, P, delimiter=",")
    else:
        np.savez(file, P=P.astype(np.float32))
    draws = [fn.inject(data, {"kind": "soft_labels", "file": str(file)}, seed=seed) for seed in range(200)]
    shares = np.mean([labels.noisy == data.y_train for labels in draws], 0)
    assert np.abs(shares[1::2] - 0.7).max() < 0.17  # five standard errors of 200 draws
    assert np.abs(shares[::2] - 0.1).max() < 0.11
    assert all(np.isin((labels.noisy - data.y_train) % data.classes, (0, 1)).all() for labels in draws)
    again = fn.inject(data, {"kind": "soft_labels", "file": str(file)}, seed=3)
    np.testing.assert_array_equal(again.noisy, draws[3].noisy)
    T = draws[0].T_nominal
    assert T is not None
    np.testing.assert_allclose(T[0], P[data.y_train == 0].mean(0), atol=1e-6)
    assert draws[0].spec["nominal_rate"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda P: P[:-1], r"training samples × \d classes, got \d+ × \d"),
        (lambda P: P * 0.5, r"rows are no probabilities that sum to 1, the first is row 1"),
        (lambda P: np.where(np.arange(len(P))[:, None] == 3, np.nan, P), r"1 rows are no probabilities .* is row 4"),
    ],
)
def test_rows_that_are_no_probabilities_are_refused(tmp_path: Path, change, message: str) -> None:
    file = tmp_path / "soft.csv"
    np.savetxt(file, change(probabilities()), delimiter=",")
    with pytest.raises(SpecError, match=rf"soft_labels: file: .*soft.csv: .*{message}"):
        fn.inject(toy.arrays(), {"kind": "soft_labels", "file": str(file)})


def test_a_file_that_is_missing_or_no_table(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none.csv: no such file"):
        fn.inject(toy.arrays(), {"kind": "soft_labels", "file": str(tmp_path / "none.csv")})
    (tmp_path / "text.csv").write_text("a,b\n")
    with pytest.raises(SpecError, match=r"text.csv: could not convert"):
        fn.inject(toy.arrays(), {"kind": "soft_labels", "file": str(tmp_path / "text.csv")})

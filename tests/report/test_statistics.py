"""Statistics over seeds against cases worked out by hand, and against what must hold for any numbers."""

import math

import numpy as np
import pytest

from fednoise_core.rng import stream
from workflow_scripts.report.runs.statistics import LEAST, summarize_seeds

RNG = stream(0, "test statistics")
CASES = [RNG.normal(70, 8, n) for n in (3, 4, 5, 10, 30)]


def test_mean_and_deviation_of_three_by_hand() -> None:
    found = summarize_seeds([2.0, 4.0, 9.0])
    assert found["mean"] == 5.0
    assert found["std"] == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    # of the 27 draws of three from three: the 2.5 % at either end are those of 2, 2, 2 and of 9, 9, 9 (1/27 each)
    assert (found["low"], found["high"]) == (2.0, 9.0)


def test_too_few_values_have_no_interval_and_one_no_deviation() -> None:
    one, two = summarize_seeds([70.0]), summarize_seeds([70.0, 72.0])
    assert one["mean"] == 70.0
    assert all(math.isnan(one[key]) for key in ("std", "low", "high"))
    assert (two["mean"], two["std"]) == (71.0, pytest.approx(math.sqrt(2)))
    assert math.isnan(two["low"])
    assert math.isnan(two["high"])
    assert math.isnan(summarize_seeds([])["mean"])
    assert math.isnan(summarize_seeds([1.0, math.nan, 3.0])["mean"])  # a run that diverged leaves no mean of the others
    assert summarize_seeds([5.0, 5.0, 5.0]) == {"mean": 5.0, "std": 0.0, "low": 5.0, "high": 5.0}


@pytest.mark.parametrize("values", CASES, ids=len)
def test_an_interval_holds_the_mean_and_moves_with_the_values(values: np.ndarray) -> None:
    found = summarize_seeds(values)
    assert len(values) >= LEAST
    assert values.min() <= found["low"] < found["mean"] < found["high"] <= values.max()
    assert summarize_seeds(values) == found  # the same draws every time
    moved = summarize_seeds(3 * values + 10)
    assert moved == pytest.approx({key: 3 * value + 10 * (key != "std") for key, value in found.items()})
    width = 2 * 1.96 * found["std"] / math.sqrt(len(values))  # of a normal law; a bootstrap of few values is narrower
    assert 0.5 * width < found["high"] - found["low"] < 1.2 * width

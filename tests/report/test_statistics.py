"""Statistics over seeds agree with cases calculated by hand, and have the properties that hold for any numbers."""

import math

import numpy as np
import pytest

from fednoise_core.rng import stream
from workflow_scripts.report.runs.statistics import LEAST, summarize_seeds

RNG = stream(0, "test statistics")
CASES = [RNG.normal(70, 8, n) for n in (3, 4, 5, 10, 30)]


def test_mean_and_deviation_of_three_by_hand() -> None:
    summary = summarize_seeds([2.0, 4.0, 9.0])
    assert summary["mean"] == 5.0
    assert summary["std"] == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    # of the 27 draws of three from three: the 2.5 % at either end are those of 2, 2, 2 and of 9, 9, 9 (1/27 each)
    assert (summary["low"], summary["high"]) == (2.0, 9.0)


def test_too_few_values_have_no_interval_and_one_no_deviation() -> None:
    single, pair = summarize_seeds([70.0]), summarize_seeds([70.0, 72.0])
    assert single["mean"] == 70.0
    assert all(math.isnan(single[key]) for key in ("std", "low", "high"))
    assert (pair["mean"], pair["std"]) == (71.0, pytest.approx(math.sqrt(2)))
    assert math.isnan(pair["low"])
    assert math.isnan(pair["high"])
    assert math.isnan(summarize_seeds([])["mean"])
    assert math.isnan(summarize_seeds([1.0, math.nan, 3.0])["mean"])  # a run that diverged leaves no mean of the others
    assert summarize_seeds([5.0, 5.0, 5.0]) == {"mean": 5.0, "std": 0.0, "low": 5.0, "high": 5.0}


@pytest.mark.parametrize("values", CASES, ids=len)
def test_an_interval_holds_the_mean_and_moves_with_the_values(values: np.ndarray) -> None:
    summary = summarize_seeds(values)
    assert len(values) >= LEAST
    assert values.min() <= summary["low"] < summary["mean"] < summary["high"] <= values.max()
    assert summarize_seeds(values) == summary  # the same draws every time
    moved = summarize_seeds(3 * values + 10)
    assert moved == pytest.approx({key: 3 * value + 10 * (key != "std") for key, value in summary.items()})
    width = 2 * 1.96 * summary["std"] / math.sqrt(len(values))  # of a normal law; a bootstrap of few values is narrower
    assert 0.5 * width < summary["high"] - summary["low"] < 1.2 * width

"""The first sentence of a study's page: ties, the gain over plain averaging, and what its numbers are called."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fednoise_core.report.headline import Headline, headline


def said(
    means: dict[str, dict[str, float]], datasets: dict[str, str] | None = None, given: tuple[str, ...] = ()
) -> Headline:
    """Of {noise: {method: mean}}, each with a standard deviation of 0.1; datasets: of a noise, else "d"."""
    rows = [
        {
            **{"dataset": (datasets or {}).get(noise, "d"), "noise": noise, "partition": "iid"},
            **{"method": method.lower(), "method_label": method, "marks": "", "ceiling": 0, "seeds": 3},
            **{"last_mean": mean, "last_std": 0.1},
        }
        for noise, methods in means.items()
        for method, mean in methods.items()
    ]
    found = headline([({"kind": "accuracy", "metric": "last"}, pd.DataFrame(rows))], "fedavg", given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("ties", "words"),
    [
        (("AB", "AB"), "In every setting A and B tie"),
        (("AB", "AC"), "In every setting A and others tie"),  # no tie of B and C anywhere
        (("AB", "CE"), "In every setting several methods tie"),
        (("ABCE", "ABCE"), "In every setting A and others tie"),  # more than a sentence names
    ],
)
def test_methods_are_said_to_tie_only_where_they_do(ties: tuple[str, str], words: str) -> None:
    means = {f"n{at}": {name: 90.0 if name in tie else 70.0 for name in "ABCE"} for at, tie in enumerate(ties)}
    assert words in said(means).sentence


def test_the_gain_over_plain_averaging_says_where_it_holds() -> None:
    ahead, behind = {"FedAvg": 80.0, "A": 85.0}, {"FedAvg": 80.0, "A": 70.0}
    assert "The best is 5.0 points above FedAvg." in said({"n1": ahead, "n2": ahead}).sentence
    mixed = said({"n1": ahead, "n2": behind}).sentence
    assert "Where FedAvg is not among the best, the best is 5.0 points above FedAvg." in mixed
    lost = {"FedAvg": math.nan, "A": 85.0, "B": 70.0}  # diverged
    words = "Where FedAvg has a mean and is not among the best, the best is 5.0 points above FedAvg."
    assert words in said({"n1": ahead, "n2": lost}).sentence


def test_numbers_are_called_agreement_only_where_all_are() -> None:
    means = {"n1": {"FedAvg": 80.0, "A": 85.0}, "n2": {"FedAvg": 80.0, "A": 85.0}}
    own = {"n1": "ours", "n2": "digits"}
    every = said(means, given=("d",))
    assert every.word == "agreement with given labels"
    assert "Agreement with given labels, last round" in every.sentence
    assert every.note == ""
    mixed = said(means, own, given=("ours",))
    assert mixed.word == "accuracy"
    assert mixed.sentence.endswith("In ours it is agreement with given labels.")
    assert "agreement" not in said(means, own).sentence

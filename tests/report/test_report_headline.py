"""The first sentence of a study's page: ties, the gain over plain averaging, and what its numbers are called."""

from __future__ import annotations

import math

import pandas as pd

from fednoise_core.report.pages.headline import Headline, make_headline


def said(
    means: dict[str, dict[str, float]],
    datasets: dict[str, str] | None = None,
    given: tuple[str, ...] = (),
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
    found = make_headline([({"kind": "accuracy", "metric": "last"}, pd.DataFrame(rows))], "fedavg", given)
    assert found is not None
    return found


def test_how_often_each_is_best_or_ties_and_the_gain_over_plain_averaging() -> None:
    means = {
        "n1": {"FedAvg": 80.0, "A": 85.0, "B": 85.0},
        "n2": {"FedAvg": 80.0, "A": 83.0},
        "n3": {"FedAvg": 9, "B": 2},
    }
    found = said(means)
    assert found.sentence == (
        "Best of 3 settings, alone or tied: A in 2, B in 1, FedAvg in 1. The best is 3.0 to 5.0 points above FedAvg in "
        "the 2 settings where FedAvg is not best. Accuracy, last round; n = 3 seeds."
    )
    assert [won.methods for won in found.rows] == [["A", "B"], ["A"], ["FedAvg"]]
    assert [won.lead for won in found.rows] == [5.0, 3.0, 7.0]
    one = {"n1": {"FedAvg": 80.0, "A": 85.0, "B": 82.0}}
    assert said(one).sentence.startswith("A leads at 85.0 ± 0.1\xa0%, 3.0 points above B, 5.0 above FedAvg. Accuracy")
    assert said({"n1": means["n1"]}).sentence.startswith("A, B tie at 85.0\xa0%, 5.0 points above FedAvg. Accuracy")
    lost = {"FedAvg": math.nan, "A": 85.0, "B": 70.0}  # diverged
    assert "FedAvg" not in said({"n1": lost}).sentence
    assert said({"n1": {"A": 85.0}}).sentence.startswith("Nothing is compared: ")


def test_a_poor_method_whose_seeds_lie_far_apart_does_not_tie() -> None:
    rows = [
        {
            **{"dataset": "d", "noise": "n", "partition": "iid", "method": name, "method_label": name, "marks": ""},
            **{"ceiling": 0, "seeds": 2, "last_mean": mean, "last_std": std},
        }
        for name, mean, std in (("A", 90.0, 0.5), ("B", 85.0, 0.5), ("C", 60.0, 36.0))
    ]
    found = make_headline([({"kind": "accuracy", "metric": "last"}, pd.DataFrame(rows))], "B")
    assert found is not None
    (won,) = found.rows
    assert (won.methods, won.next, won.lead, won.over) == (["A"], "B", 5.0, 5.0)
    assert found.sentence.startswith("A leads at 90.0 ± 0.5\xa0%, 5.0 points above B. ")


def test_numbers_without_trusted_test_labels_say_so() -> None:
    means = {"n1": {"FedAvg": 80.0, "A": 85.0}, "n2": {"FedAvg": 80.0, "A": 85.0}}
    own = {"n1": "ours", "n2": "digits"}
    assert "no trusted test labels of ours: accuracy there is agreement" in said(means, own, given=("ours",)).sentence
    assert "agreement" not in said(means, own).sentence

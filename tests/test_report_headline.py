"""The first sentence of a study's page: ties, the gain over plain averaging, and what its numbers are called."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fednoise_core.report.headline import Headline, headline


def said(
    means: dict[str, dict[str, float]],
    datasets: dict[str, str] | None = None,
    given: tuple[str, ...] = (),
    seeds: int = 3,
) -> Headline:
    """Of {noise: {method: mean}}, each with a standard deviation of 0.1; datasets: of a noise, else "d"."""
    rows = [
        {
            **{"dataset": (datasets or {}).get(noise, "d"), "noise": noise, "partition": "iid"},
            **{"method": method.lower(), "method_label": method, "marks": "", "ceiling": 0, "seeds": seeds},
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
        (("AB", "AC"), "several methods tie; A is among them every time."),  # B and C tie nowhere
        (("AB", "CE"), "In every setting several methods tie"),
        (("ABCE", "ABCE"), "In every setting A, B and 2 more tie"),  # more than a sentence names
        (("ABC", "ABC", "AB"), "several methods tie; A and B are among them every time, C 2 times."),
    ],
)
def test_methods_are_said_to_tie_only_where_they_do(ties: tuple[str, str], words: str) -> None:
    means = {f"n{at}": {name: 90.0 if name in tie else 70.0 for name in "ABCE"} for at, tie in enumerate(ties)}
    assert words in said(means).sentence


@pytest.mark.parametrize(("seeds", "verb"), [(1, "leads"), (2, "leads in the mean"), (3, "wins")])
def test_few_seeds_make_no_winner(seeds: int, verb: str) -> None:
    one = {"FedAvg": 80.0, "A": 85.0}
    assert f"A {verb} with 85.0 ± 0.1\xa0%, 5.0 points above FedAvg." in said({"n1": one}, seeds=seeds).sentence
    several = said({"n1": one, "n2": {**one, "A": 83.0}}, seeds=seeds).sentence
    where = f"{'' if seeds > 2 else 'in '}2 of 2 settings"
    assert several.startswith(f"A {verb} {where}, by 3.0 to 5.0 points over the next.")


def test_a_poor_method_whose_seeds_lie_far_apart_does_not_tie() -> None:
    rows = [
        {
            **{"dataset": "d", "noise": "n", "partition": "iid", "method": name, "method_label": name, "marks": ""},
            **{"ceiling": 0, "seeds": 2, "last_mean": mean, "last_std": std},
        }
        for name, mean, std in (("A", 90.0, 0.5), ("B", 85.0, 0.5), ("C", 60.0, 36.0))
    ]
    found = headline([({"kind": "accuracy", "metric": "last"}, pd.DataFrame(rows))], "B")
    assert found is not None
    (won,) = found.rows
    assert (won.methods, won.next, won.lead, won.over) == (["A"], "B", 5.0, 5.0)
    assert found.sentence.startswith("A leads in the mean with 90.0 ± 0.5\xa0%, 5.0 points above B.")


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

"""The first sentences of a study's page: how many pairs a method wins against FedAvg, and names of the numbers."""

import math
from pathlib import Path

import pandas as pd
import pytest
from fake_runs import write_study

from workflow_scripts.report.pages.headline import METRIC, Headline, headline_of, make_headline
from workflow_scripts.report.runs.ranking import leading_methods, paired_gains
from workflow_scripts.report.runs.run import listed_runs, load

MATCH = "runs with the same setting and seed"


def make_results(values: dict[str, dict[str, tuple[float, ...]]], marks: str = "") -> pd.DataFrame:
    """Tabulate {noise: {method: accuracies by seed}}. NaN: the run diverged. Methods in `marks` have the true rate."""
    return pd.DataFrame(
        {
            **{"dataset": "d", "noise": noise, "partition": "iid", "method": method.lower(), "method_label": method},
            **{"marks": "†" if method in marks else "", "as_told": False, "seed": seed, METRIC: value},
            **{"noiseless": noise == "clean", "diverged": math.isnan(value)},
        }
        for noise, methods in values.items()
        for method, by_seed in methods.items()
        for seed, value in enumerate(by_seed)
    )


def headline(values: dict[str, dict[str, tuple[float, ...]]], marks: str = "") -> Headline:
    return make_headline(make_results(values, marks), "fedavg")


TWO_NOISES = {
    "n1": {"FedAvg": (80.0, 70.0), "A": (85.0, 76.0), "B": (85.5, 69.0)},
    "n2": {"FedAvg": (80.0, 70.0), "A": (81.0, 72.0), "B": (82.0, 71.0)},
    "clean": {"FedAvg": (99.0, 99.0), "B": (90.0, 90.0)},
}


def test_pairs_won_against_plain_averaging() -> None:
    result = headline(TWO_NOISES)
    assert result.sentence == (
        f"A is above FedAvg in all 4 pairs of {MATCH}. The mean gain is +3.5 [−0.3, +7.3] points. "
        "Accuracy: mean of the last ten evaluations, n = 2 seeds."
    )
    first, second = result.rows
    assert (first.accuracy, first.gain, first.won) == ("80.5 ± 6.4", "+5.5", "2 of 2")
    assert first.methods == second.methods == ["A", "B", "FedAvg"]  # two pairs do not distinguish them
    clear = {"n": {"FedAvg": (80.0, 70.0, 75.0), "A": (82.0, 73.0, 77.5)}}
    assert headline(clear).sentence.startswith(
        f"A beats FedAvg in all 3 pairs of {MATCH}. The mean gain is +2.5 [+1.3, +3.7] p"
    )
    two_ahead = {"n1": {**TWO_NOISES["n1"], "B": (85.0, 71.0)}}
    assert headline(two_ahead).sentence.startswith(f"A and B are above FedAvg in both pairs of {MATCH}. The mean gains")
    none_ahead = {"n1": {"FedAvg": (80.0, 70.0), "A": (79.0, 76.0)}}
    assert headline(none_ahead).sentence.startswith(f"No method is above FedAvg in both pairs of {MATCH}. A comes")
    four_ahead = {"n1": {"FedAvg": (1.0,), "A": (2.0,), "B": (5.0,), "C": (4.0,), "D": (3.0,), "E": (0.0,)}}
    assert f"4 of 5 methods are above FedAvg in the only pair of {MATCH}. The" in headline(four_ahead).sentence
    assert "largest gains among these, in points: B (+4.0), C (+3.0) and D (+2.0)." in headline(four_ahead).sentence
    assert "The gain is +1.0 points." in headline({"n1": {"FedAvg": (1.0,), "A": (2.0,)}}).sentence


def test_methods_are_compared_with_the_baseline_of_the_same_net() -> None:
    values = {"n": {"FedAvg 8": (50.0,), "A 8": (54.0,), "FedAvg 16": (60.0,), "A 16": (59.0,)}}
    nets = {f"fedavg {width}": [f"fedavg {width}", f"a {width}"] for width in (8, 16)}
    result = make_headline(make_results(values), "fedavg 8", by_baseline=nets)
    assert result.sentence.startswith(
        f"A 8 is above FedAvg 8 in the only pair of {MATCH}. The gain is +4.0 points. "
        f"No method is above FedAvg 16 in the only pair of {MATCH}. Accuracy"
    )


def test_diverged_runs_lose_and_methods_with_the_true_rate_do_not_count() -> None:
    diverged = {"n1": {"FedAvg": (80.0, 80.0), "A": (85.0, math.nan), "B": (81.0, 82.0), "Oracle": (99.0, 99.0)}}
    result = headline(diverged, marks="Oracle")
    assert result.sentence.startswith("B is above FedAvg in ")
    assert result.rows[0].methods == ["B", "FedAvg"]
    gains = paired_gains(make_results(diverged), METRIC, "fedavg").set_index(["method", "seed"])["gain"]
    assert (gains["a", 0], gains["a", 1], gains["b", 1]) == (5.0, -math.inf, 2.0)
    no_baseline = {"n1": {"FedAvg": (math.nan,), "A": (85.0,), "B": (70.0,)}}
    lead = "ahead of all others beyond the interval of paired differences"
    assert headline(no_baseline).sentence.startswith(f"No method is {lead}.")
    no_baseline = {"n1": {"FedAvg": (math.nan, math.nan), "A": (85.0, 85.0), "B": (70.0, 70.1)}}
    assert headline(no_baseline).sentence.startswith(f"Of 1 settings, {lead}: A in 1. ")
    assert headline({"n1": {"A": (85.0,)}}).sentence.startswith("Mean accuracy: A 85.0\xa0%. Accuracy: ")
    alone = headline({"n1": {"A": (85.0, 86.0)}, "n2": {"A": (60.0, 61.0)}}).sentence
    assert alone.startswith("Mean accuracy: A 60.5 to 85.5\xa0% in 2 settings. ")


@pytest.mark.parametrize(
    ("second", "ahead"),
    [
        ((79.9, 59.9), ["a"]),
        ((80.0, 50.0), ["a", "b"]),  # level with one seed
        ((95.0, 10.0), ["a", "b"]),  # ahead with one seed
        ((79.0, 55.0), ["a", "b"]),  # behind with both, and the interval of two such differences has zero in it
        ((10.0,), ["a", "b"]),  # one pair has no interval
        ((math.nan, 90.0), []),  # one method alone is not the best
        ((), []),  # no seed in common
    ],
)
def test_a_method_leads_if_the_interval_of_its_pairs_is_above_zero(second: tuple[float, ...], ahead: list[str]) -> None:
    assert leading_methods(make_results({"n": {"A": (80.0, 60.0), "B": second}}), METRIC) == ahead


def test_a_pair_without_the_baselines_accuracy_does_not_count() -> None:
    values = {"n": {"FedAvg": (80.0, math.nan, 80.0), "A": (81.0, 10.0, 82.0)}}
    assert headline(values).sentence.startswith(f"A is above FedAvg in both pairs of {MATCH}. The mean gain is +1.5")


def test_numbers_without_trusted_test_labels_say_so() -> None:
    result = make_headline(make_results(TWO_NOISES), "fedavg", untrusted=("d",))
    assert "no trusted test labels of d: accuracy there is agreement" in result.sentence
    assert "agreement" not in make_headline(make_results(TWO_NOISES), "fedavg", untrusted=("other",)).sentence


def test_a_label_study_begins_with_the_number_of_wrong_labels(tmp_path: Path) -> None:
    grid = [{"noises": ["as-given"], "partitions": ["iid"], "methods": ["fedavg"]}]
    write_study(tmp_path, grid=grid, rounds=3, seeds=(0,), clean_known=False)
    runs = load(listed_runs(tmp_path / "runs.json"))
    head = "client,site,samples,wrong,wrong_low,wrong_high,share,verdict_wrong,verdict_check,estimated\n"
    rows = "0,north,1000,90.0,70.0,110.0,0.09,80,9,1\n1,south,500,40.0,0.0,90.0,0.08,31,4,0\n"
    (runs[0].listed.dir / "sites.csv").write_text(head + rows, encoding="utf-8")
    assert headline_of(runs).sentence.startswith(
        "FedAvg finds 111 of 1,500 labels at 2 sites probably wrong, and 13 more to check. "
        "How many are wrong in all cannot be estimated at 1 of 2 sites. Mean accuracy: FedAvg "
    )
    (runs[0].listed.dir / "sites.csv").write_text(head, encoding="utf-8")
    assert headline_of(runs).sentence.startswith("Mean accuracy: FedAvg ")

"""Diagnostics against numbers worked out by hand: two clients of four samples, three classes."""

import math

import numpy as np
import pytest

from fednoise_core.engine.truth import Truth, auroc
from fednoise_core.label_errors.estimate import SiteLabels

CLEAN = np.array([0, 0, 1, 1, 2, 2, 0, 1, 2])
GIVEN = np.array([0, 1, 1, 1, 2, 0, 2, 1, 1])  # wrong: 1, 5, 6 and 8 (which nobody holds)
ROWS = [np.array([0, 1, 2, 3]), np.array([4, 5, 6, 7]), np.zeros(0, int)]


def truth(clean: np.ndarray | None = CLEAN, **options) -> Truth:
    return Truth(clean, GIVEN, ROWS, 3, **options)


def named(rows) -> dict:
    return {(client, metric): value for _, client, metric, value in rows}


def test_auroc_by_hand():
    assert auroc([1, 2, 3, 4], [0, 0, 1, 1]) == 1.0
    assert auroc([4, 3, 2, 1], [0, 0, 1, 1]) == 0.0
    assert auroc([1, 1, 1, 1], [0, 1, 0, 1]) == 0.5
    assert auroc([1, 2, 2, 3], [0, 1, 0, 1]) == pytest.approx(0.875)  # 3.5 of 4 pairs
    assert math.isnan(auroc([1, 2], [1, 1]))
    assert math.isnan(auroc([], []))


def test_noise_rate_per_client_and_over_held_samples():
    rates = named(truth().label_noise(7))
    assert rates[-1, "noise_rate"] == 3 / 8  # the sample that nobody holds does not count
    assert rates[0, "noise_rate"] == 1 / 4
    assert rates[1, "noise_rate"] == 2 / 4
    assert math.isnan(rates[2, "noise_rate"])
    assert {row[0] for row in truth().label_noise(7)} == {7}


def test_noise_rate_of_targets_after_relabelling():
    targets = {1: np.array([2, 2, 0, 0])}  # two corrected, one spoilt
    rates = named(truth().target_noise(3, targets))
    assert rates == {(-1, "target_noise_rate"): 2 / 8, (1, "target_noise_rate"): 1 / 4}
    soft = {1: np.eye(3)[[2, 2, 0, 0]] * 0.8 + 0.05}
    assert named(truth().target_noise(3, soft)) == rates
    assert truth().target_noise(3, {}) == []


def judged(samples, p_wrong):
    none = np.zeros(len(samples), np.int64)
    return SiteLabels(0, np.asarray(samples), np.asarray(p_wrong), none, none * 0.0, 0.0, 0.0, 0.0)


def test_precision_and_recall_of_suspects():
    sample = np.array([0, 1, 2, 4, 5, 6])
    p_wrong = np.array([0.9, 0.8, 0.1, 0.5, 0.2, 0.7])  # names 0, 1, 6; wrong are 1, 5, 6
    scores = named(truth().suspects(2, [judged(sample[:2], p_wrong[:2]), judged(sample[2:], p_wrong[2:])]))
    assert scores[-1, "suspects_precision"] == pytest.approx(2 / 3)
    assert scores[-1, "suspects_recall"] == pytest.approx(2 / 3)
    # pairs (wrong, right): .8 beats .1 and .5; .2 beats .1; .7 beats .1 and .5: five of nine
    assert scores[-1, "suspects_auroc"] == pytest.approx(5 / 9)
    nobody = named(truth().suspects(2, [judged([0, 1], [0.1, 0.2])]))
    assert math.isnan(nobody[-1, "suspects_precision"])
    assert nobody[-1, "suspects_recall"] == 0.0


def test_detection_of_noisy_clients_ignores_the_empty_one():
    scores = named(
        truth(np.where(np.arange(9) < 4, GIVEN, CLEAN)).estimates(1, {"client_noise": {0: 0.2, 1: 0.7, 2: 9.0}})
    )
    assert scores == {(-1, "noisy_client_auroc"): 1.0}
    all_noisy = named(truth().estimates(1, {"client_noise": {0: 0.2, 1: 0.7}}))
    assert math.isnan(all_noisy[-1, "noisy_client_auroc"])


def test_error_of_the_label_prior():
    """Held given labels: 0, 1, 1, 1 and 2, 0, 2, 1: shares 2/8, 4/8, 2/8."""
    scores = named(truth().estimates(1, {"label_prior": np.array([0.5, 0.25, 0.25])}))
    assert scores == {(-1, "prior_error"): pytest.approx(0.5)}


def test_error_of_a_transition_matrix():
    """Realised rows over held samples: 0 -> (1, 1, 1)/3, 1 -> (0, 1, 0), 2 -> (1, 0, 1)/2."""
    scores = named(truth().estimates(1, {"transition": np.eye(3)}))
    assert scores[-1, "T_error"] == pytest.approx((2 / 3 + 0 + 1 / 2) / 3)
    per_client = named(truth().estimates(1, {"transition": {0: np.eye(3), 1: np.eye(3)}}))
    assert per_client[0, "T_error"] == pytest.approx((1 / 2 + 0) / 2)  # class 2 is absent there
    assert per_client[1, "T_error"] == pytest.approx((1 + 0 + 1 / 2) / 3)
    assert per_client[-1, "T_error"] == pytest.approx((1 / 4 + 1 / 2) / 2)


def test_samples_with_foreign_images_are_wrong_whatever_their_label():
    replaced = np.array([0, 1])
    rates = named(truth(foreign=replaced).label_noise(0))
    assert rates[0, "noise_rate"] == 2 / 4
    assert named(truth(foreign=replaced).target_noise(1, {0: CLEAN[:4]}))[0, "target_noise_rate"] == 2 / 4
    assert CLEAN[0] == 0  # the labels passed in are not changed
    # they say nothing about T: on client 0 only class 1 is left, and it is clean
    assert named(truth(foreign=replaced).estimates(1, {"transition": {0: np.eye(3)}}))[0, "T_error"] == 0.0
    nothing = named(truth(foreign=np.arange(9)).estimates(1, {"transition": {0: np.eye(3)}}))
    assert math.isnan(nothing[0, "T_error"])


def test_without_clean_labels_everything_is_unknown_but_the_prior():
    unknown = truth(None)
    assert all(math.isnan(value) for value in named(unknown.label_noise(0)).values())
    assert all(math.isnan(value) for value in named(unknown.target_noise(0, {0: GIVEN[:4]})).values())
    assert all(math.isnan(v) for v in named(unknown.suspects(0, [judged([0], [0.9])])).values())
    estimates = {"client_noise": {0: 1.0}, "transition": np.eye(3), "label_prior": np.array([0.25, 0.5, 0.25])}
    scores = named(unknown.estimates(0, estimates))
    assert math.isnan(scores[-1, "noisy_client_auroc"])
    assert math.isnan(scores[-1, "T_error"])
    assert scores[-1, "prior_error"] == pytest.approx(0.0)


def test_cosine_of_an_estimated_transition():
    """Yu et al. (2025), Figure 2: cos(vec T_hat, vec T) over the rows of classes present."""
    clean, labels = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 1])  # T = [[3/4, 1/4], [0, 1]]
    truth = Truth(clean, labels, [np.arange(4), np.arange(4, 6)], 2)

    def cosine(T):
        return {c: v for _, c, name, v in truth.estimates(1, {"transition": T}) if name == "T_cosine"}

    assert cosine(np.array([[0.75, 0.25], [0.0, 1.0]]))[-1] == pytest.approx(1)
    assert cosine(np.eye(2))[-1] == pytest.approx(1.75 / math.sqrt(2 * (0.75**2 + 0.25**2 + 1)))
    first, second = np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([[0.0, 1.0], [1.0, 0.0]])  # each lacks a class
    assert cosine({0: first, 1: second}) == {0: pytest.approx(1), 1: pytest.approx(0), -1: pytest.approx(0.5)}

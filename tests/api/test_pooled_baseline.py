"""The list of plain FedAvg against cleanlab on the pooled data, with cross-validated predictions of the same net."""

import numpy as np
import pytest
import torch
from cleanlab.rank import get_label_quality_scores

import fednoise_core as fn
from fednoise_core.api.simulate import FinishedRun
from fednoise_core.data.arrays import Arrays
from fednoise_core.engine.truth import auroc

TRAIN = {"net": {"name": "mlp", "hidden": 32}, "rounds": 20, "fraction": 1.0, "epochs": 1, "batch": 16, "lr": 0.05}
SITES, FOLDS = 4, 5


@pytest.fixture(scope="module")
def noisy_digits() -> tuple[Arrays, np.ndarray]:
    """(digits at four sites, mask of the wrong labels). Wrong are: none, a tenth, a fifth (the next digit), a third."""
    digits = fn.dataset({"source": "digits", "public": 0})
    draw = np.random.default_rng(3)
    site = np.arange(digits.n) % SITES
    labels = digits.y_train.copy()
    chance = np.array([0.0, 0.1, 0.2, 0.33])[site]
    wrong = draw.random(digits.n) < chance
    away = np.where(site == 2, 1, draw.integers(1, 10, digits.n))
    labels[wrong] = (labels + away)[wrong] % 10
    data = Arrays(
        *(digits.x_train, labels, digits.x_test, digits.y_test),
        **{"classes": 10, "mean": digits.mean, "std": digits.std, "client": site, "clean_known": False},
    )
    return data, wrong


@pytest.fixture(scope="module")
def ours(noisy_digits: tuple[Arrays, np.ndarray]) -> FinishedRun:
    data = noisy_digits[0]
    labels = fn.inject(data, {"kind": "given"}, seed=0)
    return fn.run(data, labels, fn.partition_of(data, {"kind": "natural"}, seed=0), "fedavg", TRAIN, seed=0)


def cross_validated(data: Arrays) -> np.ndarray:
    """Probabilities [n, K] of nets that never saw the sample, trained on the pooled data with as many passes."""
    fold, p = np.random.default_rng(0).permutation(np.arange(data.n) % FOLDS), np.zeros((data.n, 10))
    for k in range(FOLDS):
        part = data.take(np.flatnonzero(fold != k))
        labels = fn.inject(part, {"kind": "given"}, seed=0)
        all_in_one = fn.partition_of(part, {"kind": "iid", "clients": 1}, seed=0)
        run = fn.run(part, labels, all_in_one, "centralised", TRAIN, seed=0)
        model = next(run.outcome.models())[1][0]
        x = (torch.from_numpy(data.x_train[fold == k]).float()[:, None] / 255 - data.mean[0]) / data.std[0]
        with torch.no_grad():
            p[fold == k] = torch.softmax(run.outcome.fed.net().predict(model, x).double(), -1).numpy()
    return p


def test_the_ranking_is_at_or_above_cleanlab_on_the_pooled_data(
    noisy_digits: tuple[Arrays, np.ndarray], ours: FinishedRun
) -> None:
    data, wrong = noisy_digits
    p = cross_validated(data)
    theirs = 1 - get_label_quality_scores(data.y_train, p, method="normalized_margin")
    score = np.zeros(data.n)
    for site in ours.outcome.suspects:
        score[site.samples] = site.p_wrong
    assert auroc(score, wrong) >= auroc(theirs, wrong) > 0.9


def test_the_number_named_at_each_site_is_near_the_number_wrong(
    noisy_digits: tuple[Arrays, np.ndarray], ours: FinishedRun
) -> None:
    """Within a factor of 1.5, or two points of the site."""
    _, wrong = noisy_digits
    for site in ours.outcome.suspects:
        there, n = int(wrong[site.samples].sum()), len(site.samples)
        for count in (site.wrong, int((site.p_wrong > 0.5).sum())):
            assert abs(count - there) <= 0.02 * n or there / 1.5 <= count <= 1.5 * there, (site.site, count, there)
        assert site.low <= there <= site.high

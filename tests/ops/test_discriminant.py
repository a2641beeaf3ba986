"""A linear discriminant from sums: that of scikit-learn, and the ridge that cross-validation finds."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from fednoise_core.ops.discriminant import GRID, choose_ridge, fit_discriminant, sum_classes


def make_features(n: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, n)
    features = draw.normal(2, 1, (n, width)) * np.linspace(0.1, 3, width)
    features[np.arange(n), labels] += 1
    return torch.from_numpy(features), torch.from_numpy(labels)


def test_the_discriminant_is_that_of_scikit_learn() -> None:
    features, labels = make_features(400, 6)
    halves = [sum_classes(features[half::2], labels[half::2], 3) for half in (0, 1)]
    sums = {name: halves[0][name] + halves[1][name] for name in halves[0]}
    weight, bias = fit_discriminant(sums, 0.0)
    priors = (labels.bincount().numpy() + 1) / 403
    expected = LinearDiscriminantAnalysis(solver="lsqr", priors=priors).fit(features, labels).predict_proba(features)
    np.testing.assert_allclose(torch.softmax(features @ weight.T + bias, 1), expected, atol=1e-3)


@pytest.mark.parametrize(("n", "width"), [(60, 40), (600, 6)])
def test_the_ridge_is_the_best_on_held_out_folds(n: int, width: int) -> None:
    features, labels = make_features(n, width)
    fold, targets = torch.arange(n) % 5, np.eye(3)[labels]
    chosen = choose_ridge([sum_classes(features[fold == k], labels[fold == k], 3) for k in range(5)])
    x = (features - features.mean(0)).numpy()
    targets -= targets.mean(0)
    ridges = np.array(GRID) * (x**2).mean()
    errors = [
        sum(
            ((Ridge(ridge * (fold != k).sum().item(), fit_intercept=False).fit(x[fold != k], targets[fold != k])
              .predict(x[fold == k]) - targets[fold == k]) ** 2).sum()
            for k in range(5)
        )
        for ridge in ridges
    ]  # fmt: skip
    assert chosen == pytest.approx(ridges[np.argmin(errors)])

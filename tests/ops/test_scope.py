"""Out-of-scope samples: distances as scikit-learn finds them, and a list that is not worse than cleanlab's."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cleanlab.outlier import OutOfDistribution
from scipy.ndimage import gaussian_filter
from sklearn.metrics import precision_recall_curve
from sklearn.neighbors import NearestNeighbors

import fednoise_core as fn
from fednoise_core.data.arrays import Arrays
from fednoise_core.label_errors import scope
from fednoise_core.label_errors.scope import find_near_copies, measure_distances, score_scope


@pytest.mark.parametrize("width", [2, 8])
def test_distances_are_the_mean_to_the_nearest_others(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "CHUNK", 17)
    points = np.random.default_rng(0).normal(1, 1, (60, width))
    points[7] = points[8]  # an equal sample is a neighbour, the sample itself is not
    compared = points / np.linalg.norm(points, axis=1, keepdims=True) if width > 3 else points
    labels = np.arange(60) % 3
    labels[7:10] = 0, 1, -1
    mean, nearest, _ = measure_distances(torch.from_numpy(points), torch.from_numpy(labels), 3)
    expected = NearestNeighbors(n_neighbors=scope.NEIGHBOURS).fit(compared).kneighbors()[0].mean(1)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    for row in range(60):
        others = compared[(labels != labels[row]) & (labels >= 0)]
        closest = np.linalg.norm(others - compared[row], axis=1).min() if labels[row] >= 0 else np.inf
        assert nearest[row] == pytest.approx(closest, abs=1e-6)


def test_the_nearest_others_vote() -> None:
    points, labels = np.random.default_rng(0).normal(0, 1, (60, 2)), np.arange(60) % 3
    labels[9] = -1
    votes = measure_distances(torch.from_numpy(points), torch.from_numpy(labels), 3)[2]
    neighbours = NearestNeighbors(n_neighbors=scope.NEIGHBOURS).fit(points).kneighbors()[1]
    counts = np.stack([(labels[neighbours] == k).sum(1) for k in range(3)], 1) + 1 / 3
    np.testing.assert_allclose(votes, counts / counts.sum(1, keepdims=True))


def test_a_large_client_compares_with_a_part_of_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "COMPARED", 150)
    points = np.random.default_rng(0).normal(0, 1, (301, 3))
    distances, *_ = measure_distances(torch.from_numpy(points), torch.arange(301), 301)
    for sample in (0, 3, 10, 300):
        others = [row for row in range(0, 301, 3) if row != sample]
        nearest = np.sort(np.linalg.norm(points[others] - points[sample], axis=1))[: scope.NEIGHBOURS]
        assert distances[sample] == pytest.approx(nearest.mean())
    alone, nearest, _ = measure_distances(torch.ones(1, 8), torch.zeros(1, dtype=torch.int64), 1)
    assert (alone.item(), nearest.item()) == (0.0, np.inf)
    assert score_scope(torch.ones(0), torch.ones(0, 3)).tolist() == []


def test_a_score_is_high_only_where_a_sample_is_far_and_the_models_are_unsure() -> None:
    sure, unsure = [1.0, 0.0], [0.5, 0.5]
    scores = score_scope(torch.tensor([3.0, 3.0, 1.0, 1.0, 1.0]), torch.tensor([unsure, sure, unsure, sure, sure]))
    assert scores.tolist() == pytest.approx([3.0, 0.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("width", [2, 6, 64])
def test_few_samples_are_near_copies_by_chance(width: int) -> None:
    points = np.random.default_rng(0).normal(3, 1, (400, width))
    points[0] = points[1] * 1.00001
    mean, nearest, _ = measure_distances(torch.from_numpy(points), torch.arange(400) % 2, 2)
    copies = torch.where(find_near_copies(mean, nearest, width))[0].tolist()
    assert {0, 1} <= set(copies)
    assert len(copies) <= 4


@dataclass(frozen=True)
class Case:
    """Data with errors. strange, copied: bool [n], images of no class, and pairs of near copies. site int [n]."""

    data: Arrays
    strange: np.ndarray
    copied: np.ndarray
    site: np.ndarray


def spoil_digits(seed: int) -> Case:
    """Digits with a tenth of the labels wrong, 5 % of the images noise or textures, and 30 pairs of near copies."""
    data, draw = fn.dataset({"source": "digits"}), np.random.default_rng(seed)
    images, labels, site = np.array(data.x_train), data.y_train.copy(), np.arange(data.n) % 3
    strange, wrong, copies, originals, _ = np.split(draw.permutation(data.n), [80, 230, 260, 290])
    labels[wrong] = (labels[wrong] + draw.integers(1, 10, len(wrong))) % 10
    noise, texture = draw.integers(0, 256, (40, 8, 8)), gaussian_filter(draw.normal(0, 1, (40, 8, 8)), (0, 1.5, 1.5))
    images[strange] = np.concatenate([noise, 255 * (texture - texture.min()) / np.ptp(texture)])
    images[copies] = 0.9 * images[originals]  # a little darker, and labelled differently
    labels[copies], site[copies] = (labels[originals] + 1) % 10, site[originals]
    data = dataclasses.replace(data, x_train=images, y_train=labels, clean_known=False)
    rows = np.arange(data.n)
    return Case(data, np.isin(rows, strange), np.isin(rows, [*copies, *originals]), site)


def recall_at(score: np.ndarray, truth: np.ndarray, precision: float) -> float:
    """The largest recall at this precision or a higher one."""
    reached, recall, _ = precision_recall_curve(truth, score)
    return float(recall[reached >= precision].max())


@pytest.mark.parametrize("seed", [0, 1])
def test_strange_images_are_found_not_worse_than_by_cleanlab_and_near_copies_too(seed: int) -> None:
    """cleanlab has the features of one of the models, on all data in one place."""
    case = spoil_digits(seed)
    split = fn.Partition.from_parts([np.flatnonzero(case.site == site) for site in range(3)], {"artifact": "partition"})
    train = {"net": "mlp", "rounds": 8, "fraction": 1.0, "epochs": 2, "lr": 0.05, "momentum": 0.9, "eval_every": 1000}
    run = fn.run(case.data, case.data.y_train, split, "cross_fitted", train, seed=seed, progress=False)
    score, copies = np.zeros(case.data.n), np.zeros(case.data.n, bool)
    for site in run.outcome.suspects:
        score[site.samples], copies[site.samples] = site.columns["out_of_scope"], site.columns["near_copy"]
    fed, model = run.outcome.fed, run.outcome.state.server["models"][0]
    features = fed.world.evaluate(fed.net(0), model, fed.world.pool("train"), torch.arange(case.data.n), "features")
    pooled = -OutOfDistribution().fit_score(features=features.numpy(), verbose=False)
    recalls = [[recall_at(ranking, case.strange, p) for p in (0.5, 0.6, 0.7, 0.8, 0.9)] for ranking in (score, pooled)]
    assert (np.array(recalls[0]) >= recalls[1]).all()
    assert recalls[0][2] > 0.9
    assert case.strange[score > scope.FAR].mean() > 0.9
    assert copies[case.copied].mean() > 0.9
    assert case.copied[copies].mean() > 0.9

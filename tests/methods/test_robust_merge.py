"""Median, trimmed mean, Krum and RFA: by hand and against naive formulas."""

import itertools

import numpy as np
import pytest
import scipy.stats
import torch
import toy

from fednoise_core.methods import robust_merge
from fednoise_core.ops.weights import Entry, Layout, Weights

NAMES = ("median", "trimmed_mean", "krum", "rfa")
LAYOUT = Layout([Entry("weight", (4, 2)), Entry("stat", (2,), "stat")])


def drawn(count: int, seed: int = 0) -> list[Weights]:
    draw = torch.Generator().manual_seed(seed)
    return [Weights(LAYOUT, torch.randn(LAYOUT.size, generator=draw)) for _ in range(count)]


def merged(name: str, models: list[Weights], start: Weights | None = None, **fields) -> torch.Tensor:
    """The server's model after a merge of these models, sent by the first clients with samples."""
    fed, method, state = toy.started(name, fields)
    state.server["model"] = start or models[0].like(torch.zeros(LAYOUT.size))
    method.merge_updates(fed, state, fed.all[: len(models)], [{"model": w} for w in models])
    return state.server["model"].flat


def flats(models: list[Weights]) -> np.ndarray:
    return np.stack([w.flat.double().numpy() for w in models])


@pytest.fixture(params=[1 << 20, 3])
def chunks(request, monkeypatch):
    """All coordinates at once, and in pieces that end inside a tensor."""
    monkeypatch.setattr(robust_merge, "CHUNK", request.param)


@pytest.mark.parametrize("count", range(1, 8))
def test_median_of_each_coordinate(count, chunks):
    models = drawn(count)
    np.testing.assert_allclose(merged("median", models), np.median(flats(models), 0), atol=1e-6)


@pytest.mark.parametrize(("count", "trim"), [(n, t) for n in range(1, 8) for t in (0.0, 0.2, 0.25, 0.4, 0.49)])
def test_trimmed_mean_of_each_coordinate(count, trim, chunks):
    models = drawn(count)
    expected = scipy.stats.trim_mean(flats(models), trim + 1e-9, axis=0)
    np.testing.assert_allclose(merged("trimmed_mean", models, trim=trim), expected, atol=1e-6)


def naive_krum(points: np.ndarray, f: int) -> list[int]:
    """Client numbers, best first, by the definition."""
    n, scores = len(points), []
    for i in range(n):
        apart = sorted(((points[i] - points[j]) ** 2).sum() for j in range(n) if j != i)
        scores.append(sum(apart[: max(n - f - 2, 1)]))
    return np.argsort(scores, kind="stable").tolist()


@pytest.mark.parametrize("average", [1, 3, 0, 99])
@pytest.mark.parametrize(("count", "faulty"), [(7, 0.0), (7, 0.2), (7, 0.45), (5, 0.2), (3, 0.4), (2, 0.2), (1, 0.2)])
def test_krum_by_its_definition(count, faulty, average, chunks):
    """Distances are those of trained numbers; the models taken are averaged as they are, with their statistics."""
    f, start = int(faulty * count + 1e-9), drawn(1, 99)[0]
    for seed in range(8):  # one neighbour more or less often has the same order
        models = drawn(count, seed)
        best = naive_krum(flats(models)[:, : LAYOUT.trained], f)[: average or count - f]
        expected = flats(models)[best].mean(0)
        np.testing.assert_allclose(merged("krum", models, start, faulty=faulty, average=average), expected, atol=1e-6)


def geometric(models: list[Weights], shares: np.ndarray, steps: int, nu: float) -> np.ndarray:
    """Smoothed Weiszfeld on the points themselves; distances over the trained numbers."""
    points = flats(models)
    z = (shares[:, None] * points).sum(0) / shares.sum()
    for _ in range(steps):
        apart = np.linalg.norm((points - z)[:, : LAYOUT.trained], axis=1)
        b = shares / np.maximum(nu, apart)
        z = (b[:, None] * points).sum(0) / b.sum()
    return z


@pytest.mark.parametrize(
    ("count", "steps", "nu"), [*itertools.product((1, 2, 3, 7), (0, 1, 3, 50), (1e-6,)), (7, 3, 1.5)]
)
def test_rfa_against_weiszfeld_on_the_models(count, steps, nu, chunks):
    models, start = drawn(count), drawn(1, 9)[0]
    shares = np.array([17, 1, 12, 9, 14, 11, 8], float)[:count]
    model = merged("rfa", models, start, iterations=steps, nu=nu)
    np.testing.assert_allclose(model, geometric(models, shares, steps, nu), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_one_wild_model_is_overruled(name):
    """One of seven models is far off. The mean follows it, and no robust merge does."""
    models = drawn(7)
    models[2] = models[2].like(models[2].flat + 1e4)
    honest = torch.from_numpy(np.delete(flats(models), 2, 0).mean(0)).float()
    assert (merged("fedavg", models, weighting="uniform") - honest).abs().max() > 1000
    fields = {"weighting": "uniform", "iterations": 20} if name == "rfa" else {}
    assert (merged(name, models, **fields) - honest).abs().max() < 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 5])
def test_equal_models_stay_as_they_are(name, count):
    models = [w.clone() for w in drawn(1) * count]
    torch.testing.assert_close(merged(name, models, models[0].clone()), models[0].flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_servers_step_is_fedavgs(name):
    """The server's rate does not scale statistics."""
    models = drawn(5)
    full, half = merged(name, models), merged(name, models, server_lr=0.5)
    torch.testing.assert_close(half[: LAYOUT.trained], full[: LAYOUT.trained] / 2, rtol=0, atol=1e-6)
    assert torch.equal(half[LAYOUT.trained :], full[LAYOUT.trained :])

"""M-DYR: its mixture and its loss against second implementations."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
import toy
from torch.nn import functional as F

from fednoise_core.engine.local import Batch
from fednoise_core.methods import make_method
from fednoise_core.methods.mdyr import wrong_posterior
from fednoise_core.ops.stats import beta_from_uniform
from fednoise_core.settings.train import Train


def posterior_by_loops(loss):
    """Sample by sample, with the densities of scipy.stats."""
    low, high = np.percentile(loss, 5), np.percentile(loss, 95)

    def scale(value):
        return min(max((value - (low + 1e-5)) / (high - low), 1e-3), 1 - 1e-3)

    scaled = [scale(value) for value in loss if low <= value <= high]
    parameters = [(1.0, 2.0, 0.5), (2.0, 1.0, 0.5)]
    for _ in range(10):
        shares = [[max(w * scipy.stats.beta.pdf(x, a, b), 1e-12) for a, b, w in parameters] for x in scaled]
        shares = [[density / sum(pair) for density in pair] for pair in shares]
        parameters = []
        for k in (0, 1):
            weights = [pair[k] for pair in shares]
            mean = np.average(scaled, weights=weights)
            variance = np.average((np.array(scaled) - mean) ** 2, weights=weights)
            a = mean * (mean * (1 - mean) / variance - 1)
            parameters.append((a, a * (1 - mean) / mean, sum(weights) / len(scaled)))

    def posterior(x):
        first, second = (w * scipy.stats.beta.pdf(x, a, b) for a, b, w in parameters)
        return second / (first + second + 1e-12)

    table = [posterior(x) for x in np.linspace(1e-12, 1 - 1e-12, 100)]
    top = int(np.argmax(table))
    table = [max(table) if k >= top else p for k, p in enumerate(table)]
    return [min(max(table[int(100 * scale(value))], 1e-4), 1 - 1e-4) for value in loss]


@pytest.mark.parametrize("seed", range(3))
def test_the_mixture_against_a_second_implementation(seed):
    draw = np.random.default_rng(seed)
    loss = np.concatenate([draw.gamma(1.0, 0.3, 150), draw.normal(3.0, 0.6, 80)])
    posterior = wrong_posterior(loss)
    np.testing.assert_allclose(posterior, posterior_by_loops(loss), rtol=1e-6)
    assert posterior[:150].mean() < 0.3 < 0.7 < posterior[150:].mean()


@pytest.mark.parametrize(
    "loss", [[], [1.0], [2.0] * 9, [0.0, 1.0], [0.0] * 8 + [1.0] * 8, [0.0] * 30 + [1e30], [0.0, 1.0, np.inf]]
)
def test_degenerate_losses_give_numbers(loss):
    posterior = wrong_posterior(np.array(loss))
    assert posterior.shape == (len(loss),)
    assert ((posterior >= 1e-4) & (posterior <= 1 - 1e-4)).all()


@pytest.mark.parametrize("bootstrap", ["hard", "soft", "soft_to_hard"])
def test_the_loss_by_hand(bootstrap):
    """The four terms one by one, as the authors write them; softmax regression mixes logits as images."""
    net = toy.toy_net(toy.linear_body)
    draw = torch.Generator().manual_seed(2)
    w = net.fresh(draw)
    x, y, u = torch.rand(7, 1, 8, 8, generator=draw), torch.arange(7) % 5, torch.rand(7, 2, generator=draw)
    b = torch.rand(7, generator=draw)
    method = make_method({"name": "mdyr", "bootstrap": bootstrap, "prior_weight": 0.3, "alpha": 2.0}, Train())
    batch = Batch([x], y, torch.arange(7), u, torch.zeros(7, 0), {"wrong": b})
    loss = method.compute_objective(net, w, batch, {"bootstrap": True, "temperature": 0.3}, {})
    lam, order = float(beta_from_uniform(u[:1, 0], 2.0)), sorted(range(7), key=lambda k: float(u[k, 1]))
    logits = x.flatten(1) @ w["head.weight"].T + w["head.bias"]
    mixed = lam * logits + (1 - lam) * logits[order]
    if bootstrap == "soft_to_hard":
        lam = 0.5
        pairs = [((1 - b[i]) * logits[i] + (1 - b[j]) * logits[j]) / (2 - b[i] - b[j]) for i, j in enumerate(order)]
        mixed = torch.stack(pairs)
    total = 0.0
    for i, j in enumerate(order):
        for share, k in ((lam, i), (1 - lam, j)):
            label_loss = F.cross_entropy(mixed[i], y[k])
            soft = (logits[k] / (0.3 if bootstrap == "soft_to_hard" else 1)).softmax(0)
            guess = F.cross_entropy(mixed[i], soft.argmax() if bootstrap == "hard" else soft)
            total += share * ((1 - b[k]) * label_loss + b[k] * guess) / 7
    mean = mixed.softmax(1).mean(0)
    total += 0.3 * sum(0.2 * torch.log(0.2 / p) for p in mean)
    assert loss.item() == pytest.approx(float(total), rel=1e-5)


def test_the_temperature_falls_as_in_fednoisy():
    """Its list is `linspace(1, 0.001, 200/300 of the rounds less the warm-up)`, its last value for all later rounds."""
    method = make_method({"name": "mdyr", "bootstrap": "soft_to_hard", "warmup": 10}, Train(rounds=40))
    states = [SimpleNamespace(round=round, server={"model": {}}) for round in range(1, 41)]
    broadcasts = [method.make_broadcast(None, state) for state in states]
    listed = np.linspace(1, 0.001, 26 - 10)
    for number, broadcast in enumerate(broadcasts):
        assert broadcast["bootstrap"] == (number >= 10)
        assert broadcast["temperature"] == pytest.approx(listed[min(max(number - 10, 0), 15)])

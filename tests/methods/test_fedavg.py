"""FedAvg and SCE: identities of methods.md 5.1 and 5.12."""

from __future__ import annotations

import pytest
import torch
import toy
from torch import nn

from fednoise_core.engine.state import State
from fednoise_core.methods import make
from fednoise_core.rng import torch_stream
from fednoise_core.tree import Weights

ALONE = (30,)


def perceptron(w: Weights) -> nn.Sequential:
    """The toy's net as a torch module with these weights."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 5))
    with torch.no_grad():
        for mine, name in zip(
            module.parameters(), ("hidden.weight", "hidden.bias", "head.weight", "head.bias"), strict=True
        ):
            mine.copy_(w[name])
    return module


def numbers_of(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.5, 0.01)])
def test_one_client_is_plain_sgd_bit_for_bit(momentum, decay):
    train = {"fraction": 1.0, "momentum": momentum, "weight_decay": decay, "rounds": 2}
    made = toy.play("fedavg", split=toy.partition(ALONE), **train)
    fed = toy.federation(split=toy.partition(ALONE), train=train)
    module = perceptron(fed.fresh("model"))
    x, y = toy.images_of(fed._world, 0)
    for round in (1, 2):
        optimiser = torch.optim.SGD(
            module.parameters(), 0.2, momentum=momentum, weight_decay=decay
        )  # fresh in every round
        order = torch_stream(0, "batches", "fit", round, 0)
        for _ in range(2):
            for rows in torch.randperm(30, generator=order).split(5):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
                optimiser.step()
    final = made.outcome.state.server["model"]
    assert torch.equal(numbers_of(module), numbers_of(perceptron(final)))
    assert not torch.equal(final.flat, fed.fresh("model").flat)


@pytest.mark.parametrize("net", [{"name": "mlp", "hidden": 6}, {"name": "small_cnn", "width": 2, "hidden": 6}])
def test_full_batches_of_all_clients_are_one_central_gradient_step(net):
    fed = toy.federation(train={"net": net, "fraction": 1.0, "epochs": 1, "batch": 100})
    method = make({"name": "fedavg"}, fed.train)
    state = method.init(fed)
    start = state.server["model"].clone()
    toy.round_of(method, fed, state)
    w = start.clone()
    for view in w.views.values():
        view.requires_grad_()
    x = torch.cat([toy.images_of(fed._world, c)[0] for c in fed.all])
    y = torch.cat([toy.images_of(fed._world, c)[1] for c in fed.all])
    nn.functional.cross_entropy(fed.net().predict(w, x), y).backward()
    for name, view in w.views.items():
        torch.testing.assert_close(state.server["model"][name], (view - 0.2 * view.grad).detach(), rtol=0, atol=1e-6)
    assert (state.server["model"].flat - start.flat).abs().max() > 1e-3


def test_the_merge_is_the_weighted_mean_of_the_answers():
    who = [0, 1, 3]
    for weighting, shares in (("samples", (17, 1, 12)), ("uniform", (1, 1, 1))):
        fed = toy.federation()
        method = make({"name": "fedavg", "weighting": weighting}, fed.train)
        state = method.init(fed)
        ups = toy.round_of(method, fed, state, who)
        expected = sum(s / sum(shares) * up["model"].flat.double() for s, up in zip(shares, ups, strict=True))
        torch.testing.assert_close(state.server["model"].flat, expected.float(), rtol=0, atol=1e-6)
        weights = method.weights(fed, state, who)
        assert [w / sum(weights) for w in weights] == pytest.approx([s / sum(shares) for s in shares])


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_server_step(rate):
    fed = toy.federation()
    plain, stepping = make({"name": "fedavg"}, fed.train), make({"name": "fedavg", "server_lr": rate}, fed.train)
    states = [plain.init(fed), stepping.init(fed)]
    start = states[0].server["model"].flat.clone()
    for method, state in zip((plain, stepping), states, strict=True):
        toy.round_of(method, toy.federation(), state)
    mean, stepped = (state.server["model"].flat for state in states)
    torch.testing.assert_close(stepped, start + rate * (mean - start), rtol=0, atol=1e-6)


def test_statistics_are_averaged_whatever_the_server_step():
    """Otherwise a long step could make a running variance negative."""
    who = [0, 3]
    for rate in (1.0, 30.0):
        fed = toy.federation(net=toy.net(toy.normed), train={"lr": 0.01})
        method = make({"name": "fedavg", "server_lr": rate}, fed.train)
        state = method.init(fed)
        ups = toy.round_of(method, fed, state, who)
        for name in ("norm.running_mean", "norm.running_var"):
            expected = (17 * ups[0]["model"][name] + 12 * ups[1]["model"][name]) / 29
            torch.testing.assert_close(state.server["model"][name], expected)
            assert not torch.equal(ups[0]["model"][name], ups[1]["model"][name])
        assert (state.server["model"]["norm.running_var"] > 0).all()


def test_adam_is_fresh_in_every_fit():
    """Two rounds of one client are two fits from where the first ended, not one longer one."""
    split = toy.partition(ALONE)
    fed = toy.federation(split=split, train={"fraction": 1.0, "optimiser": "adam", "lr": 0.01})
    method = make({"name": "fedavg"}, fed.train)
    state = method.init(fed)
    toy.round_of(method, fed, state)
    after_one = state.server["model"].clone()
    toy.round_of(method, fed, state)
    again = State(server={"model": after_one}, round=1)
    toy.round_of(method, toy.federation(split=split, train={"optimiser": "adam", "lr": 0.01}), again, [0])
    assert torch.equal(again.server["model"].flat, state.server["model"].flat)


# SCE


def test_sce_with_cross_entropy_alone_is_fedavg_bit_for_bit():
    base = toy.play("fedavg").outcome.state.server["model"].flat
    assert torch.equal(toy.play("sce", method={"alpha": 1.0, "beta": 0.0}).outcome.state.server["model"].flat, base)
    assert not torch.equal(toy.play("sce").outcome.state.server["model"].flat, base)


def test_sce_descends_its_loss_by_hand():
    """Gradient of alpha*CE + beta*9.21(1 - p_y) for one sample at equal logits: p = 1/5."""
    fed = toy.federation(
        split=toy.partition((1,)), net=toy.net(toy.linear), train={"epochs": 1, "lr": 1.0, "fraction": 1.0}
    )
    method = make({"name": "sce", "alpha": 0.3, "beta": 0.5}, fed.train)
    state = method.init(fed)
    state.server["model"].flat.zero_()
    toy.round_of(method, fed, state)
    _, y = toy.images_of(fed._world, 0)
    one_hot = torch.eye(5)[y[0]]
    # d CE/dz = p - e; d RCE/dz = -9.21 p_y (e - p)
    expected = (0.3 + 0.5 * 9.210340371976182 / 5) * (one_hot - 1 / 5)
    torch.testing.assert_close(state.server["model"]["head.bias"], expected, rtol=0, atol=1e-6)

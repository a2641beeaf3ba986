"""FedAvg: identities."""

import pytest
import torch
import toy
import toy64

from fednoise_core.engine.state import State
from fednoise_core.methods import make_method
from fednoise_core.rng import torch_stream

ALONE = (30,)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.5, 0.01)])
def test_one_client_is_plain_sgd_bit_for_bit(momentum, decay):
    rule = {"momentum": momentum, "weight_decay": decay}
    train = {"fraction": 1.0, "rounds": 2, **rule}
    run = toy.play("fedavg", split=toy.toy_partition(ALONE), **train)
    fed = toy.toy_federation(split=toy.toy_partition(ALONE), train=train)
    flat = fed.init_weights("model").flat
    x, y = toy.images_of(fed.world, 0)
    for round in (1, 2):
        order = torch_stream(0, "batches", "fit", round, 0)
        batches = [rows for _ in range(2) for rows in torch.randperm(30, generator=order).split(5)]
        # momentum is fresh in every round
        flat = toy64.train(flat, [(x[rows], y[rows]) for rows in batches], lambda theta: 0.0, 0.2, **rule)
    assert torch.equal(run.outcome.state.server["model"].flat, flat)


def test_full_batches_of_all_clients_are_one_central_gradient_step():
    fed, method, state = toy.started("fedavg", train={"fraction": 1.0, "epochs": 1, "batch": 100})
    start = state.server["model"].flat.double()
    toy.round_of(method, fed, state)
    x, y = (torch.cat(parts) for parts in zip(*(toy.images_of(fed.world, c) for c in fed.all), strict=True))
    expected = toy64.train(start, [(x.double(), y)], lambda theta: 0.0, 0.2)
    torch.testing.assert_close(state.server["model"].flat.double(), expected, rtol=0, atol=1e-6)


def test_the_merge_is_the_weighted_mean_of_the_answers():
    clients = [0, 1, 3]
    for weighting, shares in (("samples", (17, 1, 12)), ("uniform", (1, 1, 1))):
        fed, method, state = toy.started("fedavg", {"weighting": weighting})
        updates = toy.round_of(method, fed, state, clients)
        expected = sum(
            s / sum(shares) * update["model"].flat.double() for s, update in zip(shares, updates, strict=True)
        )
        torch.testing.assert_close(state.server["model"].flat, expected.float(), rtol=0, atol=1e-6)
        weights = method.weigh_updates(fed, state, clients)
        assert [w / sum(weights) for w in weights] == pytest.approx([s / sum(shares) for s in shares])


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_server_step(rate):
    fed = toy.toy_federation()
    plain, stepping = (
        make_method({"name": "fedavg"}, fed.train),
        make_method({"name": "fedavg", "server_lr": rate}, fed.train),
    )
    states = [plain.init_state(fed), stepping.init_state(fed)]
    start = states[0].server["model"].flat.clone()
    for method, state in zip((plain, stepping), states, strict=True):
        toy.round_of(method, toy.toy_federation(), state)
    mean, stepped = (state.server["model"].flat for state in states)
    torch.testing.assert_close(stepped, start + rate * (mean - start), rtol=0, atol=1e-6)


def test_statistics_are_averaged_whatever_the_server_step():
    """Otherwise a long step could make a running variance negative."""
    clients = [0, 3]
    for rate in (1.0, 30.0):
        fed, method, state = toy.started(
            "fedavg", {"server_lr": rate}, net=toy.toy_net(toy.normed_body), train={"lr": 0.01}
        )
        updates = toy.round_of(method, fed, state, clients)
        for name in ("norm.running_mean", "norm.running_var"):
            expected = (17 * updates[0]["model"][name] + 12 * updates[1]["model"][name]) / 29
            torch.testing.assert_close(state.server["model"][name], expected)
            assert not torch.equal(updates[0]["model"][name], updates[1]["model"][name])
        assert (state.server["model"]["norm.running_var"] > 0).all()


def test_adam_is_fresh_in_every_fit():
    """Two rounds of one client are two separate fits. The second starts from the end of the first."""
    split = toy.toy_partition(ALONE)
    fed, method, state = toy.started("fedavg", split=split, train={"fraction": 1.0, "optimiser": "adam", "lr": 0.01})
    toy.round_of(method, fed, state)
    after_one = state.server["model"].clone()
    toy.round_of(method, fed, state)
    again = State(server={"model": after_one}, round=1)
    toy.round_of(method, toy.toy_federation(split=split, train={"optimiser": "adam", "lr": 0.01}), again, [0])
    assert torch.equal(again.server["model"].flat, state.server["model"].flat)

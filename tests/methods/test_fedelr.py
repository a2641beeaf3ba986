"""FedELR: the regulariser, and targets that steps change and clients keep."""

from __future__ import annotations

import torch
import toy

from fednoise_core.engine.executors.lanes import Lanes
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.methods import make


def by_hand(world, client, start, targets, strength, rate, lr):
    """One full-batch step in float64 with ordinary autograd: new weights and targets."""
    x, y = toy.images_of(world, client)
    w = {name: v.double().clone().requires_grad_() for name, v in start.views.items()}
    hidden = torch.relu(x.double().flatten(1) @ w["hidden.weight"].T + w["hidden.bias"])
    logits = hidden @ w["head.weight"].T + w["head.bias"]
    p = torch.softmax(logits, 1).clamp(1e-4, 1 - 1e-4)
    seen = (p / p.sum(1, keepdim=True)).detach()
    t = rate * targets.double() + (1 - rate) * seen
    loss = torch.nn.functional.cross_entropy(logits, y) + strength * torch.log(1 - (p * t).sum(1)).mean()
    loss.backward()
    return {name: (v - lr * v.grad).detach() for name, v in w.items()}, t


def test_two_steps_by_hand():
    world = toy.world({"epochs": 2, "batch": 20, "lr": 0.1})
    fed = Federation(world, Sequential(world))
    method = make({"name": "fedelr", "strength": 2.0, "memory_rate": 0.6}, fed.train)
    state = method.init(fed)
    start, t = state.server["model"], torch.zeros(17, 5)
    for _ in range(2):
        w, t = by_hand(world, 0, start, t, 2.0, 0.6, 0.1)
        start = world.net(0).layout.zeros()
        for name, value in w.items():
            start[name].copy_(value)
    _, ups = fed.fit(method, state, [0], method.down(fed, state))
    for name, value in w.items():
        torch.testing.assert_close(ups[0]["model"][name].double(), value, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(state.clients[0]["targets"].double(), t, rtol=1e-4, atol=1e-6)


def test_targets_stay_with_the_client_and_go_on():
    made = toy.play("fedelr")
    for client, kept in made.outcome.state.clients.items():
        assert kept["targets"].shape == (toy.SIZES[client], 5)
        assert float(kept["targets"].sum(1).max()) < 1 + 1e-5
        assert float(kept["targets"].sum(1).min()) > 0


def test_strength_zero_is_fedavg():
    """log(1 - <p, t>) times 0 adds nothing to the gradient."""
    a, b = toy.play("fedelr", method={"strength": 0.0}), toy.play("fedavg")
    torch.testing.assert_close(a.outcome.state.server["model"].flat, b.outcome.state.server["model"].flat)


def test_clients_of_all_sizes_share_one_captured_step_per_batch_size():
    world = toy.world()
    lanes = Lanes(world, lanes=1)
    fed = Federation(world, lanes)
    method = make({"name": "fedelr"}, fed.train)
    state = method.init(fed)
    for state.round in (1, 2, 3):
        fed.fit(method, state, fed.all, method.down(fed, state))
    (run,) = lanes.pool.lanes[0].runs.values()
    assert len(run.steps) == 1

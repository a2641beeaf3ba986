"""MaskedOptim: label gradients by autograd with the mask written out, rounds by hand, and the median."""

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.methods import make_method
from fednoise_core.settings.train import Train


def whole_loss(z, U, y, keep, label_weight=0.5, entropy=0.1):
    """The mean over the batch, from the equation, with the mask in a plain loop."""
    p, s, K = torch.softmax(z, 1), torch.softmax(U, 1), z.shape[1]
    order = F.cross_entropy(z, y, reduction="none").argsort().tolist()
    selected = set(order[: max(1, int(keep * len(y) + 1e-9))])
    total = 0.0
    for b in range(len(y)):
        kl = sum(p[b, k] * (p[b, k].log() - s[b, k].log()) for k in range(K))
        h = -sum(p[b, k] * p[b, k].log() for k in range(K))
        label_loss = -s[b, y[b]].log() if b in selected else 0.0
        total = total + kl / K + label_weight * label_loss + entropy * h / K
    return total / len(y)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.8, 1.0])
def test_the_gradient_of_label_logits_is_autograds(keep):
    draw = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(7, 5, generator=draw, dtype=torch.float64)
    U = 3 * torch.randn(7, 5, generator=draw, dtype=torch.float64).requires_grad_()
    y = torch.randint(5, (7,), generator=draw)
    (expected,) = torch.autograd.grad(whole_loss(z, U, y, keep), U)
    method = make_method({"name": "masked_optim", "mask": keep}, Train())
    gradient = method.label_gradient(U.detach(), torch.softmax(z, 1), y)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-15)


def test_rounds_by_hand():
    """Two full-batch steps a round; labels merged with the trained model's predictions; then the step back."""
    train = {"epochs": 2, "batch": 20, "lr": 0.3}
    fed, method, state = toy.started("masked_optim", {"label_lr": 20.0, "mask": 0.5}, train=train)
    x, y = toy.images_of(fed.world, 0)
    sent, U = state.server["model"].flat.double(), 10 * F.one_hot(y, 5).double()
    for state.round in (1, 2):
        flat = sent
        for _ in range(2):
            V = U.clone().requires_grad_()
            flat, before = toy64.step(flat, lambda m, V=V: whole_loss(m(x.double()), V, y, 0.5), 0.3), flat
            z = toy64.module_of(before)(x.double()).detach()
            (grad,) = torch.autograd.grad(whole_loss(z, V, y, 0.5), V)
            U = (U - 20.0 * grad).detach()
        U = 5 * (torch.softmax(U, 1) + torch.softmax(toy64.module_of(flat)(x.double()).detach(), 1))
        broadcast = method.make_broadcast(fed, state)
        _, (update,) = fed.fit(method, state, [0], broadcast, per_client=[{"noisy": True}])
    torch.testing.assert_close(update["model"].flat.double(), 0.2 * sent + 0.8 * flat, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(state.clients[0]["label_logits"].double(), U, rtol=1e-4, atol=1e-4)


def test_the_server_merges_as_rfa():
    states = []
    for name in ("masked_optim", "rfa", "fedavg"):
        fed, method, state = toy.started(name)
        state.notes["noisy"] = [3, 5]  # FedNoRo would weigh these clients differently
        draw = torch.Generator().manual_seed(1)
        start = state.server["model"]
        models = [start.like(start.flat + torch.randn(425, generator=draw) * k) for k in range(1, 5)]
        method.merge_updates(fed, state, [0, 3, 4, 5], [{"model": model} for model in models])
        states.append(state.server["model"].flat)
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2], atol=1e-3)


def test_without_mask_and_step_back_clients_are_those_of_fedelc():
    updates = []
    for name, fields in (("masked_optim", {"mask": 1.0, "keep": 0.0}), ("fedelc", {"entropy": 0.1})):
        fed, method, state = toy.started(name, fields)
        state.round = 1
        _, (update,) = fed.fit(method, state, [3], method.make_broadcast(fed, state), per_client=[{"noisy": True}])
        updates.append((update["model"].flat, state.clients[3]["label_logits"]))
    torch.testing.assert_close(updates[0], updates[1])

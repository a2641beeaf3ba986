"""FedELC: label logits that are trained with the model, stay on the client, and are merged after training."""

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.methods import make_method
from fednoise_core.methods.fedelc import FedELC
from fednoise_core.settings.train import Train


def method_of(fed=None, **fields) -> FedELC:
    return make_method({"name": "fedelc", **fields}, fed.train if fed else Train())


def whole_loss(z, U, y, label_weight: float = 0.5, entropy: float = 0.2):
    """The mean over the batch, float64, from the equation."""
    p, s, K = torch.softmax(z, 1), torch.softmax(U, 1), z.shape[1]
    kl, h = (p * (p.log() - s.log())).sum(1), -(p * p.log()).sum(1)
    return (kl / K - label_weight * s.log().gather(1, y[:, None]).squeeze(1) + entropy * h / K).mean()


def one_hot(y: torch.Tensor) -> torch.Tensor:
    return F.one_hot(y, 5).double()


@pytest.mark.parametrize("label_weight", [0.0, 0.5, 2.0])
def test_the_gradient_of_label_logits_is_autograds(label_weight):
    draw = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(7, 5, generator=draw, dtype=torch.float64)
    U = 3 * torch.randn(7, 5, generator=draw, dtype=torch.float64).requires_grad_()
    y = torch.randint(5, (7,), generator=draw)
    (expected,) = torch.autograd.grad(whole_loss(z, U, y, label_weight), U)
    gradient = method_of(given=label_weight).label_gradient(U.detach(), torch.softmax(z, 1), y)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-15)
    assert gradient.dtype == torch.float64


def by_hand(x, y, flat, U, lr: float, label_lr: float):
    """One full-batch step of model and label logits in float64 with ordinary autograd."""
    U = U.clone().requires_grad_()
    flat = toy64.step(flat, lambda module: whole_loss(module(x.double()), U, y), lr)
    return flat, (U - label_lr * U.grad).detach()


def fitted(client: int, rounds: int = 1, verdict: dict | None = None, train: dict | None = None, **fields):
    """(federation, method, state, last update) of a client fitted alone, each time from the start."""
    fed = toy.toy_federation(train={"epochs": 2, "batch": 20, "lr": 0.3, **(train or {})})
    method = method_of(fed, **fields)
    state = method.init_state(fed)
    each = [{"noisy": True} if verdict is None else verdict]
    for _ in range(rounds):
        state.round += 1
        _, (update,) = fed.fit(method, state, [client], method.make_broadcast(fed, state), per_client=each)
    return fed, method, state, update


@pytest.mark.parametrize("rounds", [1, 2])
def test_rounds_by_hand(rounds):
    """Two joint steps of model and label logits. Then the logits are 10 times the mean of labels and predictions."""
    fed, _, state, update = fitted(0, rounds, label_lr=20.0)
    x, y = toy.images_of(fed.world, 0)
    U = 10 * one_hot(y)
    for _ in range(rounds):
        flat = state.server["model"].flat.double()
        for _ in range(2):
            flat, U = by_hand(x, y, flat, U, 0.3, 20.0)
        U = 10 * (torch.softmax(U, 1) + torch.softmax(toy64.module_of(flat)(x.double()).detach(), 1)) / 2
    torch.testing.assert_close(update["model"].flat.double(), flat, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(state.clients[0]["label_logits"].double(), U, rtol=1e-4, atol=1e-4)
    assert (U - 10 * one_hot(y)).abs().max() > 1
    assert set(update) == {"model"}


def test_every_sample_moves_once_an_epoch():
    """At rate 0 predictions stay; 12 samples in batches of 6, two epochs: two moves of each."""
    fed, method, state, _ = fitted(3, train={"batch": 6, "lr": 0.0}, label_lr=5.0)
    x, y = toy.images_of(fed.world, 3)
    p = torch.softmax(toy64.module_of(state.server["model"].flat.double())(x.double()).detach(), 1)
    U = 10 * one_hot(y)
    for _ in range(2):
        U = U - 5.0 * method.label_gradient(U, p, y) * 12 / 6  # the mean is over a batch of 6, not over all 12
    expected = 10 * (torch.softmax(U, 1) + p) / 2
    torch.testing.assert_close(state.clients[3]["label_logits"].double(), expected, rtol=1e-5, atol=1e-5)


def test_a_clean_client_learns_no_labels():
    *_, state, _ = fitted(3, verdict={})
    assert state.clients.get(3, {}) == {}


def test_with_clean_clients_only_it_is_fednoro(monkeypatch):
    monkeypatch.setattr("fednoise_core.methods.fednoro.majority_group", lambda points, seeds: points[:, 0] > 2)
    a, b = (toy.play(name).outcome.state for name in ("fedelc", "fednoro"))
    assert toy.same_state(a, b)


def test_suspects_are_those_whose_label_was_learnt_anew():
    fed, method, state, _ = fitted(3)
    y = fed.world.labels[fed.world.index[3]]
    U = 10 * one_hot(y).float()
    U[[2, 5]] = U[[2, 5]].roll(1, 1)
    state.clients[3] = {"label_logits": U}
    answers = fed.run_on_clients(state, [3, 0], method.suspect_labels, method.make_broadcast(fed, state))
    p, proposed = answers[0]
    assert [k for k in range(12) if p[k] > 0.5] == [2, 5]
    assert torch.equal(proposed[[2, 5]], (y[[2, 5]] + 1) % 5)
    assert float(answers[1][0].max()) < 0.5

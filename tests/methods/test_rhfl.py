"""RHFL, and the skeleton that FedHNL shares with it: invariants. Whole rounds: test_fedhnl.py."""

import math
from unittest.mock import Mock

import pytest
import torch
import toy

from fednoise_core.io import canonical_json
from fednoise_core.methods import mutual
from fednoise_core.methods.mutual import Align, client_weights, mix_messages
from fednoise_core.settings.train import Train


def softmax(w: list[float]) -> list[float]:
    total = sum(math.exp(v) for v in w)
    return [math.exp(v) / total for v in w]


def of(gains: tuple[float, ...], total: float) -> list[float]:
    """Softmax of 1/(M-1) + F/2 / total."""
    return softmax([1 / (len(gains) - 1) + 0.5 * f / total for f in gains])


MIXED = [0.5, 1.0, 1.0, 1.0], [1.0, 0.5, 1.1, 1.1]  # F = 1, -1/2, 1/10, 1/10


@pytest.mark.parametrize(
    ("now", "before", "options", "expected"),
    [
        ([0.5, 0.6, 0.9, 0.75], [1.0, 0.8, 0.9, 0.9], (0.5,), of((1, 1 / 3, 0, 1 / 5), 23 / 15)),
        (*MIXED, (0.5, "signed"), of((1, -0.5, 0.1, 0.1), 0.7)),  # the signed sum stretches the shares
        (*MIXED, (0.5, "abs"), of((1, -0.5, 0.1, 0.1), 1.7)),
        ([1.0, 1.0], [0.5, 0.9], (0.5,), of((-0.5, -0.1), -0.6)),  # all got worse: the worst has most weight
        ([1.0, 1.0], [1.5, 0.5], (0.5,), [0.5, 0.5]),  # gains cancel
        ([1.0, 1.0], [1.5, 0.5], (0.5, "abs"), softmax([1.25, 0.75])),
        ([1.0, 1.0], [1.5 + 1e-6, 0.5], (0.5,), [1.0, 0.0]),  # nearly
        ([0.5, 0.7, 1.0], [1.0, None, 1.1], (0.5,), of((1, 0, 0.1), 1.1)),  # unknown: F = 0
        ([0.5, 0.7, 1.0], [1.0, math.inf, 1.1], (0.5,), of((1, 0, 0.1), 1.1)),
        ([0.0, 1.0], [0.0, 2.0], (0.5,), softmax([1.0, 1.5])),  # no division by zero
        ([0.5, 0.6, 0.9, 2.0], [1.0, 0.8, 0.9, 1.0], (0.0,), [0.25] * 4),
        # RHFL+: w / sum w; with beta 1.2 a client that got worse may have a negative weight
        ([0.5, 1.0], [1.0, 0.5], (1.2, "abs", "sum"), [(1 + 0.8) / 2.4, (1 - 0.4) / 2.4]),
        ([0.5, 1.0], [0.6, 0.5], (2.0, "abs", "sum"), [(1 + 4 / 7) / (8 / 7), (1 - 10 / 7) / (8 / 7)]),
        ([1.0, 1.0], [0.5, 0.5], (2.0, "abs", "sum"), [0.5, 0.5]),  # w = 1 - eta/2 = 0: all alike
        ([0.5], [1.0], (0.5,), [1.0]),
    ],
)
def test_weights_by_hand(now, before, options, expected):
    assert client_weights(now, before, *options) == pytest.approx(expected)
    assert sum(expected) == pytest.approx(1)


# learning from others


def four(generator: int = 0) -> torch.Tensor:
    """Log-probabilities [4, 3, 5] of four clients about three images."""
    return torch.log_softmax(torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(generator)).double() * 2, -1)


W = [0.4, 0.1, 0.3, 0.2]


def loss_and_gradient(kl: str, heard, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient of a net whose logits are the weights themselves."""
    free, net, batch = logits.clone().requires_grad_(), Mock(), Mock()
    net.train = lambda w, x, u: w
    loss = Align(Train(), kl, False).compute_objective(net, free, batch, heard, {})
    loss.backward()
    return loss.detach(), free.grad


def divergences(kl: str, log_p: torch.Tensor, k: int, logits: torch.Tensor) -> torch.Tensor:
    """sum_{i != k} W_i KL, image by image and teacher by teacher."""
    log_q = torch.log_softmax(logits, -1)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        for b in range(3 if i != k else 0):
            a, c = (log_p[i, b], log_q[b]) if kl == "forward" else (log_q[b], log_p[i, b])
            total = total + W[i] * (a.exp() * (a - c)).sum() / 3
    return total


@pytest.fixture
def exact(monkeypatch):
    """Log-probabilities in float64. The library takes them in float32."""
    monkeypatch.setattr(mutual.losses, "log_probs", lambda z: torch.log_softmax(z, -1))


@pytest.mark.parametrize("kl", ["forward", "reverse"])
@pytest.mark.parametrize("k", range(4))
def test_one_tensor_holds_all_that_the_divergences_of_others_need(kl, k, exact):
    log_p = four()
    logits = four(1)[k] * 1.3
    heard = mix_messages([{"log_p": row} for row in log_p], W, kl)[k]
    loss, gradient = loss_and_gradient(kl, heard, logits)
    free = logits.clone().requires_grad_()
    expected = divergences(kl, log_p, k, free)
    expected.backward()
    torch.testing.assert_close(gradient, free.grad, rtol=0, atol=1e-14)
    entropy = sum(W[i] * -(log_p[i].exp() * log_p[i]).sum(-1).mean() for i in range(4) if i != k)
    constant = entropy if kl == "forward" else 0.0
    torch.testing.assert_close(loss, expected.detach() + constant, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kl", ["forward", "reverse"])
def test_equal_clients_have_nothing_to_learn(kl, exact):
    """The divergences are 0, and so is their gradient."""
    log_p = four()[:1].expand(4, 3, 5)
    heard = mix_messages([{"log_p": row} for row in log_p], W, kl)[2]
    loss, gradient = loss_and_gradient(kl, heard, log_p[0])
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-15)
    entropy = 0.7 * -(log_p[0].exp() * log_p[0]).sum(-1).mean()
    torch.testing.assert_close(loss, entropy if kl == "forward" else torch.zeros_like(loss), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kl", ["forward", "reverse"])
def test_a_diverged_client_teaches_no_other(kl):
    log_p = four()
    log_p[1, 0, 0] = torch.nan
    mixed = mix_messages([{"log_p": row} for row in log_p], W, kl)
    reduced = mix_messages([{"log_p": row} for row in log_p[[0, 2, 3]]], [W[0], W[2], W[3]], kl)
    for k, message in zip((0, 2, 3), reduced, strict=True):
        assert mixed[k].keys() == message.keys()
        for name in message:
            torch.testing.assert_close(mixed[k][name], message[name], rtol=0, atol=1e-15)


def test_a_fresh_optimiser_moves_every_number_by_the_rate():
    """Adam's first step is the rate times the gradient's sign; three batches are at most three of them."""
    moved = {}
    for fresh in (True, False):
        fields = {"fresh_optimizer_per_batch": fresh, "public_batch": 4}
        fed, method, state = toy.started("rhfl", fields, train={"optimiser": "adam", "lr": 0.01, "net": "mlp"})
        before = state.clients[3]["model"].flat.clone()
        state.round = 1
        method._align_models(fed, state, [0, 3, 5, 6], [1 / 3] * 4)
        moved[fresh] = state.clients[3]["model"].flat - before
    steps = moved[True] / 0.01
    integral = torch.isclose(steps, steps.round(), atol=1e-2)
    assert integral.float().mean() > 0.95
    assert set(steps[integral].round().int().tolist()) >= {-3, -1, 1, 3}
    assert not torch.allclose(moved[True], moved[False], atol=1e-3)


# rounds


def mean_loss(fed, state, c: int) -> float:
    """The symmetric loss of a client's model on all of its samples, in evaluation mode, by hand."""
    x, y = toy.images_of(fed.world, c)
    p = torch.softmax(fed.net(c).predict(state.clients[c]["model"], x), -1)[torch.arange(len(y)), y]
    return float((-0.1 * p.log() - math.log(1e-4) * (1 - p)).mean())


def test_a_client_that_joins_in_a_later_round_has_no_confidence_yet(monkeypatch):
    """F = 0 for it, so its weight is that of a client whose loss stayed; earlier participants have gained or lost."""
    used, work = [], mutual.mix_messages
    monkeypatch.setattr(
        mutual, "mix_messages", lambda messages, weights, kl: used.append(weights) or work(messages, weights, kl)
    )
    fed, method, state = toy.started("rhfl", {"public_batch": 10})
    before = {}
    for state.round in (1, 2):
        now = {c: mean_loss(fed, state, c) for c in fed.sample_cohort(state.round)}
        report = method.run_round(fed, state)
        if state.round == 1:
            before = now
    gains = tuple((before[c] - now[c]) / now[c] if c in before else 0.0 for c in fed.sample_cohort(2))
    assert gains.count(0.0) in (1, 2, 3)
    assert used == [[1 / 3] * 4, pytest.approx(of(gains, sum(gains)), rel=1e-4)]
    assert report == {"clients": 4, "weight_min": min(used[1]), "weight_max": max(used[1])}


def test_a_loss_that_overflows_is_remembered_as_none():
    """Logits of 3e38 and -3e38 are finite, the cross entropy of the second is not; the summary is JSON."""
    fed, method, state = toy.started("rhfl")
    _, y = toy.images_of(fed.world, 4)  # all of one class
    model = state.clients[4]["model"].clone()
    model["head.bias"].copy_(torch.full((5,), 3e38).index_fill(0, y[:1], -3e38))
    state.clients[4] = {"model": model}
    assert method._weigh_clients(fed, state, [0, 4], [1.0, 1.0]) == [1.0, 1.0]
    last_losses = state.notes["losses"]
    assert last_losses[0] > 0
    assert last_losses[4] is None
    canonical_json(last_losses)  # raises for infinity
    assert method._weigh_clients(fed, state, [0, 4], [1.0, 1.0]) == [0.5, 0.5]


def test_a_cohort_of_one_trains_alone():
    run = toy.play("rhfl", fraction=0.01, seed=0)
    alone = toy.play("local", method={"pretrain": 2}, fraction=0.01, seed=0)
    assert run.summary["work"] == alone.summary["work"]


def test_the_losses_reveal_noisy_clients():
    """The state holds the losses, and diagnostics compare them with the truth."""
    run = toy.play("rhfl", rounds=6)
    losses = run.summary["notes"]["losses"]
    assert [loss is None for loss in losses] == [c == 2 for c in range(8)]
    diagnostics = {r[2]: r[3] for r in run.outcome.record.diagnostics if r[0] == 7}
    above = [float(losses[noisy] > losses[clean]) for noisy in toy.NOISY for clean in (0, 1, 4, 7)]
    assert diagnostics["noisy_client_auroc"] == pytest.approx(sum(above) / len(above))

"""FedDPCont: methods.md 5.22 and section 4."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core import losses, privacy
from fednoise_core.engine.local import Batch
from fednoise_core.io import SpecError
from fednoise_core.methods import make
from fednoise_core.spec import Train

PRIOR = torch.tensor([0.1, 0.4, 0.2, 0.3, 0.0])


def method_of(fed=None, **fields):
    return make({"name": "feddpcont", **fields}, fed.train if fed else Train())


def contrast(method, logits, u=None, prior=PRIOR):
    u = torch.zeros(len(logits), 1) if u is None else u
    return method._contrast(logits, u, prior)


def batch(x, y, u) -> Batch:
    return Batch([x], y, torch.arange(len(y)), u, torch.zeros(len(y), 0), {}, {})


@pytest.mark.parametrize("net", [{"name": "mlp", "hidden": 6}, "toy_drop"])
@pytest.mark.parametrize("train", [{}, {"augment": "flip"}])
@pytest.mark.parametrize("mode", ["sample", "expect"])
def test_without_contrast_it_is_fedavg_bit_for_bit(net, train, mode, toy_nets):
    plain = toy.play("fedavg", net=net, **train).outcome.state.server["model"].flat
    contrastive = toy.play("feddpcont", method={"beta": 0.0, "mode": mode}, net=net, **train)
    assert torch.equal(contrastive.outcome.state.server["model"].flat, plain)
    assert not torch.equal(toy.play("feddpcont", net=net, **train).outcome.state.server["model"].flat, plain)


def test_with_beta_one_the_partition_function_cancels():
    """l = CE(z, y) - CE(z, y') = z_y' - z_y, and its gradient is e_y' - e_y, whatever the logits."""
    fed = toy.federation(net=toy.net(toy.linear))
    method = method_of(fed, neg_log_floor=0.0)
    w = fed.fresh("model")
    x, y = toy.images_of(fed._world, 0)
    u = torch.rand(17, 1, generator=torch.Generator().manual_seed(0))
    value = method.objective(fed.net(), w, batch(x, y, u), {}, {"prior": PRIOR})
    drawn = torch.bucketize(u[:, 0], PRIOR.cumsum(0), right=True)
    z = fed.net().predict(w, x)
    expected = (z.gather(1, drawn[:, None]) - z.gather(1, y[:, None])).mean()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    z = z.clone().requires_grad_()
    (losses.ce(z, y) - contrast(method, z, u)).sum().backward()
    torch.testing.assert_close(z.grad, torch.eye(5)[drawn] - torch.eye(5)[y], rtol=0, atol=1e-6)


def test_labels_are_drawn_from_the_prior():
    method = method_of(neg_log_floor=0.0)
    u = (torch.arange(1000.0)[:, None] + 0.5) / 1000
    z = torch.arange(5.0).repeat(1000, 1) * 10  # class k is told by its cross entropy
    drawn = ((40 - contrast(method, z, u)) / 10).round().long()
    assert np.bincount(drawn.numpy(), minlength=5).tolist() == [100, 400, 200, 300, 0]
    edges = torch.tensor([[0.0], [1 - 2**-24]])
    first_empty = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0])
    picked = ((40 - contrast(method, z[:2], edges, first_empty)) / 10).round().long()
    assert picked.tolist() == [1, 2]  # never a class of probability 0


def test_the_mean_of_many_draws_is_the_expectation():
    z = torch.randn(1, 5, generator=torch.Generator().manual_seed(0)) * 2
    n = 40000
    sampled = contrast(method_of(), z.repeat(n, 1), torch.rand(n, 1, generator=torch.Generator().manual_seed(1)))
    expected = contrast(method_of(mode="expect"), z)
    torch.testing.assert_close(expected, -(PRIOR * F.log_softmax(z, 1)).sum(1))
    assert abs(sampled.mean() - expected[0]) < 4 * sampled.std() / math.sqrt(n)
    assert sampled.std() > 0.5


def test_the_contrast_is_bounded_per_class():
    z = torch.tensor([[100.0, 0.0, 0.0, 0.0, 0.0]])
    u = torch.tensor([[0.3]])  # draws class 1
    assert contrast(method_of(), z, u).item() == pytest.approx(18.420680743952367)
    assert contrast(method_of(neg_log_floor=0.0), z, u).item() == pytest.approx(100.0)
    assert contrast(method_of(neg_log_floor=3.0, mode="expect"), z).item() == pytest.approx(0.9 * 3.0)


def test_beta_weighs_the_contrast():
    fed = toy.federation()
    w = fed.fresh("model")
    x, y = toy.images_of(fed._world, 0)
    u = torch.rand(17, 1, generator=torch.Generator().manual_seed(0))
    values = [
        method_of(fed, beta=b).objective(fed.net(), w, batch(x, y, u), {}, {"prior": PRIOR}) for b in (0.0, 0.5, 1.0)
    ]
    torch.testing.assert_close(values[0] - values[1], (values[0] - values[2]) / 2)
    assert values[0] != values[2]


def exact(fed) -> torch.Tensor:
    held = np.bincount(toy.labels().noisy[: sum(toy.SIZES)], minlength=5)
    return torch.tensor(held / held.sum(), dtype=torch.float32)


def flat_gradient(fed, loss_of) -> torch.Tensor:
    w = fed.fresh("model")
    leaves = {name: view.detach().clone().requires_grad_() for name, view in w.views.items()}
    w.__dict__["views"] = leaves
    loss_of(w).backward()
    return torch.cat([leaf.grad.flatten() for leaf in leaves.values()])


def peer(fed, w, clients, prior):
    """The peer loss in expectation over these clients' samples, written down plainly."""
    x, y = (torch.cat(parts) for parts in zip(*(toy.images_of(fed._world, c) for c in clients), strict=True))
    logp = F.log_softmax(fed.net().predict(w, x), 1)
    return (-logp[torch.arange(len(y)), y] + (prior * logp).sum(1)).mean()


def test_clients_expected_losses_add_up_to_the_central_peer_loss():
    """Theorem 2: with one global prior, values and gradients, whatever the partition; with local priors not."""
    fed = toy.federation()
    method = method_of(fed, mode="expect", neg_log_floor=0.0)
    prior, n = exact(fed), sum(fed.sizes)

    def local(w, c, prior):
        x, y = toy.images_of(fed._world, c)
        return method.objective(fed.net(), w, batch(x, y, torch.zeros(len(y), 1)), {}, {"prior": prior})

    def federated(w, prior_of):
        return sum(fed.sizes[c] / n * local(w, c, prior_of(c)) for c in fed.all)

    def own(c):
        labels = toy.images_of(fed._world, c)[1]
        return torch.bincount(labels, minlength=5) / len(labels)

    w = fed.fresh("model")
    torch.testing.assert_close(federated(w, lambda c: prior), peer(fed, w, fed.all, prior), rtol=0, atol=1e-6)
    central = flat_gradient(fed, lambda w: peer(fed, w, fed.all, prior))
    torch.testing.assert_close(flat_gradient(fed, lambda w: federated(w, lambda c: prior)), central, rtol=0, atol=1e-6)
    assert (flat_gradient(fed, lambda w: federated(w, own)) - central).abs().max() > 1e-2


def test_one_full_batch_round_of_all_is_the_central_step():
    fed = toy.federation(train={"batch": 100, "epochs": 1, "fraction": 1.0})
    method = method_of(fed, dp="none", mode="expect", neg_log_floor=0.0)
    state = method.init(fed)
    start = state.server["model"].clone()
    torch.testing.assert_close(state.server["prior"], exact(fed))
    toy.round_of(method, fed, state)
    gradient = flat_gradient(fed, lambda w: peer(fed, w, fed.all, exact(fed)))
    names = list(start.views)
    moved = torch.cat([((start[n] - state.server["model"][n]) / 0.2).flatten() for n in names])
    torch.testing.assert_close(moved, gradient, rtol=0, atol=1e-5)


def test_a_client_of_one_class_has_a_constant_gradient():
    fed = toy.federation(net=toy.net(toy.linear))
    method = method_of(fed, mode="expect", neg_log_floor=0.0)
    _, y = toy.images_of(fed._world, 4)
    assert len(set(y.tolist())) == 1
    for scale in (1.0, 20.0):
        z = (scale * torch.randn(9, 5, generator=torch.Generator().manual_seed(0))).requires_grad_()
        (losses.ce(z, y) - contrast(method, z)).sum().backward()
        torch.testing.assert_close(z.grad, (PRIOR - torch.eye(5)[y]), rtol=0, atol=1e-5)


# the release


def test_labels_cross_once_and_as_counts():
    """Beside models only the release's histograms go up, only epsilon and the prior down; later rounds are FedAvg's."""
    made, plain = toy.play("feddpcont"), toy.play("fedavg")
    assert made.summary["bytes_up"] - plain.summary["bytes_up"] == 7 * 5 * 8
    assert made.summary["bytes_down"] - plain.summary["bytes_down"] == 7 * (8 + 5 * 4)
    rows = {(r[0], r[5]): r[6] for r in made.outcome.record.metrics if r[3] == ""}
    assert rows[0, "bytes_up"] == 7 * 5 * 8
    fed = toy.federation()
    method = method_of(fed, keep=0.5)
    state = method.init(fed)
    ups = toy.round_of(method, fed, state)
    assert all(set(up) == {"model"} for up in ups)
    assert set(method.down(fed, state)) == {"model"}
    assert all(torch.equal(state.clients[c]["prior"], state.server["prior"]) for c in fed.all)


def test_the_prior_is_the_debiased_projected_release():
    fed = toy.federation()
    method = method_of(fed, keep=0.5)
    fed._world.given = torch.full_like(fed._world.given, 2)  # one class: the estimates of the others scatter around 0
    state = method.init(fed)
    counts = np.array(state.notes["release"]["counts"], float)
    p, q = 0.5, 0.5 / 4
    estimate = (counts / counts.sum() - q) / (p - q)
    assert estimate.min() < 0
    np.testing.assert_allclose(state.server["prior"].numpy(), privacy.project(estimate), atol=1e-6)
    assert state.server["prior"].min() >= 0
    assert state.server["prior"].sum().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "epsilon"),
    [
        ({"keep": 0.5}, math.log(4)),
        ({"epsilon": 0.7}, 0.7),
        ({"epsilon": 0.7, "keep": 0.9}, 0.7),
        ({"dp": "none"}, None),
    ],
)
def test_epsilon_stands_in_the_summary(fields, epsilon):
    """keep = p: epsilon = ln(p (K - 1)/(1 - p))."""
    summary = toy.play("feddpcont", method=fields).summary
    assert summary["epsilon"] == (None if epsilon is None else pytest.approx(epsilon))
    assert "release" not in summary["notes"]
    assert (summary["diagnostics"]["prior_error"] < 1e-6) == (epsilon is None)


def test_no_second_release():
    fed = toy.federation()
    method = method_of(fed, keep=0.5)
    state = method.init(fed)
    with pytest.raises(RuntimeError, match="released already"):
        fed.release_labels(state, 1.0)


@pytest.mark.parametrize("keep", [0.2, 0.1])
def test_a_probability_that_tells_nothing_is_refused(keep):
    with pytest.raises(SpecError, match=r"method\.keep: .* above 1/5"):
        toy.play("feddpcont", method={"keep": keep})


def test_sampling_needs_a_distribution():
    with pytest.raises(SpecError, match="projection"):
        method_of(projection="none")
    for fields in ({"mode": "expect"}, {"dp": "none"}):
        assert method_of(projection="none", **fields).projection == "none"


def test_suspects_lose_against_the_prior():
    fed = toy.federation()
    method = method_of(fed, dp="none")
    state = method.init(fed)
    p, proposed = fed.on_clients(state, [3], method.suspects, method.down(fed, state))[0]
    x, y = toy.images_of(fed._world, 3)
    logp = F.log_softmax(fed.net().predict(state.server["model"], x), 1)
    peer_loss = -logp[torch.arange(12), y] + logp @ exact(fed)
    torch.testing.assert_close(p, torch.sigmoid(peer_loss), rtol=1e-4, atol=1e-5)
    assert torch.equal(proposed, logp.argmax(1))

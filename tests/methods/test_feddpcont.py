"""FedDPCont: methods.md 5.22 and section 4."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import toy

from fednoise_core import losses
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


def test_the_contrast_is_bounded_per_class():
    z = torch.tensor([[100.0, 0.0, 0.0, 0.0, 0.0]])
    u = torch.tensor([[0.3]])  # draws class 1
    assert contrast(method_of(), z, u).item() == pytest.approx(18.420680743952367)
    assert contrast(method_of(neg_log_floor=0.0), z, u).item() == pytest.approx(100.0)
    assert contrast(method_of(neg_log_floor=3.0, mode="expect"), z).item() == pytest.approx(0.9 * 3.0)


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

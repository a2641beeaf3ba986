"""FedLSR, and the parts that it shares with FedMixCon: views, mixed prediction, ramp."""

import itertools

import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core.engine.local import Batch
from fednoise_core.methods import make_method
from fednoise_core.methods.fedlsr import jensen_shannon
from fednoise_core.methods.mixed_prediction import mix_predictions

BOTH = pytest.mark.parametrize("name", ["fedlsr", "fedmixcon"])
OFF = {"fedlsr": {"gamma": 0.0, "entropy_weight": 0.0}, "fedmixcon": {"mu": 0.0}}
PLAIN = {"mixing": 0.0, "temperature": 1.0, "ce_mode": "log"}  # one view, no sharpening, -log p_y


def method_of(name="fedlsr", train=None, **fields):
    return make_method({"name": name, **fields}, toy.toy_world(train).train)


def draw(*shape, seed=0, spread=1.0):
    return spread * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def batch_of(n=6, seed=0, draws=0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, 1, 8, 8, generator=random) for _ in range(2)]
    u, masks = torch.rand(n, 1, generator=random), torch.rand(n, 2 * draws, generator=random)
    return Batch(views, torch.randint(5, (n,), generator=random), torch.arange(n), u, masks, {})


# without its parts it is FedAvg


@BOTH
def test_without_mixing_sharpening_and_regulariser_it_is_fedavg(name):
    plain = toy.play("fedavg").outcome.state.server["model"].flat
    off = toy.play(name, method={**OFF[name], **PLAIN}).outcome.state.server["model"].flat
    torch.testing.assert_close(off, plain, rtol=1e-4, atol=1e-5)
    for key in PLAIN:
        fields = {k: v for k, v in PLAIN.items() if k != key}
        changed = toy.play(name, method={**OFF[name], **fields}).outcome.state.server["model"].flat
        assert (changed - plain).abs().max() > 1e-3, key


# the mixed prediction


def test_the_mixture_lies_on_the_simplex_and_keeps_its_argmax():
    z1, z2 = draw(50, 10, spread=4.0), draw(50, 10, seed=1, spread=4.0)
    for share in (0.0, 0.3, 1 - 2**-24, 1.0):
        p = share * torch.softmax(z1, 1) + (1 - share) * torch.softmax(z2, 1)
        for temperature in (1.0, 0.5, 0.1):
            sharp = mix_predictions(z1, z2, torch.tensor([share]), temperature).exp()
            torch.testing.assert_close(sharp.sum(1), torch.ones(50))
            assert torch.equal(sharp.argmax(1), p.argmax(1))
        torch.testing.assert_close(mix_predictions(z1, z2, torch.tensor([share]), 1.0).exp(), p)
        torch.testing.assert_close(mix_predictions(z1, z1, torch.tensor([share]), 1.0).exp(), torch.softmax(z1, 1))


def test_double_softmax_is_bounded():
    """-p_y + log sum e^p lies in [1.461, 2.461] for 10 classes, whatever the logits; -log p_y up to -log 1e-7."""
    z = torch.full((2, 10), -100.0).index_fill(1, torch.tensor([3]), 100.0)
    ends = {}
    for ce_mode, y in itertools.product(("double_softmax", "log"), (3, 4)):  # right, wrong
        batch = Batch([], torch.tensor([y, y]), torch.arange(2), torch.rand(2, 1), z, {})
        ends[ce_mode, y] = float(method_of(ce_mode=ce_mode).prediction_loss(z, z, batch))
    assert list(ends.values()) == pytest.approx([1.4611, 2.4611, 0.0, 16.1181], abs=1e-4)


@pytest.mark.parametrize("ce_mode", ["double_softmax", "log"])
@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_the_prediction_loss_and_its_gradient_are_those_of_the_formula_in_float64(ce_mode, spread):
    batch = batch_of(40)
    method = method_of(ce_mode=ce_mode)
    ours = [draw(40, 5, seed=k, spread=spread).requires_grad_() for k in (1, 2)]
    exact = [z.detach().double().requires_grad_() for z in ours]
    share = batch.u[0, 0].double()
    p = share * torch.softmax(exact[0], 1) + (1 - share) * torch.softmax(exact[1], 1)
    p = p**2 / (p**2).sum(1, keepdim=True)
    row = torch.arange(40)
    expected = {
        "log": -p[row, batch.y].clamp_min(1e-7).log(),
        "double_softmax": p.exp().sum(1).log() - p[row, batch.y],
    }[ce_mode].mean()
    loss = method.prediction_loss(*ours, batch)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    loss.backward()
    expected.backward()
    for z, z_exact in zip(ours, exact, strict=True):
        torch.testing.assert_close(z.grad.double(), z_exact.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("ce_mode", ["double_softmax", "log"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_large_logits_and_shares_of_zero_have_finite_gradients(ce_mode, share):
    z = [torch.tensor([[1e4, -1e4, 0.0]]).requires_grad_() for _ in range(2)]
    batch = Batch([], torch.tensor([1]), torch.zeros(1, dtype=torch.int64), torch.tensor([[share]]), z[0], {})
    method_of(ce_mode=ce_mode).prediction_loss(*z, batch).backward()
    assert all(torch.isfinite(logits.grad).all() for logits in z)


# the regulariser


def test_jensen_shannon_is_symmetric_and_zero_only_for_equal_predictions():
    a, b = (torch.softmax(draw(30, 7, seed=k, spread=3.0), 1).clamp(1e-6, 1) for k in range(2))
    torch.testing.assert_close(jensen_shannon(a, b), jensen_shannon(b, a))
    assert (jensen_shannon(a, b) > 1e-3).all()
    assert torch.equal(jensen_shannon(a, a), torch.zeros(30))


@pytest.mark.parametrize("js_mode", ["code", "formula"])
@pytest.mark.parametrize("entropy_mode", ["code", "formula"])
def test_the_whole_loss_and_its_gradient_by_the_formula_in_float64(js_mode, entropy_mode):
    fed = toy.toy_federation(net=toy.toy_net(toy.linear_body))
    net, batch = fed.net(), batch_of(20)
    method = method_of(js_mode=js_mode, entropy_mode=entropy_mode, gamma=2.0, entropy_weight=0.7)
    w = net.fresh(torch.Generator().manual_seed(3))
    leaves = {name: (view.detach() * 5).requires_grad_() for name, view in w.views.items()}
    w.__dict__["views"] = leaves
    loss = method.compute_objective(net, w, batch, {"ramp": 0.25}, {})
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    z = [x.double().flatten(1) @ exact["head.weight"].T + exact["head.bias"] for x in batch.views]
    share = batch.u[0, 0].double()
    p = share * torch.softmax(z[0], 1) + (1 - share) * torch.softmax(z[1], 1)
    expected = F.cross_entropy(p**2 / (p**2).sum(1, keepdim=True), batch.y)
    q = [torch.softmax(3 * logits, 1).clamp(1e-6, 1) for logits in z]
    log_m = (q[0] / 2 + q[1] / 2).log()
    js = sum(F.kl_div(log_m, p_view, reduction="none") for p_view in q) / 2
    expected = expected + 2.0 * 0.25 * (js.mean() if js_mode == "code" else js.sum(1).mean())
    if entropy_mode == "code":
        h = -(torch.softmax(q[0], 1) * torch.log_softmax(q[0], 1)).sum(1).mean()
    else:
        h = -sum((p_view * p_view.log()).sum(1).mean() for p_view in q) / 2
    expected = expected + 0.7 * h
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    loss.backward()
    expected.backward()
    for name, leaf in leaves.items():
        torch.testing.assert_close(leaf.grad.double(), exact[name].grad, rtol=1e-3, atol=1e-6)


# ramp


def test_the_ramp_starts_at_zero_and_ends_after_a_fifth_of_the_rounds():
    fed = toy.toy_federation()
    for fields, train, expected in (
        ({}, {"rounds": 100}, {1: 0.0, 2: 0.05, 11: 0.5, 21: 1.0, 22: 1.0, 100: 1.0}),
        ({"ramp": 2}, {"rounds": 100}, {1: 0.0, 2: 0.5, 3: 1.0, 50: 1.0}),
        ({}, {"rounds": 2}, {1: 0.0, 2: 1.0}),
    ):
        method = method_of(train=train, **fields)
        state = method.init_state(fed)
        for state.round, value in expected.items():
            assert method.make_broadcast(fed, state)["ramp"] == pytest.approx(value)


def test_the_ramp_is_a_phase_of_its_own():
    """The first round with the full weight is the one after the ramp."""
    run = toy.play("fedlsr", method={"ramp": 2})
    assert {phase["name"]: phase["last"] for phase in run.summary["phases"]} == {"ramp": 2, "train": 3}

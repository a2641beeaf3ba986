"""Update rules against torch.optim, and Trained: gradients and values in flat buffers."""

import pytest
import torch
import toy

from fednoise_core.ops import optim
from fednoise_core.ops.weights import Entry, Layout, Weights


def trained(rule: optim.Optimiser, n: int = 6) -> optim.Trained:
    layout = Layout([Entry("a", (n - 2,)), Entry("s", (3,), "stat"), Entry("b", (2, 1))])
    model = optim.Trained(layout, rule)
    model.load(Weights(layout, torch.linspace(-1, 1, layout.size)))
    return model


def descend(rule: optim.Optimiser, reference, lr: float, clip: float = 0.0, steps: int = 5):
    """The trained numbers after some steps on a bumpy function, by our rule and by torch's."""
    ours = trained(rule)
    theirs = [t.detach().clone().requires_grad_() for t in (ours.w["a"], ours.w["b"])]
    torch_rule = reference(theirs)

    def bumpy(a, b):
        return (a**4).sum() + (3 * b).sin().sum() + a.sum() * b.sum()

    for _ in range(steps):
        ours.backward(bumpy(ours.w["a"], ours.w["b"]))
        ours.update(lr)
        torch_rule.zero_grad()
        bumpy(*theirs).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(theirs, clip)
        torch_rule.step()
    return ours, torch.cat([t.detach().flatten() for t in theirs])


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.01), (0.5, 0.1)])
def test_sgd_is_torchs_bit_for_bit(momentum, decay):
    ours, theirs = descend(
        optim.make_optimiser("sgd", momentum=momentum, weight_decay=decay),
        lambda p: torch.optim.SGD(p, 0.05, momentum=momentum, weight_decay=decay),
        0.05,
    )
    assert torch.equal(ours.w.trained, theirs)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_torchs(decay):
    ours, theirs = descend(
        optim.make_optimiser("adam", weight_decay=decay), lambda p: torch.optim.Adam(p, 0.05, weight_decay=decay), 0.05
    )
    torch.testing.assert_close(ours.w.trained, theirs, rtol=1e-5, atol=1e-6)
    assert not torch.equal(theirs, trained(optim.Adam()).w.trained)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_clipping_is_torchs(clip, momentum):
    ours, theirs = descend(
        optim.make_optimiser("sgd", momentum=momentum, weight_decay=0.1, clip=clip),
        lambda p: torch.optim.SGD(p, 0.05, momentum=momentum, weight_decay=0.1),
        0.05,
        clip,
    )
    torch.testing.assert_close(ours.w.trained, theirs, rtol=1e-5, atol=1e-6)
    rule = optim.make_optimiser("sgd", momentum=momentum, weight_decay=0.1)
    unclipped, _ = descend(rule, lambda p: torch.optim.SGD(p, 0.05), 0.05)
    assert torch.equal(ours.w.trained, unclipped.w.trained) == (clip == 100.0)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_rate_on_the_device_does_the_same(name):
    rule = optim.make_optimiser(name, momentum=0.5)
    a, b = trained(rule), trained(rule)
    for model, lr in ((a, 0.25), (b, torch.tensor(0.25))):
        for _ in range(3):
            model.backward((model.w["a"] ** 2).sum() + model.w["b"].sum())
            model.update(lr)
    torch.testing.assert_close(a.w.flat, b.w.flat, rtol=0, atol=1e-7)


def test_statistics_are_not_trained():
    model = trained(optim.SGD(weight_decay=0.5))
    before = model.w["s"].clone()
    model.backward((model.w["a"] * 2).sum() + model.w["b"].sum())
    assert model.grad.tolist() == [2.0] * 4 + [1.0] * 2
    model.update(0.1)
    assert torch.equal(model.w["s"], before)


def test_load_forgets_gradient_memory_and_values():
    rule = optim.Adam()
    model, start = trained(rule), trained(rule).values()
    for _ in range(2):
        model.backward((model.w["a"] ** 3).sum())
        model.update(0.3)
    model.load(start)
    assert torch.equal(model.w.flat, start.flat)
    assert all(not t.any() for t in model.memory)
    fresh = trained(rule)
    for each in (model, fresh):
        each.backward((each.w["a"] ** 3).sum())
        each.update(0.3)
    assert torch.equal(model.w.flat, fresh.w.flat)


def test_gradient_of_a_net_is_autograds():
    """Leaves that share one buffer get the gradient of separate leaves, also through batch normalisation."""
    net = toy.toy_net(toy.normed_body)
    start = net.fresh(torch.Generator().manual_seed(0))
    x, y = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 3, 4, 0])
    model = optim.Trained(net.layout, optim.SGD())
    model.load(start)
    grad = model.backward(torch.nn.functional.cross_entropy(net.train(model.w, x), y))
    free = start.clone()
    leaves = {
        n: v.detach().clone().requires_grad_(k != "stat")
        for (n, v), k in zip(free.views.items(), (e.kind for e in net.layout.entries), strict=True)
    }
    free.__dict__["views"] = leaves
    torch.nn.functional.cross_entropy(net.train(free, x), y).backward()
    for entry in net.layout.entries:
        if entry.kind != "stat":
            offset = net.layout.offsets[entry.name]
            piece = Weights(Layout([entry]), grad[offset : offset + entry.size])[entry.name]
            torch.testing.assert_close(piece, leaves[entry.name].grad, rtol=1e-5, atol=1e-7)
    assert grad.abs().sum() > 0
    assert torch.equal(model.w["norm.running_mean"], leaves["norm.running_mean"])
    assert model.w["norm.running_mean"].any()


# several things in training


def pair() -> tuple[optim.Trained, optim.Trained]:
    first, second = trained(optim.SGD()), trained(optim.SGD(), 8)
    first.alone = second.alone = False  # as the engine says where several are carried
    return first, second


def joint(w, v):
    """A loss over both, in which each one's gradient depends on the other."""
    return (w["a"][:2] * v["a"][:2]).sum() ** 2 + (w["b"].sum() - v["b"].sum()).exp() + v["a"].pow(3).sum()


def test_one_loss_over_two_is_autograds():
    ours = pair()
    leaves = [[t.w[name].detach().clone().requires_grad_() for name in ("a", "b")] for t in ours]
    first, second = ({"a": a, "b": b} for a, b in leaves)
    expected = torch.autograd.grad(joint(first, second), [*leaves[0], *leaves[1]])
    for _ in range(2):  # the second time over the gradients of the first
        gradients = optim.compute_gradients(joint(ours[0].w, ours[1].w), *ours)
        for k, grad in enumerate(gradients):
            assert grad is ours[k].grad
            flat = torch.cat([g.flatten() for g in expected[2 * k : 2 * k + 2]])
            torch.testing.assert_close(grad, flat, rtol=1e-6, atol=1e-6)
            assert flat.count_nonzero() >= 4
    # the first does not matter to it: no gradient is left over
    only_second = optim.compute_gradients(second_alone(ours[1].w), *ours)
    assert not only_second[0].any()
    assert only_second[1].any()


def second_alone(w):
    return w["a"].sum() + 2 * w["b"].sum()


def test_the_gradient_of_one_leaves_that_of_the_other_alone():
    first, second = pair()
    second.grad.fill_(7.0)
    expected = torch.autograd.grad(joint(first.w, second.w), [first.w["a"], first.w["b"]])
    gradient = first.backward(joint(first.w, second.w))
    torch.testing.assert_close(gradient, torch.cat([g.flatten() for g in expected]), rtol=1e-6, atol=1e-6)
    assert (second.grad == 7.0).all()

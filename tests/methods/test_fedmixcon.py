"""FedMixCon: invariants. What it shares with FedLSR: test_fedlsr.py, test_two_views.py."""

import math

import pytest
import torch
import toy
from test_fedlsr import draw, method_of
from torch.nn import functional as F

from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.methods.fedmixcon import FedMixCon, contrast_loss
from fednoise_core.settings.train import Train

DENOMINATORS = ["negatives", "negatives+positive", "all"]
every_denominator = pytest.mark.parametrize("denominator", DENOMINATORS)
Y = torch.tensor([0, 0, 1, 2, 2, 2, 0])


def naive(h1, h2, y, tau, denominator):
    """Anchor by anchor, as the paper writes it."""
    found = []
    for i in range(len(y)):

        def s(other, i=i):
            return (h1[i] * other).sum() / (h1[i].norm() * other.norm())

        rest = [j for j in range(len(y)) if j != i and (denominator == "all" or y[j] != y[i])]
        below = sum(torch.exp(s(h1[j]) / tau) for j in rest)
        if denominator == "negatives+positive" and rest:
            below = below + torch.exp(s(h2[i]) / tau)
        found.append(-torch.log(torch.exp(s(h2[i]) / tau) / below) if rest else h1.sum() * 0)
    return torch.stack(found)


@every_denominator
@pytest.mark.parametrize("tau", [0.5, 0.05])
def test_the_contrast_and_its_gradient_are_those_of_the_formula_in_float64(denominator, tau):
    ours = [draw(7, 6, seed=k).requires_grad_() for k in range(2)]
    exact = [h.detach().double().requires_grad_() for h in ours]
    found, expected = contrast_loss(*ours, Y, tau, denominator), naive(*exact, Y, tau, denominator)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    found.mean().backward()
    expected.mean().backward()
    for mine, theirs in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-4, atol=1e-6)


def on_circle(*degrees):
    return torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


@every_denominator
def test_it_falls_with_the_nearness_of_the_second_view_and_rises_with_that_of_others(denominator):
    y = torch.tensor([0, 1])
    near = [float(contrast_loss(on_circle(0, 120), on_circle(d, 0), y, 0.5, denominator)[0]) for d in (0, 30, 90, 180)]
    away = [float(contrast_loss(on_circle(0, d), on_circle(20, 0), y, 0.5, denominator)[0]) for d in (180, 90, 30, 0)]
    for rising in (near, away):
        assert rising == sorted(rising)
        assert rising[0] < rising[-1] - 0.7


@every_denominator
def test_an_anchor_that_meets_nobody_counts_nothing_and_pulls_nowhere(denominator):
    n = 1 if denominator == "all" else 4  # samples of one class
    h1, h2 = (draw(n, 6, seed=k).requires_grad_() for k in range(2))
    found = contrast_loss(h1, h2, torch.zeros(n, dtype=torch.int64), 0.5, denominator)
    assert torch.equal(found, torch.zeros(n))
    found.sum().backward()
    assert torch.equal(h1.grad, torch.zeros(n, 6))
    assert torch.equal(h2.grad, torch.zeros(n, 6))


def test_it_looks_at_directions_only_and_a_zero_vector_has_none():
    h1, h2 = draw(7, 6), draw(7, 6, seed=1)
    torch.testing.assert_close(contrast_loss(7.0 * h1, 0.2 * h2, Y, 0.5), contrast_loss(h1, h2, Y, 0.5))
    h1[0] = 0.0
    h1.requires_grad_()
    found = contrast_loss(h1, h2, Y, 0.5)
    assert found[0].item() == pytest.approx(math.log(4))  # four negatives, every cosine is 0
    found.sum().backward()
    assert torch.isfinite(h1.grad).all()


def test_it_is_worked_out_in_float32_under_autocast():
    h1, h2 = draw(7, 6).bfloat16(), draw(7, 6, seed=1).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = contrast_loss(h1, h2, Y, 0.05)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, contrast_loss(h1.float(), h2.float(), Y, 0.05))


# the weight


def test_the_weight_is_half_the_noise_rate_unless_it_is_given():
    assert [method_of("fedmixcon", noise_rate=e).weight for e in (0.3, 0.4, 0.5)] == [0.15, 0.2, 0.25]  # table 2
    assert method_of("fedmixcon", mu=0.7).weight == 0.7
    assert method_of("fedmixcon", mu=0.0, noise_rate=0.5).weight == 0.0


# both switches off


class Copies(FedAvg):
    """FedAvg on batches in which each image comes twice, the second time turned."""

    def get_augmentations(self):
        return method_of("fedmixcon").get_augmentations()

    def compute_objective(self, net, w, batch, broadcast, client_state):
        return F.cross_entropy(net.train(w, torch.cat(batch.views)), batch.y.repeat(2))


def test_with_both_switches_off_it_is_fedavg_with_augmented_copies():
    train = Train(**toy.TRAIN)
    ends = [
        toy.run_method(method).state.server["model"].flat
        for method in (FedMixCon(train=train, mixed=False, mu=0.0), Copies(train=train), FedAvg(train=train))
    ]
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-5)
    assert (ends[0] - ends[2]).abs().max() > 1e-2

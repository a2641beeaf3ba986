"""FedMixCon: invariants. Tests of the parts that it shares with FedLSR: test_fedlsr.py, test_two_views.py."""

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
    losses = []
    for i in range(len(y)):

        def s(vector, i=i):
            return (h1[i] * vector).sum() / (h1[i].norm() * vector.norm())

        others = [j for j in range(len(y)) if j != i and (denominator == "all" or y[j] != y[i])]
        below = sum(torch.exp(s(h1[j]) / tau) for j in others)
        if denominator == "negatives+positive" and others:
            below = below + torch.exp(s(h2[i]) / tau)
        losses.append(-torch.log(torch.exp(s(h2[i]) / tau) / below) if others else h1.sum() * 0)
    return torch.stack(losses)


@every_denominator
@pytest.mark.parametrize("tau", [0.5, 0.05])
def test_the_contrast_and_its_gradient_are_those_of_the_formula_in_float64(denominator, tau):
    ours = [draw(7, 6, seed=k).requires_grad_() for k in range(2)]
    exact = [h.detach().double().requires_grad_() for h in ours]
    contrast, expected = contrast_loss(*ours, Y, tau, denominator), naive(*exact, Y, tau, denominator)
    torch.testing.assert_close(contrast.double(), expected, rtol=1e-5, atol=1e-5)
    contrast.mean().backward()
    expected.mean().backward()
    for h, h_exact in zip(ours, exact, strict=True):
        torch.testing.assert_close(h.grad.double(), h_exact.grad, rtol=1e-4, atol=1e-6)


def on_circle(*degrees):
    return torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


@every_denominator
def test_the_contrast_rises_as_the_second_view_moves_away_and_as_others_come_near(denominator):
    y = torch.tensor([0, 1])
    views = [float(contrast_loss(on_circle(0, 120), on_circle(d, 0), y, 0.5, denominator)[0]) for d in (0, 30, 90, 180)]
    others = [float(contrast_loss(on_circle(0, d), on_circle(20, 0), y, 0.5, denominator)[0]) for d in (180, 90, 30, 0)]
    for rising in (views, others):
        assert rising == sorted(rising)
        assert rising[0] < rising[-1] - 0.7


@every_denominator
def test_an_anchor_without_others_has_no_contrast_and_no_gradient(denominator):
    n = 1 if denominator == "all" else 4  # samples of one class
    h1, h2 = (draw(n, 6, seed=k).requires_grad_() for k in range(2))
    contrast = contrast_loss(h1, h2, torch.zeros(n, dtype=torch.int64), 0.5, denominator)
    assert torch.equal(contrast, torch.zeros(n))
    contrast.sum().backward()
    assert torch.equal(h1.grad, torch.zeros(n, 6))
    assert torch.equal(h2.grad, torch.zeros(n, 6))


def test_only_directions_matter_and_a_zero_vector_has_none():
    h1, h2 = draw(7, 6), draw(7, 6, seed=1)
    torch.testing.assert_close(contrast_loss(7.0 * h1, 0.2 * h2, Y, 0.5), contrast_loss(h1, h2, Y, 0.5))
    h1[0] = 0.0
    h1.requires_grad_()
    contrast = contrast_loss(h1, h2, Y, 0.5)
    assert contrast[0].item() == pytest.approx(math.log(4))  # four negatives, every cosine is 0
    contrast.sum().backward()
    assert torch.isfinite(h1.grad).all()


def test_it_is_computed_in_float32_under_autocast():
    h1, h2 = draw(7, 6).bfloat16(), draw(7, 6, seed=1).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        contrast = contrast_loss(h1, h2, Y, 0.05)
    assert contrast.dtype == torch.float32
    torch.testing.assert_close(contrast, contrast_loss(h1.float(), h2.float(), Y, 0.05))


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

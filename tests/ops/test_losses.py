"""Losses against numbers worked out by hand."""

import math

import pytest
import torch

from fednoise_core.ops import losses

Z = torch.log(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])) + 5.0  # logits of known probabilities, shifted
Y = torch.tensor([0, 1])


def random_logits(n: int = 9, k: int = 4, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(3)) * spread


def test_cross_entropy_of_classes_and_distributions():
    torch.testing.assert_close(losses.ce(Z, Y), -torch.log(torch.tensor([0.7, 0.3])))
    q = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    expected = torch.tensor([-(0.5 * math.log(0.7) + 0.5 * math.log(0.2)), -math.log(0.6)])
    torch.testing.assert_close(losses.ce(Z, q), expected)
    torch.testing.assert_close(losses.ce(Z, torch.eye(3)[Y]), losses.ce(Z, Y))


def test_losses_are_float32_also_under_autocast():
    half = (random_logits() * 10).to(torch.bfloat16)
    y = torch.zeros(9, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16):
        assert losses.ce(half, y).dtype == torch.float32
    torch.testing.assert_close(losses.ce(half, y), losses.ce(half.double().float(), y))
    assert torch.isfinite(losses.ce(torch.tensor([[1e4, -1e4]]), torch.tensor([1]))).all()


def test_reverse_cross_entropy_is_symmetric():
    """The sum over all labels is the same for every prediction: (K-1) times the scale (Ghosh et al., AAAI 2017)."""
    z = random_logits()
    total = sum(losses.rce(z, torch.full((9,), k)) for k in range(4))
    torch.testing.assert_close(total, torch.full((9,), 3 * losses.RCE_SCALE))
    uneven = sum(losses.ce(z, torch.full((9,), k)) for k in range(4))
    assert uneven.max() - uneven.min() > 1


def test_gce_lies_between_ce_and_mae():
    torch.testing.assert_close(losses.gce(Z, Y, 1.0), losses.mae(Z, Y))
    torch.testing.assert_close(losses.gce(Z, Y, 1e-4), losses.ce(Z, Y), rtol=1e-3, atol=1e-3)
    far = torch.tensor([[100.0, 0.0]], requires_grad=True)  # p_y below the floor of 1e-7
    value = losses.gce(far, torch.tensor([1]), 0.7)
    assert value.item() == pytest.approx((1 - 1e-7**0.7) / 0.7)
    value.sum().backward()
    assert torch.isfinite(far.grad).all()


def test_forward_correction_by_nothing_and_of_the_impossible():
    torch.testing.assert_close(losses.forward_correction(Z, Y, torch.eye(3)), losses.ce(Z, Y))
    never = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert losses.forward_correction(torch.zeros(1, 2), torch.tensor([1]), never).item() == pytest.approx(
        -math.log(1e-12), rel=1e-5
    )


def test_sharpening():
    p = torch.tensor([[0.6, 0.3, 0.1], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(losses.sharpen_probs(p, 1.0), p)
    torch.testing.assert_close(losses.sharpen_probs(p, 0.5)[0], torch.tensor([0.36, 0.09, 0.01]) / 0.46)
    assert losses.sharpen_probs(p, 0.5).sum(1).tolist() == pytest.approx([1.0, 1.0])
    torch.testing.assert_close(losses.sharpen_probs(p[0], 0.5), losses.sharpen_probs(p, 0.5)[0])


@pytest.mark.parametrize(
    ("forget", "n", "r"),
    [  # the floor of the exact product, although 1 - 0.8 is 0.19999…
        (0.8, 10, 2),
        (0.9, 10, 1),
        (0.8, 50, 10),
        (0.2, 10, 8),
        (0.2, 32, 25),
        (0.0, 7, 7),
        (0.99, 10, 1),
        (0.5, 1, 1),
        (0.45, 20, 11),
        (0.7, 10, 3),
        (0.6, 5, 2),
    ],
)
def test_number_of_small_losses(forget, n, r):
    per_sample = torch.randn(n, generator=torch.Generator().manual_seed(n))
    for rate in (1.0 - forget, torch.tensor(1.0 - forget, dtype=torch.float64)):
        mask = losses.small_loss_mask(per_sample, rate)
        assert mask.sum().item() == r
        assert mask.dtype == per_sample.dtype
        small, left = per_sample[mask > 0], per_sample[mask == 0]
        assert not len(left) or small.max() <= left.min()


def test_ties_among_small_losses_go_to_the_earlier_sample():
    assert losses.small_loss_mask(torch.tensor([2.0, 1.0, 1.0, 1.0, 0.0]), 0.6).tolist() == [0, 1, 1, 0, 1]
    # long enough for an unstable sort
    assert losses.small_loss_mask(torch.ones(500), 0.3).tolist() == [1] * 150 + [0] * 350


@pytest.mark.parametrize("classes", [10, 1000])
def test_products_keep_their_precision_under_autocast(classes):
    """bfloat16 would make every second of a thousand classes impossible to draw."""
    prior = torch.full((classes,), 1.0 / classes)
    upper = torch.ones(classes, classes).triu()
    with torch.autocast("cpu", torch.bfloat16):
        up_to = losses.matmul_full_precision(prior, upper)
        rounded = prior @ upper
        corrected = losses.forward_correction(torch.zeros(4, classes), torch.arange(4), torch.eye(classes))
    assert up_to.dtype == torch.float32
    torch.testing.assert_close(up_to, torch.arange(1, classes + 1) / classes, rtol=0, atol=1e-4)
    assert (rounded.float() - up_to).abs().max() > 1e-3
    torch.testing.assert_close(corrected, torch.full((4,), math.log(classes)), rtol=1e-5, atol=0)


# every loss against a float64 autograd of the naive formula


def naive(p: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """The formulas as they stand in the papers, from probabilities."""
    p_y = p[torch.arange(len(y)), y]
    onehot = torch.eye(p.shape[1], dtype=p.dtype)[y]
    ce, rce = -p_y.log(), -(p * onehot.clamp_min(1e-4).log()).sum(1)
    corrected = (T_NOISE.T @ p.T).T[torch.arange(len(y)), y]
    return {
        "ce": ce,
        "rce": rce,
        "sce": 0.1 * ce + 2.0 * rce,
        "gce": (1 - p_y**0.7) / 0.7,
        "mae": (p - onehot).abs().sum(1) / 2,
        "forward": -corrected.log(),
        "reweighted": (p_y / corrected) * ce,
    }


T_NOISE = torch.tensor(
    [[0.7, 0.1, 0.1, 0.1], [0.2, 0.6, 0.1, 0.1], [0.0, 0.3, 0.7, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64
)
OURS = {
    "ce": losses.ce,
    "rce": losses.rce,
    "sce": lambda z, y: losses.sce(z, y, 0.1, 2.0),
    "gce": lambda z, y: losses.gce(z, y, 0.7),
    "mae": losses.mae,
    "forward": lambda z, y: losses.forward_correction(z, y, T_NOISE.float()),
    "reweighted": lambda z, y: losses.reweighted_ce(z, y, T_NOISE.float()),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_values_and_gradients_are_those_of_the_naive_formula_in_float64(name, spread):
    """spread 4: p_y falls to 1e-6, where 1 - (1 - p_y) in float32 has lost its digits."""
    z, y = random_logits(60, 4, spread), torch.arange(60) % 4
    ours, exact = z.clone().requires_grad_(), z.double().requires_grad_()
    value, expected = OURS[name](ours, y), naive(torch.softmax(exact, 1), y)[name]
    torch.testing.assert_close(value.double(), expected, rtol=2e-5, atol=1e-6)
    value.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("far", [3.0, 10.0, 15.0])
def test_losses_of_small_probabilities_keep_their_digits(far):
    """GCE's gradient for z_y is -p_y^q (1 - p_y), MAE's -p_y (1 - p_y)."""
    p = 1 / (1 + math.exp(far))
    for loss, expected in ((lambda z, y: losses.gce(z, y, 0.7), p**0.7), (losses.mae, p)):
        z = torch.tensor([[far, 0.0]], requires_grad=True)
        loss(z, torch.tensor([1])).sum().backward()
        assert -float(z.grad[0, 1]) == pytest.approx(expected * (1 - p), rel=1e-4)


def test_reweighting_is_one_without_noise_and_trains_the_matrix():
    """beta = p_y/(T'p)_y is 1 for T = I, also in its value; the gradient for T[i, y] is -beta CE p_i/(T'p)_y."""
    z, y = random_logits(), torch.arange(9) % 4
    torch.testing.assert_close(losses.reweighted_ce(z, y, torch.eye(4)), losses.ce(z, y))
    T = T_NOISE.float().requires_grad_()
    losses.reweighted_ce(z, y, T).sum().backward()
    p = torch.softmax(z.double(), 1)
    below = (p @ T_NOISE)[torch.arange(9), y]
    p_y = p[torch.arange(9), y]
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for n in range(9):
        expected[:, y[n]] -= p_y[n] / below[n] ** 2 * -p_y[n].log() * p[n]
    torch.testing.assert_close(T.grad.double(), expected, rtol=1e-4, atol=1e-6)
    assert T.grad.abs().max() > 0.1

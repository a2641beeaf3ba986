"""Label smoothing and the active-passive loss: their values and gradients against a second implementation."""

import math

import pytest
import torch
import torch.nn.functional as F

from fednoise_core.methods import make_method
from fednoise_core.settings.train import Train

LOGITS = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
LABELS = torch.arange(40) % 5


def losses_and_gradients(compute):
    logits = LOGITS.clone().requires_grad_()
    values = compute(logits)
    values.sum().backward()
    return values.detach(), logits.grad


def smoothed(logits, s):
    return F.cross_entropy(logits, LABELS, reduction="none", label_smoothing=s)


def active_passive(logits, alpha, beta):
    """Sums over explicit labels: -log p_y / sum_k -log p_k, and -sum_k p_k log q_k with log 0 taken as log 1e-4."""
    p = logits.softmax(1)
    rows = []
    for probabilities, label in zip(p, LABELS.tolist(), strict=True):
        normalised = probabilities[label].log() / sum(probabilities[k].log() for k in range(5))
        reverse = -sum(probabilities[k] * math.log(1e-4) for k in range(5) if k != label)
        rows.append(alpha * normalised + beta * reverse)
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("spec", "second"),
    [
        ({"name": "label_smoothing", "smoothing": 0.1}, lambda z: smoothed(z, 0.1)),
        ({"name": "label_smoothing", "smoothing": 0.6}, lambda z: smoothed(z, 0.6)),
        ({"name": "active_passive"}, lambda z: active_passive(z, 1, 1)),
        ({"name": "active_passive", "alpha": 10, "beta": 0.1}, lambda z: active_passive(z, 10, 0.1)),
    ],
)
def test_values_and_gradients_are_those_of_a_second_implementation(spec, second):
    method = make_method(spec, Train())
    for ours, theirs in zip(
        losses_and_gradients(lambda z: method.compute_loss(z, LABELS)), losses_and_gradients(second), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, check_dtype=False)  # `ce` is in float32


def test_the_normalised_part_sums_to_one_over_all_labels():
    """The loss summed over all labels is the same for all predictions, which makes it robust (its theorem 1)."""
    method = make_method({"name": "active_passive", "beta": 0}, Train())
    total = sum(method.compute_loss(LOGITS, torch.full((40,), k)) for k in range(5))
    torch.testing.assert_close(total, torch.ones(40, dtype=torch.float64))

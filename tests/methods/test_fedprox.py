"""FedProx: the gradient of its term, and whole rounds against a second implementation."""

import pytest
import torch
import toy
import toy64

from fednoise_core.ops.weights import Entry, Layout, Weights

# a kernel, whose flat order is not that of its view; an affine of a normalisation layer; a running statistic
LAYOUT = Layout([Entry("conv", (2, 3, 2, 2)), Entry("norm", (4,), "norm"), Entry("mean", (4,), "stat")])


def test_the_pull_is_the_gradient_of_its_term():
    """The term is mu/2 ||theta - theta_g||^2, by autograd, without statistics. At theta_g the gradient is 0."""
    draw = torch.Generator().manual_seed(0)
    w, start = (Weights(LAYOUT, torch.randn(LAYOUT.size, generator=draw)) for _ in range(2))
    _, method, _ = toy.started("fedprox", {"mu": 0.3})
    flat = w.flat.clone().requires_grad_()
    away = [LAYOUT.view(flat, e) - start[e.name] for e in LAYOUT.entries if e.kind != "stat"]
    (0.15 * sum(d.square().sum() for d in away)).backward()
    for point, expected in ((w, flat.grad[: LAYOUT.trained]), (start, torch.zeros(LAYOUT.trained))):
        grad = torch.zeros_like(point.trained)
        method.correct_gradient(grad, point, {"model": start}, {})
        torch.testing.assert_close(grad, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.01}])
def test_whole_rounds_against_a_second_implementation(options):
    """Three rounds in float64: minimise CE + the term by autograd from theta_g; theta_g <- mean by samples."""
    with toy64.doubled():
        fed, state, seen, start = toy64.rounds("fedprox", {"mu": 0.3}, **options)
        for round in (1, 2, 3):
            clients = toy64.cohort(seen, round)

            def pull(theta, start=start):
                return 0.15 * (theta - start).square().sum()

            start = toy64.mean({c: toy64.train(start, seen[round, c], pull, 0.2, **options) for c in clients})
            assert len(clients) == fed.cohort
        toy64.close(state.server["model"], start)

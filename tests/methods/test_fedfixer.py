"""FedFixer against a second implementation in float64, which follows the order of the authors' code."""

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.methods.fedfixer import pass_sieve


def test_the_sieve_by_hand():
    """p = (.7, .2, .1): mean CE over classes = (.357 + 1.609 + 2.303) / 3 = 1.423; only class 0 is below."""
    z = torch.log(torch.tensor([[0.7, 0.2, 0.1]] * 3, dtype=torch.float64))
    assert pass_sieve(z, torch.tensor([0, 1, 2])).tolist() == [1, 0, 0]
    z = torch.log(torch.tensor([[0.45, 0.45, 0.1]] * 3, dtype=torch.float64))
    assert pass_sieve(z, torch.tensor([0, 1, 2])).tolist() == [1, 1, 0]
    assert pass_sieve(torch.zeros(1, 4), torch.tensor([2])).tolist() == [1]  # equal: a uniform prediction passes


@pytest.mark.parametrize(
    ("warmup", "epochs", "expected"),
    [
        # a fifth of five rounds is one: two epochs of 0, then ten values from 0 to 2
        (5, 2, [0, 0, *[2 * k / 9 for k in range(10)], 2, 2]),
        # a fifth of four is none: four values from the first epoch on
        (4, 1, [0, 2 / 3, 4 / 3, 2, 2, 2]),
        (1, 1, [0, 2, 2]),
    ],
)
def test_beta_by_epoch(warmup, epochs, expected):
    fed, method, state = toy.started("fedfixer", {"warmup": warmup}, train={"epochs": epochs, "rounds": 8})
    found = []
    for state.round in range(1, len(expected) // epochs + 1):
        (facts,) = fed.run_on_clients(
            state, [3], lambda client, _: [method._plan_epoch(client, e).facts for e in range(epochs)], {}
        )
        assert {fact["choose"] for fact in facts} == {state.round > warmup}
        found += [fact["beta"] for fact in facts]
    assert found == pytest.approx(expected)


def naive_client(theta, batches, betas, choose, strength, steps, lr):
    """(model, number of samples that it was trained on) after these batches, each with its beta."""
    model, personal, picked = toy64.module_of(theta), toy64.module_of(theta), 0

    def select(m, x, y):
        p = torch.softmax(m(x), 1).detach()
        return [n for n in range(len(y)) if not choose or -p[n, y[n]].log() <= -(p[n] + 1e-8).log().mean()]

    def loss(m, x, y, samples, beta):
        total = 0.0 * m(x).sum()
        for n in samples:
            p = torch.softmax(m(x)[n], 0)
            total = total + (F.cross_entropy(m(x)[n : n + 1], y[n : n + 1]) + beta * (p + 1e-8).log().mean()) / len(
                samples
            )
        return total

    for (x, y), beta in zip(batches, betas, strict=True):
        rate = lr / (1 + beta)
        for _ in range(steps):
            by_personal, by_model = select(personal, x, y), select(model, x, y)
            grads = torch.autograd.grad(loss(personal, x, y, by_model, beta), list(personal.parameters()))
            with torch.no_grad():
                for v, w, g in zip(personal.parameters(), model.parameters(), grads, strict=True):
                    v -= rate * (g + strength * (v - w) + 0.001 * v)
        grads = torch.autograd.grad(loss(model, x, y, by_personal, beta), list(model.parameters()))
        with torch.no_grad():
            for v, w, g in zip(personal.parameters(), model.parameters(), grads, strict=True):
                w -= strength * rate * (w - v)
                w -= rate * g
        picked += len(by_personal)
    return toy64.vector(model), picked


def test_whole_rounds_against_a_second_implementation():
    """Four rounds in float64."""
    strength, steps, lr, epochs = 1.5, 3, 0.2, 2
    with toy64.doubled():
        fields = {"warmup": 2, "confidence": 0.6, "strength": strength, "personal_steps": steps}
        _, state, seen, theta = toy64.rounds("fedfixer", fields, 4, lr=lr, epochs=epochs)
        ramp = [0.0, 0.2, 0.4, 0.6, 0.6, 0.6, 0.6, 0.6]  # two warm-up rounds of two epochs
        shares = []
        for round in (1, 2, 3, 4):
            models, weights = {}, {}
            for c in toy64.cohort(seen, round):
                batches = seen[round, c]
                half = len(batches) // epochs
                betas = [ramp[2 * round - 2]] * half + [ramp[2 * round - 1]] * half
                models[c], weights[c] = naive_client(theta, batches, betas, round > 2, strength, steps, lr)
                shares.append((round, weights[c] / sum(len(y) for _, y in batches)))
            theta = sum(weights[c] * models[c] for c in models) / sum(weights.values())
        torch.testing.assert_close(state.server["model"].flat, theta, rtol=0, atol=1e-9)
        assert {share for round, share in shares if round < 3} == {1.0}
        assert any(0 < share < 1 for round, share in shares if round > 2)


def test_clients_without_a_selected_sample_weigh_nothing_unless_none_has_any():
    fed, method, state = toy.started("fedfixer")
    sizes = [float(fed.sizes[c]) for c in (1, 3)]
    assert method.weigh_updates(fed, state, [1, 3], [{"selected": torch.tensor([n])} for n in (0.0, 4.0)]) == [0, 4]
    assert method.weigh_updates(fed, state, [1, 3], [{"selected": torch.tensor([0.0])}] * 2) == sizes
    _, uniform, _ = toy.started("fedfixer", {"weighting": "uniform"})
    assert uniform.weigh_updates(fed, state, [1, 3], [{"selected": torch.tensor([n])} for n in (0.0, 4.0)]) == [1, 1]

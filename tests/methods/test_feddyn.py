"""FedDyn: invariants of methods.md 5.4."""

from __future__ import annotations

import pytest
import torch
import toy
import toy64

from fednoise_core.engine.local import Work
from fednoise_core.methods import make, method_class
from fednoise_core.settings import parse


def started(fields: dict | None = None, **options):
    fed = toy.federation(**options)
    method = make({"name": "feddyn", **(fields or {})}, fed.train)
    return fed, method, method.init(fed)


@pytest.mark.parametrize("fields", [{}, {"weighted": True}])
def test_alpha_zero_is_fedavg_with_equal_weights_bit_for_bit(fields):
    base = toy.play("fedavg", method={"weighting": "uniform"}).outcome.state.server["model"]
    off = toy.play("feddyn", method={"alpha": 0.0, **fields}).outcome.state.server["model"]
    assert torch.equal(off.flat, base.flat)
    on = toy.play("feddyn", method={"alpha": 1e-9, **fields}).outcome.state.server["model"]
    assert (on.flat - base.flat).abs().max() > 1e-3  # alpha to 0 is not FedAvg: the server's drift stays


@pytest.mark.parametrize("how", [{}, {"momentum": 0.5, "weight_decay": 0.01}])
def test_whole_rounds_against_a_second_implementation(how):
    """Four rounds in float64, the paper's form with g_k and h themselves."""
    alpha = 0.3
    with toy64.doubled():
        _, state, seen, start = toy64.rounds("feddyn", {"alpha": alpha}, 4, **how)
        g, h = torch.zeros(8, 425), torch.zeros(425)
        for round in (1, 2, 3, 4):
            new, who = [], toy64.cohort(seen, round)
            for c in who:

                def more(theta, c=c, start=start):
                    return -(g[c] @ theta) + alpha / 2 * (theta - start).square().sum()

                new.append(toy64.train(start, seen[round, c], more, 0.2, **how))
            for c, theta in zip(who, new, strict=True):
                g[c] -= alpha * (theta - start)
            h = h - alpha / 8 * sum(theta - start for theta in new)
            start = sum(new) / len(new) - h / alpha
        toy64.close(state.server["model"], start)
        toy64.close(-alpha * state.server["drift"], h)
        for c in state.clients:
            toy64.close(-alpha * state.clients[c]["drift"], g[c])
        assert h.abs().max() > 1e-2


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_the_authors_form_against_a_second_implementation(clip):
    """Gradient of CE + alpha_k <lambda_k - theta_g, theta>, clipped; then (alpha_k + decay) theta as weight decay.
    lambda_k sums displacements; theta_g is the mean model plus the mean lambda of all clients.
    """
    alpha, decay = 0.3, 0.01
    how = {"weight_decay": decay, "clip": clip}
    with toy64.doubled():
        _, state, seen, start = toy64.rounds("feddyn", {"alpha": alpha, "weighted": True}, 4, **how)
        lam = torch.zeros(8, 425)
        for round in (1, 2, 3, 4):
            who, new = toy64.cohort(seen, round), []
            for c in who:
                mine = alpha * (sum(toy.SIZES) / 8) / toy.SIZES[c]
                module = toy64.module_of(start)
                optimiser = torch.optim.SGD(module.parameters(), 0.2, weight_decay=mine + decay)
                for x, y in seen[round, c]:
                    optimiser.zero_grad()
                    theta = torch.nn.utils.parameters_to_vector(module.parameters())
                    (torch.nn.functional.cross_entropy(module(x), y) + mine * ((lam[c] - start) @ theta)).backward()
                    if clip:
                        torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
                    optimiser.step()
                new.append(toy64.vector(module))
            for c, theta in zip(who, new, strict=True):
                lam[c] += theta - start
            start = sum(new) / len(new) + lam.mean(0)
        toy64.close(state.server["model"], start)


def test_statistics_are_averaged_only():
    fed, method, state = started(net=toy.net(toy.normed), train={"lr": 0.01})
    assert len(state.server["drift"]) == state.server["model"].layout.trained < state.server["model"].layout.size
    for _ in range(2):
        ups = toy.round_of(method, fed, state, [0, 3])
    for name in ("norm.running_mean", "norm.running_var"):
        torch.testing.assert_close(state.server["model"][name], (ups[0]["model"][name] + ups[1]["model"][name]) / 2)


def test_a_client_without_a_step_stays():
    """A net that cannot normalise one sample: client 1 takes none."""
    fed, method, state = started(net=toy.net(toy.normed_point))
    start = state.server["model"].clone()
    toy.round_of(method, fed, state, [1])
    assert not state.clients[1]["drift"].any()
    assert torch.equal(state.server["model"].flat, start.flat)


# heterogeneous quadratics: f_c(w) = 1/2 sum_j a_cj (w_j - b_cj)^2, whose mean has its optimum at sum a b / sum a


def curves(client: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """a_c in [1/2, 3/2] and b_c of a client."""
    draw = torch.Generator().manual_seed(100 + client)
    return 0.5 + torch.rand(n, generator=draw), torch.randn(n, generator=draw)


LR, STEPS = 0.2, 5


def settled(name: str, fields: dict, rounds: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The model after many rounds of all clients, each of STEPS full steps; a [7, n] and b [7, n]."""

    class Quadratic(method_class(name)):
        def prepare(self, me, down):
            work = super().prepare(me, down) or Work()
            a, b = curves(me.id, len(down["model"].trained))
            work.facts |= {"a": a, "b": b}
            return work

        def objective(self, net, w, batch, down, mine):
            theta = torch.cat([view.flatten() for view in w.views.values()])
            return 0.5 * (mine["a"] * (theta - mine["b"]).square()).sum()

    fed = toy.federation(
        train={"epochs": STEPS, "batch": 100, "lr": LR, "fraction": 1.0, "rounds": rounds}, net=toy.net(toy.linear)
    )
    method = parse(Quadratic, fields, "method", train=fed.train)
    state = method.init(fed)
    for state.round in range(1, rounds + 1):
        method.round(fed, state)
    n = len(state.server["model"].trained)
    a, b = (torch.stack(parts) for parts in zip(*(curves(c, n) for c in fed.all), strict=True))
    return state.server["model"].trained, a, b


@pytest.mark.parametrize(
    ("name", "fields"), [("scaffold", {}), ("feddyn", {"alpha": 0.5}), ("feddyn", {"alpha": 0.5, "weighted": True})]
)
def test_heterogeneous_clients_agree_on_the_global_optimum(name, fields):
    """FedDyn's fixed point: theta_k = theta_g for all (drifts stand still), so grad f_k(theta_g) = g_k, and h, the mean
    of g_k, is 0 since theta_g = mean theta_k - h/alpha: the mean gradient is 0. In the authors' form the mean of
    g_k/alpha_k is 0, with alpha_k ~ 1/N_k: it finds the optimum of the mean by samples. SCAFFOLD's: c_k = grad f_k, c
    their mean, and a client stays where c = 0.
    """
    w, a, b = settled(name, fields, 150)
    shares = torch.tensor([n if "weighted" in fields else 1.0 for n in toy.SIZES if n])[:, None]
    optimum = (shares * a * b).sum(0) / (shares * a).sum(0)
    torch.testing.assert_close(w, optimum, rtol=0, atol=1e-4)

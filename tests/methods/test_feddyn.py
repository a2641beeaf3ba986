"""FedDyn: invariants."""

import pytest
import torch
import toy
import toy64

from fednoise_core.engine.local import Work
from fednoise_core.methods import method_class
from fednoise_core.settings.declare import build_settings


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.01}])
def test_whole_rounds_against_a_second_implementation(options):
    """Four rounds in float64, the paper's form with g_k and h themselves. One of the 8 clients has no data."""
    alpha = 0.3
    with toy64.doubled():
        _, state, seen, start = toy64.rounds("feddyn", {"alpha": alpha}, 4, **options)
        g, h = torch.zeros(8, 425), torch.zeros(425)
        for round in (1, 2, 3, 4):
            new, clients = [], toy64.cohort(seen, round)
            for c in clients:

                def penalty(theta, c=c, start=start):
                    return -(g[c] @ theta) + alpha / 2 * (theta - start).square().sum()

                new.append(toy64.train(start, seen[round, c], penalty, 0.2, **options))
            for c, theta in zip(clients, new, strict=True):
                g[c] -= alpha * (theta - start)
            h = h - alpha / 7 * sum(theta - start for theta in new)
            start = sum(new) / len(new) - h / alpha
        toy64.close(state.server["model"], start)
        toy64.close(-alpha * state.server["drift"], h)
        for c in state.clients:
            toy64.close(-alpha * state.clients[c]["drift"], g[c])
        assert h.abs().max() > 1e-2


def test_statistics_are_averaged_only():
    fed, method, state = toy.started("feddyn", net=toy.toy_net(toy.normed_body), train={"lr": 0.01})
    for _ in range(2):
        updates = toy.round_of(method, fed, state, [0, 3])
    for name in ("norm.running_mean", "norm.running_var"):
        torch.testing.assert_close(
            state.server["model"][name], (updates[0]["model"][name] + updates[1]["model"][name]) / 2
        )


def test_a_client_without_a_step_stays():
    """A net that cannot normalise one sample: client 1 takes none."""
    fed, method, state = toy.started("feddyn", net=toy.toy_net(toy.normed_point))
    start = state.server["model"].clone()
    toy.round_of(method, fed, state, [1])
    assert not state.clients[1]["drift"].any()
    assert torch.equal(state.server["model"].flat, start.flat)


@pytest.mark.parametrize(("name", "fields"), [("scaffold", {}), ("feddyn", {"alpha": 0.5})])
def test_heterogeneous_clients_agree_on_the_global_optimum(name, fields):
    """f_c(w) = 1/2 sum_j a_cj (w_j - b_cj)^2, whose mean has its optimum at sum a b / sum a.

    FedDyn's fixed point: theta_k = theta_g for all (drifts stand still), so grad f_k(theta_g) = g_k, and h, the mean
    of g_k, is 0 since theta_g = mean theta_k - h/alpha: the mean gradient is 0. SCAFFOLD's: c_k = grad f_k, c their
    mean, and a client stays where c = 0.
    """

    class Quadratic(method_class(name)):
        def prepare_fit(self, client, broadcast):
            work = super().prepare_fit(client, broadcast) or Work()
            work.facts |= {"a": a[client.id], "b": b[client.id]}
            return work

        def compute_objective(self, net, w, batch, broadcast, client_state):
            theta = torch.cat([view.flatten() for view in w.views.values()])
            return 0.5 * (client_state["a"] * (theta - client_state["b"]).square()).sum()

    train = {"epochs": 5, "batch": 100, "fraction": 1.0, "rounds": 150}
    fed = toy.toy_federation(train=train, net=toy.toy_net(toy.linear_body))
    method = build_settings(Quadratic, fields, "method", train=fed.train)
    state = method.init_state(fed)
    draw, n = torch.Generator().manual_seed(0), len(state.server["model"].trained)
    a, b = 0.5 + torch.rand(fed.n, n, generator=draw), torch.randn(fed.n, n, generator=draw)
    for state.round in range(1, 151):
        method.run_round(fed, state)
    optimum = (a * b)[fed.all].sum(0) / a[fed.all].sum(0)
    torch.testing.assert_close(state.server["model"].trained, optimum, rtol=0, atol=1e-4)

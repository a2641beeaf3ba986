"""FedOpt: whole rounds against a second implementation, its default rates, and running statistics."""

import math

import numpy as np
import pytest
import torch
import toy
import toy64


def server_step(rule, old, moved, first, second, rate):
    """One server step number by number, by the paper's algorithm 2 and by FedAvgM. Changes first and second."""
    new = np.empty_like(old)
    for j in range(len(old)):
        if rule == "momentum":
            first[j] = 0.8 * first[j] + moved[j]
            new[j] = old[j] + rate * first[j]
            continue
        first[j] = 0.8 * first[j] + 0.2 * moved[j]
        if rule == "adam":
            second[j] = 0.7 * second[j] + 0.3 * moved[j] ** 2
        elif second[j] > moved[j] ** 2:
            second[j] -= 0.3 * moved[j] ** 2
        else:
            second[j] += 0.3 * moved[j] ** 2
        new[j] = old[j] + rate * first[j] / (math.sqrt(second[j]) + 0.02)
    return new


@pytest.mark.parametrize(("rule", "rate"), [("momentum", 0.5), ("adam", 0.05), ("yogi", 0.05)])
def test_whole_rounds_against_a_second_implementation(rule, rate):
    fields = {"server_optimiser": rule, "server_lr": rate, "beta1": 0.8, "beta2": 0.7, "tau": 0.02}
    with toy64.doubled():
        _, state, seen, theta = toy64.rounds("fedopt", fields, 4)
        first, second = np.zeros(425), np.full(425, 0.02**2)
        for round in (1, 2, 3, 4):
            ends = {
                k: toy64.train(theta, seen[round, k], lambda t: 0 * t.sum(), 0.2) for k in toy64.cohort(seen, round)
            }
            moved = (toy64.mean(ends) - theta).numpy()
            theta = torch.from_numpy(server_step(rule, theta.numpy(), moved, first, second, rate))
        toy64.close(state.server["model"], theta)


@pytest.mark.parametrize(("rule", "rate"), [("momentum", 1.0), ("adam", 0.01), ("yogi", 0.01)])
def test_rate_zero_stands_for_the_rate_of_the_rule(rule, rate):
    ends = [
        toy.play("fedopt", method={"server_optimiser": rule, "server_lr": lr}).outcome.state.server["model"].flat
        for lr in (0.0, rate)
    ]
    assert torch.equal(*ends)


def test_running_statistics_are_averaged_only():
    states = []
    for name, fields in (("fedopt", {"server_lr": 5.0}), ("fedavg", {})):
        fed, method, state = toy.started(name, fields, net=toy.toy_net(toy.normed_body))
        toy.round_of(method, fed, state)
        states.append(state.server["model"])
    trained = states[0].layout.trained
    assert torch.equal(states[0].flat[trained:], states[1].flat[trained:])
    assert not torch.allclose(states[0].trained, states[1].trained)

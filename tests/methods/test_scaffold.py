"""SCAFFOLD: invariants, and a second implementation."""

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.ops import optim
from fednoise_core.ops.weights import Weights

FULL = {"batch": 100, "epochs": 1, "fraction": 1.0}


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.01}])
def test_whole_rounds_against_a_second_implementation(options):
    """Four rounds in float64: steps on g - c_i + c; c_i <- c_i - c + (theta_g - y)/(a lr), where a is the weight of all
    gradients in y (K without momentum); c is the mean of the c_i of all clients with data, those never drawn at zero;
    theta_g is the plain mean.
    """
    m = options.get("momentum", 0)
    with toy64.doubled():
        _, state, seen, theta = toy64.rounds("scaffold", {}, 4, **options)
        controls = {k: torch.zeros(425) for k in range(8) if toy.SIZES[k]}
        for round in (1, 2, 3, 4):
            c, ends = sum(controls.values()) / 7, {}
            for k in toy64.cohort(seen, round):
                steps = seen[round, k]
                ends[k] = toy64.train(theta, steps, lambda t, pull=c - controls[k]: t @ pull, 0.2, **options)
                reach = sum(m**age for step in range(len(steps)) for age in range(step + 1))
                controls[k] = controls[k] - c + (theta - ends[k]) / (reach * 0.2)
            theta = toy64.mean(ends, by="clients")
        toy64.close(state.server["model"], theta)
        toy64.close(state.server["control"], sum(controls.values()) / 7)
        for k, client_state in state.clients.items():
            toy64.close(client_state["control"], controls[k])
        assert len(state.clients) > 4
        assert state.server["control"].abs().max() > 1e-3


def test_the_first_round_is_fedavg_with_equal_weights():
    ends = []
    for name, fields in (("scaffold", {}), ("fedavg", {"weighting": "uniform"})):
        fed, method, state = toy.started(name, fields)
        for _ in range(2):
            toy.round_of(method, fed, state)
            ends.append(state.server["model"].flat.clone())
    assert torch.equal(ends[0], ends[2])
    assert not torch.equal(ends[1], ends[3])


def gradient(fed, w: Weights, client: int) -> torch.Tensor:
    """Full-batch gradient of a client's loss, flat over the trained numbers."""
    x, y = toy.images_of(fed.world, client)
    leaves = optim.Trained(w.layout, optim.SGD())
    leaves.load(w)
    return leaves.backward(F.cross_entropy(fed.net().predict(leaves.w, x), y)).clone()


def test_after_one_full_batch_step_the_control_is_the_gradient():
    fed, method, state = toy.started("scaffold", train=FULL)
    for _ in range(3):  # also from the second round on, when the step itself was corrected
        before = state.server["model"].clone()
        toy.round_of(method, fed, state)
        for c in fed.all:
            torch.testing.assert_close(state.clients[c]["control"], gradient(fed, before, c), rtol=0, atol=2e-5)


def test_identical_clients_need_no_correction():
    fed, method, state = toy.started("scaffold", train=FULL)
    for c in range(8):
        fed.world.index[c] = fed.world.index[0]
        fed.world.sizes[c] = fed.sizes[c] = 17
    fed.all = list(range(8))
    for _ in range(2):
        toy.round_of(method, fed, state)
        for c in range(8):
            torch.testing.assert_close(state.clients[c]["control"], state.server["control"], rtol=0, atol=1e-5)
    assert state.server["control"].abs().max() > 0.01


def test_only_steps_taken_are_counted():
    """11 samples in batches of 5 on a net that cannot normalise one sample: 2 steps an epoch, not 3."""
    fed, method, state = toy.started("scaffold", net=toy.toy_net(toy.normed_point), train={"epochs": 1, "lr": 0.01})
    start = state.server["model"].clone()
    assert len(state.server["control"]) == start.layout.trained < start.layout.size  # statistics are not controlled
    (update,) = toy.round_of(method, fed, state, [6])
    expected = (start.trained - update["model"].trained) / (2 * 0.01)
    torch.testing.assert_close(state.clients[6]["control"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"train": {"lr": 0.0}}, {"net": toy.toy_net(toy.normed_point)}])
def test_a_client_that_learnt_nothing_keeps_its_control(options):
    fed, method, state = toy.started("scaffold", **options)
    old = torch.linspace(-1, 1, state.server["control"].numel())
    state.clients[1] = {"control": old}
    state.server["control"] += 0.5
    (update,) = toy.round_of(method, fed, state, [1])
    torch.testing.assert_close(state.clients[1]["control"], old, rtol=0, atol=1e-6)
    torch.testing.assert_close(update["shift"], torch.zeros_like(old), rtol=0, atol=1e-6)

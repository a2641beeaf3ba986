"""FedNoRo: the adjusted loss, the search for noisy clients, the teacher, weights by distance."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import World
from fednoise_core.methods import make_method
from fednoise_core.methods.fednoro import adjusted_kl, measure_distances, scale_losses
from fednoise_core.ops import stats
from fednoise_core.ops.stats import majority_group
from fednoise_core.rng import stream
from fednoise_core.settings.train import Train

# the adjusted loss


def by_hand(world, client: int, start, weight: float, lr: float):
    """One full-batch step in float64 with ordinary autograd; the teacher is `start`, weight its share."""
    x, y = toy.images_of(world, client)
    w = {name: v.double().clone().requires_grad_() for name, v in start.views.items()}

    def logits(of):
        h = torch.relu(x.double().flatten(1) @ of["hidden.weight"].T + of["hidden.bias"])
        return h @ of["head.weight"].T + of["head.bias"]

    share = torch.bincount(y, minlength=5).double() / len(y)
    log_p = torch.log_softmax(logits(w) + share.log(), 1)
    loss = (1 - weight) * F.nll_loss(log_p, y)
    if weight:
        q = torch.softmax(logits({k: v.detach() for k, v in w.items()}) / 0.8, 1)
        loss = loss + weight * (q * (q.log() - log_p))[:, share > 0].sum(1).mean()
    loss.backward()
    return {name: (v - lr * v.grad).detach() for name, v in w.items()}


@pytest.mark.parametrize("client", [0, 7])  # 7 lacks a class
@pytest.mark.parametrize(("verdict", "round", "weight"), [({}, 1, 0.0), ({"noisy": True}, 3, 0.8)])
def test_a_step_by_hand(client, verdict, round, weight):
    fed, method, state = toy.started("fednoro", train={"epochs": 1, "batch": 20, "lr": 0.5})
    state.round = round
    _, updates = fed.fit(method, state, [client], method.make_broadcast(fed, state), per_client=[verdict])
    for name, value in by_hand(fed.world, client, state.server["model"], weight, 0.5).items():
        torch.testing.assert_close(updates[0]["model"][name].double(), value, rtol=1e-4, atol=1e-6)


def test_absent_classes_are_no_part_of_the_divergence_and_get_no_gradient():
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(6, 5, generator=draw, dtype=torch.float64).requires_grad_()
    q = torch.softmax(torch.randn(6, 5, generator=draw, dtype=torch.float64), 1)
    prior = torch.tensor([0.5, 0.0, 0.2, 0.3, 0.0], dtype=torch.float64)
    kl = adjusted_kl(q, z + prior.log(), prior.log())
    there = prior > 0
    p = torch.softmax(z.detach()[:, there] + prior[there].log(), 1)
    expected = (q * q.log()).sum(1) - (q[:, there] * p.log()).sum(1)
    torch.testing.assert_close(kl.detach().double(), expected, rtol=1e-5, atol=1e-6)
    kl.sum().backward()
    assert (z.grad[:, ~there] == 0).all()
    assert (z.grad[:, there] != 0).all()


def test_with_balanced_clients_the_adjustment_changes_nothing():
    noisy = np.arange(toy.N) % 5
    rate = float((noisy != toy.arrays().y_train).mean())
    labels = dataclasses.replace(toy.toy_labels(), noisy=noisy, clean=toy.arrays().y_train, rate=rate)
    split = toy.toy_partition((15, 5, 0, 10, 10, 15, 10, 10))  # every client holds each class as often as any other
    models = [
        toy.play(name, labels=labels, split=split, method=fields).outcome.state.server["model"].flat
        for name, fields in (("fednoro", {"warmup": 3}), ("fedavg", {}))
    ]
    torch.testing.assert_close(*models, rtol=0, atol=1e-6)


def test_without_noisy_clients_and_teacher_the_second_stage_is_the_first(monkeypatch):
    nobody = np.zeros(7, bool)
    monkeypatch.setattr("fednoise_core.methods.fednoro.majority_group", lambda points, seeds: nobody)
    second = toy.play("fednoro", method={"warmup": 1, "teacher": 0.0})
    first = toy.play("fednoro", method={"warmup": 3})
    assert second.summary["notes"] == {"noisy": []}
    assert torch.equal(second.outcome.state.server["model"].flat, first.outcome.state.server["model"].flat)


@pytest.mark.parametrize(
    ("rounds", "fields", "round", "weight"),
    [
        (100, {}, 11, 0.8 * math.exp(-5)),  # the paper's round 10 is its eleventh
        (100, {}, 31, 0.8 * math.exp(-5 * 0.25)),  # half way to 50
        (100, {}, 99, 0.8),
        (100, {"ramp_to": 49}, 50, 0.8),
        (100, {"warmup": 20, "ramp_to": 40, "teacher": 0.4}, 21, 0.4 * math.exp(-5)),
        (100, {"warmup": 60}, 61, 0.8),  # half of all rounds are over, so there is no ramp
    ],
)
def test_weight_of_the_teacher(rounds, fields, round, weight):
    method = make_method({"name": "fednoro", **fields}, Train(rounds=rounds))
    assert method.teacher_weight(round) == pytest.approx(weight)


# the search


def test_losses_per_class_by_hand():
    """NaN for classes that a client lacks; a loss that overflowed is large and not missing."""
    fed, method, state = toy.started("fednoro")
    answers = fed.run_on_clients(state, fed.all, method._class_losses, method.make_broadcast(fed, state))
    for client, answer in zip(fed.all, answers, strict=True):
        x, y = toy.images_of(fed.world, client)
        loss = F.cross_entropy(fed.net().predict(state.server["model"], x), y, reduction="none")
        expected = torch.stack([loss[y == k].mean() for k in range(5)])
        torch.testing.assert_close(answer["losses"], expected, rtol=1e-5, atol=0, equal_nan=True)
    state.server["model"] = state.server["model"] * 1e30
    (answer,) = fed.run_on_clients(state, [4], method._class_losses, method.make_broadcast(fed, state))  # one class: 2
    assert answer["losses"].isnan().tolist() == [True, True, False, True, True]


def test_losses_are_made_comparable_by_class():
    nan = math.nan
    rows = np.array([[1.0, nan, 5.0, nan], [3.0, 2.0, 5.0, nan], [nan, 6.0, 5.0, nan]])
    np.testing.assert_array_equal(scale_losses(rows), [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("groups", "high"),
    [
        ([[0, 1, 1], [0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], [0, 1, 1]),  # a tie: the set found first
        ([[1, 1, 1], [1, 1, 1], [0, 0, 1]], [0, 0, 0]),  # the other group is empty: all are clean
    ],
)
def test_the_set_that_most_seeds_find(groups, high, monkeypatch):
    monkeypatch.setattr(stats, "two_groups", lambda values, seed: np.array(groups[seed], float))
    assert majority_group(np.zeros((3, 2)), range(len(groups))).tolist() == [bool(h) for h in high]


def test_noisy_clients_are_found_after_a_warm_up():
    """10 clients of 40 samples, four of them with six labels in ten moved to another class."""
    draw = stream(0, "clients to be found")
    clean = draw.permutation(np.arange(400) % 5)
    x = draw.integers(0, 120, (400, 8, 8))
    x[np.arange(400), clean + 1] += 120
    data = dataclasses.replace(toy.arrays(), x_train=x.astype(np.uint8), y_train=clean)
    labels = clean.copy()
    for client in (1, 4, 5, 8):
        rows = 40 * client + np.flatnonzero(draw.random(40) < 0.6)
        labels[rows] = (labels[rows] + draw.integers(1, 5, len(rows))) % 5
    settings = Train(**{**toy.TRAIN, "fraction": 1.0, "rounds": 8, "epochs": 3})
    world = World(data, labels, toy.toy_partition((40,) * 10), settings, 0)
    fed = Federation(world, Sequential(world))
    method = make_method({"name": "fednoro", "warmup": 6}, settings)
    state = method.init_state(fed)
    for state.round in range(1, 7):
        method.run_round(fed, state)
    assert method.estimate_noise(fed, state) == {}
    method.detect_noisy(fed, state)
    assert state.notes["noisy"] == [1, 4, 5, 8]
    scores = method.estimate_noise(fed, state)["client_noise"]
    assert {c for c, score in scores.items() if score} == {1, 4, 5, 8}


# weights


def test_distances_by_hand():
    """A shift of all numbers by s is a distance of s·sqrt(m) in a tensor of m numbers, running statistics included. The
    nearest clean model counts.
    """
    start = toy.toy_net(toy.normed_body).fresh(torch.Generator().manual_seed(0))
    models = [start.like(start.flat + shift) for shift in (0.0, 0.1, 0.4, 0.0, 1.0)]
    # to the nearest of 0 and 1: .1, .4, 0; over .4
    assert measure_distances(models, [False, True, True, True, False]) == pytest.approx(
        [0.0, 0.25, 1.0, 0.0, 0.0], abs=1e-5
    )
    moved, far = start.clone(), start.like(start.flat + 10)
    moved["head.bias"].add_(3.0)
    moved["norm.running_var"].add_(1.0)
    roots = sum(math.sqrt(t.numel()) for t in start.views.values())
    expected = (3 * math.sqrt(5) + math.sqrt(3)) / (10 * roots)
    assert measure_distances([start, moved, far], [False, True, True]) == pytest.approx([0, expected, 1], rel=1e-4)


@pytest.mark.parametrize(
    ("noisy", "shifts", "far"),
    [
        ([3, 5], {0: 0.0, 3: 0.2, 5: 0.1, 6: 0.0}, [0, 1, 0.5, 0]),
        ([], {0: 0.0, 3: 0.2}, [0, 0]),
        ([0, 3], {0: 0.0, 3: 0.2}, [0, 0]),  # no clean client in the cohort
        ([3], {0: 0.1, 3: 0.1}, [0, 0]),  # no distance
        ([3, 5], {0: 0.0, 6: 0.4}, [0, 0]),  # noisy ones elsewhere
    ],
)
def test_weights_fall_with_the_distance(noisy, shifts, far):
    fed, method, state = toy.started("fednoro")
    state.notes["noisy"] = noisy
    start = state.server["model"]
    updates = [{"model": start.like(start.flat + shift)} for shift in shifts.values()]
    expected = [toy.SIZES[c] * math.exp(-d) for c, d in zip(shifts, far, strict=True)]
    assert method.weigh_updates(fed, state, list(shifts), updates) == pytest.approx(expected, rel=1e-5)

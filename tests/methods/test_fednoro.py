"""FedNoRo: methods.md 5.17. The adjusted loss, the search for noisy clients, the teacher, weights by distance."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core import stats
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import World
from fednoise_core.methods import make
from fednoise_core.methods.fednoro import LARGEST, FedNoRo, adjusted_kl, comparable, distances
from fednoise_core.noise.labels import Labels
from fednoise_core.partition.artifact import Partition
from fednoise_core.rng import stream
from fednoise_core.spec import Train
from fednoise_core.stats import majority_group


def method_of(fed=None, **fields) -> FedNoRo:
    return make({"name": "fednoro", **fields}, fed.train if fed else Train())


def prior_of(client: int) -> torch.Tensor:
    y = toy.labels().noisy[slice(*toy.bounds(client))]
    return torch.from_numpy(np.bincount(y, minlength=5) / len(y))


# the adjusted loss


def by_hand(world, client: int, start, weight: float, lr: float):
    """One full-batch step in float64 with ordinary autograd; the teacher is `start`, weight its share."""
    x, y = toy.images_of(world, client)
    w = {name: v.double().clone().requires_grad_() for name, v in start.views.items()}

    def logits(of):
        return torch.relu(x.double().flatten(1) @ of["hidden.weight"].T + of["hidden.bias"]) @ of["head.weight"].T + of[
            "head.bias"
        ]

    share = prior_of(client)
    log_p = torch.log_softmax(logits(w) + share.log(), 1)
    loss = (1 - weight) * F.nll_loss(log_p, y)
    if weight:
        q = torch.softmax(logits({k: v.detach() for k, v in w.items()}) / 0.8, 1)
        there = share > 0
        loss = loss + weight * (q * (q.log() - log_p))[:, there].sum(1).mean()
    loss.backward()
    return {name: (v - lr * v.grad).detach() for name, v in w.items()}


@pytest.mark.parametrize("client", [0, 7])  # 7 lacks a class
@pytest.mark.parametrize(("verdict", "round", "weight"), [({}, 1, 0.0), ({"noisy": True}, 3, 0.8)])
def test_a_step_by_hand(client, verdict, round, weight):
    assert (prior_of(7) == 0).any()
    world = toy.world({"epochs": 1, "batch": 20, "lr": 0.5})
    fed = Federation(world, Sequential(world))
    method = method_of(fed)
    state = method.init(fed)
    state.round = round
    _, ups = fed.fit(method, state, [client], method.down(fed, state), each=[verdict])
    for name, value in by_hand(world, client, state.server["model"], weight, 0.5).items():
        torch.testing.assert_close(ups[0]["model"][name].double(), value, rtol=1e-4, atol=1e-6)


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
    whole = torch.full((5,), 0.2, dtype=torch.float64).log()
    usual = F.kl_div(torch.log_softmax(z.detach() + whole, 1), q, reduction="none").sum(1)
    torch.testing.assert_close(adjusted_kl(q, z.detach() + whole, whole).double(), usual, rtol=1e-5, atol=1e-6)


def balanced() -> tuple[Labels, Partition]:
    """Every client holds each class as often as any other."""
    sizes, given = (15, 5, 0, 10, 10, 15, 10, 10), np.arange(toy.N) % 5
    clean = toy.arrays().y_train
    rate = float((given != clean).mean())
    return dataclasses.replace(toy.labels(), noisy=given, clean=clean, rate=rate), toy.partition(sizes)


def test_with_balanced_clients_the_adjustment_changes_nothing():
    given, split = balanced()
    made = [
        toy.play(name, given=given, split=split, method=fields).outcome.state.server["model"].flat
        for name, fields in (("fednoro", {"warmup": 3}), ("fedavg", {}))
    ]
    torch.testing.assert_close(*made, rtol=0, atol=1e-6)


def test_without_noisy_clients_and_teacher_the_second_stage_is_the_first(monkeypatch):
    nobody = np.zeros(7, bool)
    monkeypatch.setattr("fednoise_core.methods.fednoro.majority_group", lambda points, seeds: nobody)
    second = toy.play("fednoro", method={"warmup": 1, "teacher": 0.0})
    first = toy.play("fednoro", method={"warmup": 3})
    assert second.summary["notes"] == {"noisy": []}
    assert torch.equal(second.outcome.state.server["model"].flat, first.outcome.state.server["model"].flat)


def test_without_a_teachers_weight_a_noisy_client_trains_as_a_clean_one():
    fed = toy.federation()
    method = method_of(fed, teacher=0.0)
    state = method.init(fed)
    state.round = 3
    both = [
        fed.fit(method, state, [0, 5], method.down(fed, state), each=[verdict] * 2, tag="same").ups
        for fed, verdict in ((fed, {}), (toy.federation(), {"noisy": True}))
    ]
    for clean, noisy in zip(*both, strict=True):
        torch.testing.assert_close(noisy["model"].flat, clean["model"].flat, rtol=0, atol=1e-6)


# the teacher's weight, and phases


@pytest.mark.parametrize(
    ("rounds", "fields", "round", "weight"),
    [
        (100, {}, 11, 0.8 * math.exp(-5)),  # the paper's round 10 is its eleventh
        (100, {}, 31, 0.8 * math.exp(-5 * 0.25)),  # half way to 50
        (100, {}, 51, 0.8),
        (100, {}, 99, 0.8),
        (100, {"ramp_to": 49}, 50, 0.8),
        (100, {"warmup": 20, "ramp_to": 40, "teacher": 0.4}, 21, 0.4 * math.exp(-5)),
        (100, {"warmup": 20, "ramp_from": 30, "ramp_to": 40}, 25, 0.8 * math.exp(-5)),
        (100, {"warmup": 0.2, "ramp_from": 0.3, "ramp_to": 0.7}, 51, 0.8 * math.exp(-5 * 0.25)),  # shares
        (100, {"warmup": 60}, 61, 0.8),  # half of all is over: at once
        (3, {}, 2, 0.8 * math.exp(-5)),
        (3, {}, 3, 0.8),
    ],
)
def test_weight_of_the_teacher(rounds, fields, round, weight):
    method = make({"name": "fednoro", **fields}, Train(rounds=rounds))
    assert method.teacher_weight(round) == pytest.approx(weight)


@pytest.mark.parametrize(
    ("rounds", "warmup", "ends"), [(100, 0, (10, 100)), (120, 20, (20, 120)), (50, 0.3, (15, 50)), (5, 9, (5, 5))]
)
def test_phases(rounds, warmup, ends):
    phases = make({"name": "fednoro", "warmup": warmup}, Train(rounds=rounds)).phases(toy.federation())
    assert [(p.name, p.end) for p in phases] == list(zip(("warm-up", "distil"), ends, strict=True))


def test_only_noisy_clients_of_the_second_stage_hear_so(monkeypatch):
    heard: dict[int, set[int]] = {}
    work = Sequential.run

    def watched(self, requests):
        for one in requests:
            heard.setdefault(one.round, set()).update({one.client} if "noisy" in one.down else ())
        return work(self, requests)

    monkeypatch.setattr(Sequential, "run", watched)
    made = toy.play("fednoro")
    noisy = set(made.summary["notes"]["noisy"])
    assert heard == {1: set()} | {r: noisy & set(made.outcome.fed.sample(r)) for r in (2, 3)}
    rows = {row[0]: row[6] for row in made.outcome.record.metrics if row[5] == "noisy_clients"}
    assert rows == {r: len(heard[r]) for r in (2, 3)}


# the search


def test_losses_per_class_by_hand():
    fed = toy.federation()
    method = method_of(fed)
    state = method.init(fed)
    answers = fed.on_clients(state, fed.all, method._class_losses, method.down(fed, state))
    for client, said in zip(fed.all, answers, strict=True):
        x, y = toy.images_of(fed._world, client)
        loss = F.cross_entropy(fed.net().predict(state.server["model"], x), y, reduction="none")
        assert said["losses"].dtype == torch.float32
        for k in range(5):
            if (y == k).any():
                assert float(said["losses"][k]) == pytest.approx(float(loss[y == k].mean()), rel=1e-5)
            else:
                assert math.isnan(said["losses"][k])


def test_losses_that_overflow_are_large_and_not_missing():
    fed = toy.federation()
    method = method_of(fed)
    state = method.init(fed)
    state.server["model"] = state.server["model"] * 1e30
    (said,) = fed.on_clients(state, [4], method._class_losses, method.down(fed, state))  # one class: 2
    assert said["losses"].isnan().tolist() == [True, True, False, True, True]
    assert 0 <= said["losses"][2] <= LARGEST * 1.01
    points = comparable(np.array([[0.1, 0.2], [0.2, LARGEST], [0.3, 0.1]]))
    np.testing.assert_allclose(points, [[0, 0], [0.5, 1], [1, 0]], atol=1e-12)


def test_losses_are_made_comparable_by_class():
    nan = math.nan
    rows = np.array([[1.0, nan, 5.0, nan], [3.0, 2.0, 5.0, nan], [nan, 6.0, 5.0, nan]])
    np.testing.assert_array_equal(comparable(rows), [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("found", "high"),
    [
        ([[0, 1, 1], [0, 0, 1], [0, 0, 1]], [0, 0, 1]),
        ([[0, 1, 1], [0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], [0, 1, 1]),  # a tie: the set found first
        ([[1, 1, 1], [1, 1, 1], [0, 0, 1]], [0, 0, 0]),  # the other group is empty: all are clean
        ([[0, 0, 0]], [0, 0, 0]),
    ],
)
def test_the_set_that_most_seeds_find(found, high, monkeypatch):
    monkeypatch.setattr(stats, "two_groups", lambda values, seed: np.array(found[seed], float))
    assert majority_group(np.zeros((3, 2)), range(len(found))).tolist() == [bool(h) for h in high]


@pytest.mark.parametrize("seed", range(5))
def test_the_mixture_on_separable_clients(seed):
    """20 clients, 10 classes, each client lacks three; noisy ones lose more on the classes that they have."""
    draw = stream(seed, "separable clients")
    noisy = draw.permutation(20) < 6
    rows = draw.normal(0.5, 0.05, (20, 10)) + 1.5 * noisy[:, None]
    for row in rows:
        row[draw.choice(10, 3, replace=False)] = math.nan
    assert majority_group(comparable(rows), range(9)).tolist() == noisy.tolist()


def test_noisy_clients_are_found_after_a_warm_up():
    """10 clients of 40 samples, four of them with six labels in ten moved to another class."""
    draw = stream(0, "clients to be found")
    clean = draw.permutation(np.arange(400) % 5)
    x = draw.integers(0, 120, (400, 8, 8))
    x[np.arange(400), clean + 1] += 120
    data = dataclasses.replace(toy.arrays(), x_train=x.astype(np.uint8), y_train=clean)
    given = clean.copy()
    for client in (1, 4, 5, 8):
        rows = 40 * client + np.flatnonzero(draw.random(40) < 0.6)
        given[rows] = (given[rows] + draw.integers(1, 5, len(rows))) % 5
    split = toy.partition((40,) * 10)
    how = Train(**{**toy.TRAIN, "fraction": 1.0, "rounds": 8, "epochs": 3})
    world = World(data, given, split, how, 0)
    fed = Federation(world, Sequential(world))
    method = method_of(fed, warmup=6)
    state = method.init(fed)
    for _ in range(6):
        state.round += 1
        method.round(fed, state)
    assert method.estimates(fed, state) == {}
    method.detect(fed, state)
    assert state.notes["noisy"] == [1, 4, 5, 8]
    found = method.estimates(fed, state)["client_noise"]
    assert {c for c, score in found.items() if score} == {1, 4, 5, 8}


# weights


def some_models(*shifts: float):
    fed = toy.federation()
    start = fed.fresh("model")
    return [start.like(start.flat + shift) for shift in shifts]


def test_distances_by_hand():
    """A shift s of all numbers is s·sqrt(m) apart in a tensor of m; the nearest clean model counts."""
    models = some_models(0.0, 0.1, 0.4, 0.0, 1.0)
    noisy = [False, True, True, True, False]
    # to the nearest of 0 and 1: .1, .4, 0; over .4
    assert distances(models, noisy) == pytest.approx([0.0, 0.25, 1.0, 0.0, 0.0], abs=1e-5)
    start, moved = models[0], models[0].clone()
    moved["head.bias"].add_(3.0)
    moved["hidden.bias"].add_(1.0)
    far = some_models(10.0)[0]
    roots = sum(math.sqrt(t.numel()) for t in start.views.values())
    expected = (3 * math.sqrt(5) + math.sqrt(6)) / (10 * roots)
    assert distances([start, moved, far], [False, True, True]) == pytest.approx([0, expected, 1], rel=1e-4)


def test_running_statistics_count():
    net = toy.net(toy.normed)
    start = net.fresh(torch.Generator().manual_seed(0))
    other, far = start.clone(), start.clone()
    other["norm.running_var"].add_(1.0)
    far["norm.running_var"].add_(2.0)
    assert distances([start, other, far], [False, True, True]) == pytest.approx([0, 0.5, 1])


def weighed(noisy: list[int], shifts: dict[int, float]):
    fed = toy.federation()
    method = method_of(fed)
    state = method.init(fed)
    state.notes["noisy"] = noisy
    who = list(shifts)
    ups = [{"model": model} for model in some_models(*shifts.values())]
    plain = [float(toy.SIZES[c]) for c in who]
    return method.weights(fed, state, who, ups), plain


def test_weights_fall_with_the_distance_and_sum_to_one():
    found, plain = weighed([3, 5], {0: 0.0, 3: 0.2, 5: 0.1, 6: 0.0})
    expected = [n * math.exp(-d) for n, d in zip(plain, (0, 1, 0.5, 0), strict=True)]
    assert found == pytest.approx(expected, rel=1e-5)
    assert sum(w / sum(found) for w in found) == pytest.approx(1, abs=1e-12)
    assert min(found) > 0


@pytest.mark.parametrize(
    ("noisy", "shifts"),
    [
        ([], {0: 0.0, 3: 0.2}),
        ([0, 3], {0: 0.0, 3: 0.2}),  # no clean client in the cohort
        ([3], {0: 0.1, 3: 0.1}),  # no distance
        ([3, 5], {0: 0.0, 6: 0.4}),  # noisy ones elsewhere
    ],
)
def test_else_they_are_fedavgs(noisy, shifts):
    found, plain = weighed(noisy, shifts)
    assert found == plain


def test_the_merge_uses_them():
    fed = toy.federation()
    method = method_of(fed)
    state = method.init(fed)
    state.notes["noisy"] = [3]
    models = some_models(0.0, 0.3)
    method.merge(fed, state, [0, 3], [{"model": m} for m in models])
    share = 12 * math.exp(-1) / (17 + 12 * math.exp(-1))
    torch.testing.assert_close(state.server["model"].flat, models[0].flat + 0.3 * share, rtol=0, atol=1e-6)

"""The prestop rule on scripted accuracies, the measured accuracy, and the phases."""

from typing import Any

import pytest
import torch
import toy

RISING = [0.1, 0.2, 0.3, 0.35, 0.34, 0.35, 0.33, 0.36, 0.35, 0.34, 0.33, 0.32]


def stop(script: list[float], **fields: Any) -> int:
    """The round in which the rule ends phase 1; 0: never."""
    _, method, state = toy.started("forward_prestop", fields)
    for state.round, accuracy in enumerate(script, 1):
        state.notes["prestop"] = method._count_watched(state, accuracy)
        if state.notes["prestop"]["round"]:
            break
    return state.notes["prestop"]["round"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # best: .1 .2 .3 .35 rise; .34, .35 (a tie), .33 are three misses
        ({"start": 1, "patience": 3}, 7),
        # with ties as rises: .35 rises, .33 misses, .36 rises, then .35, .34, .33
        ({"start": 1, "patience": 3, "tie": "reset"}, 11),
        # the best starts at 0 with the first counted round: .34 of round 5, .35, miss .33, .36, then three misses
        ({"start": 4, "patience": 3}, 11),
        # only from round 9 on: .35 rises above 0, then .34, .33, .32
        ({"start": 8, "patience": 3}, 12),
        # the previous round: .34 falls, .35 rises, .33 falls, .36 rises, then four falls
        ({"start": 1, "patience": 3, "compare": "previous"}, 11),
        # and the round before the first counted one is looked at: .34 < .35
        ({"start": 4, "patience": 1, "compare": "previous"}, 5),
        ({"start": 1, "patience": 5}, 0),
        ({"start": 1, "patience": 5, "latest": 9}, 9),
    ],
)
def test_the_rule_on_a_scripted_curve(options, expected):
    assert stop(RISING, **options) == expected


def test_a_curve_that_rises_never_stops_it():
    assert stop([k / 100 for k in range(1, 100)], start=1, patience=1) == 0
    assert stop([0.0] * 5, start=1, patience=4) == 5  # an accuracy of 0 is no rise
    assert stop([0.5] * 5, start=1, patience=1, compare="previous", tie="reset") == 0


def scripted(monkeypatch: pytest.MonkeyPatch, script: list[float], **fields):
    """A whole run in which the mean accuracy of round t is script[t - 1]."""
    from fednoise_core.methods.prestop import Prestop

    inner = Prestop._count_watched
    monkeypatch.setattr(Prestop, "_count_watched", lambda self, state, _: inner(self, state, script[state.round - 1]))
    return toy.play("forward_prestop", method={"latest": 0, **fields}, rounds=len(script))


def test_the_run_changes_phase_in_the_round_after_the_stop(monkeypatch):
    run = scripted(monkeypatch, [0.5, 0.6, 0.4, 0.5, 0.7, 0.8], start=1, patience=2)
    assert run.summary["notes"]["prestop"]["round"] == 4
    first, second = {"name": "watch", "first": 1, "last": 4}, {"name": "corrected", "first": 5, "last": 6}
    assert run.summary["phases"] == [first, second]
    rows = {(row[0], row[5]): row for row in run.outcome.record.metrics if row[3] == ""}
    assert [rows[t, "clients"][2] for t in range(1, 7)] == ["watch"] * 4 + ["corrected"] * 2
    assert [rows[t, "watched_accuracy"][6] for t in range(1, 5)] == [0.5, 0.6, 0.4, 0.5]
    assert (5, "watched_accuracy") not in rows


@pytest.mark.parametrize("name", ["forward_prestop", "confident_prestop", "fedefc"])
@pytest.mark.parametrize("monitor", ["train", "pre_eval"])
def test_before_the_stop_and_with_endless_patience_it_is_fedavg_bit_for_bit(name, monitor):
    never = toy.play(name, method={"latest": 0, "patience": 99, "monitor": monitor})
    plain = toy.play("fedavg")
    assert never.summary["notes"]["prestop"]["round"] == 0
    assert toy.same_state(never.outcome.state.server, plain.outcome.state.server)
    assert never.curve == plain.curve
    once = toy.play(name, method={"latest": 2, "monitor": monitor})
    assert once.curve[:3] == plain.curve[:3]
    assert never.suspects == plain.suspects  # no estimate if phase 1 never ended


def test_the_default_start_is_a_fifth_of_the_rounds():
    _, method, state = toy.started("forward_prestop", {"patience": 1}, train={"rounds": 200})
    for state.round, stops in ((40, 0), (41, 0), (42, 42)):  # 41 rises above 0
        state.notes["prestop"] = method._count_watched(state, 0.3)
        assert state.notes["prestop"]["round"] == stops


def test_training_accuracy_is_that_of_the_batches_as_they_pass():
    """Two batches by hand: the second is seen after the step on the first. One epoch, so the order is the fit's."""
    fed, method, state = toy.started(
        "forward_prestop", train={"epochs": 1, "batch": 9}, net=toy.toy_net(toy.linear_body)
    )
    right, inner = [], method.train_step

    def watching(net, carry, batch, broadcast, client_state):
        right.append((net.predict(carry["model"].values(), batch.x).argmax(1) == batch.y).float().sum())
        inner(net, carry, batch, broadcast, client_state)

    object.__setattr__(method, "train_step", watching)
    _, updates = fed.fit(method, state, [0], method.make_broadcast(fed, state))
    assert len(right) == 2
    torch.testing.assert_close(updates[0]["accuracy"], torch.stack(right).sum()[None] / 17)


def test_accuracy_before_training_is_that_of_the_broadcast_model():
    fed, method, state = toy.started("confident_prestop", {"monitor": "pre_eval"})
    clients, updates = fed.fit(method, state, [0, 1, 3], method.make_broadcast(fed, state))
    for client, update in zip(clients, updates, strict=True):
        x, y = toy.images_of(fed.world, client)
        accuracy = (fed.net(0).predict(state.server["model"], x).argmax(1) == y).float().mean()
        torch.testing.assert_close(update["accuracy"], accuracy[None])
    method.merge_updates(fed, state, clients, updates)
    mean = sum(float(update["accuracy"]) for update in updates) / 3  # of clients, not of samples
    assert state.notes["prestop"]["accuracy"] == pytest.approx(mean)


def test_a_client_that_takes_no_step_sends_no_accuracy():
    """Client 1 has one sample, which this net cannot normalise."""
    fed, method, state = toy.started("forward_prestop", net=toy.toy_net(toy.normed_point))
    clients, updates = fed.fit(method, state, [0, 1], method.make_broadcast(fed, state))
    assert ["accuracy" in update for update in updates] == [True, False]
    method.merge_updates(fed, state, clients, updates)
    assert state.notes["prestop"]["accuracy"] == pytest.approx(float(updates[0]["accuracy"]))
    method.merge_updates(fed, state, [1], updates[1:])  # no accuracy: the rule waits
    assert state.notes["prestop"]["misses"] == 0

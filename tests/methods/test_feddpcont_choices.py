"""FedDPCont: where contrastive labels are drawn from, and the schedule of their weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toy

from fednoise_core.engine.loop import Saving
from fednoise_core.methods import make
from fednoise_core.spec import Train

GIVEN = toy.labels().noisy[: sum(toy.SIZES)]
SHARES = np.bincount(GIVEN, minlength=5) / len(GIVEN)


def started(fields, **train):
    fed = toy.federation(train=train)
    method = make({"name": "feddpcont", **fields}, fed.train)
    return fed, method, method.init(fed)


# draw


def test_local_labels_are_the_clients_own():
    fed, method, state = started({"draw": "local"})
    for c in fed.all:
        held = np.bincount(toy.images_of(fed._world, c)[1].numpy(), minlength=5)
        np.testing.assert_allclose(state.clients[c]["prior"].numpy(), held / held.sum(), rtol=1e-6)
    assert method.estimates(fed, state) == {}


@pytest.mark.parametrize("draw", ["local", "uniform"])
def test_without_global_labels_nothing_crosses(draw):
    """FedAvg's traffic, no budget, nothing released."""
    made, plain = toy.play("feddpcont", method={"draw": draw}), toy.play("fedavg")
    assert [made.summary[key] for key in ("bytes_up", "bytes_down", "epsilon")] == [
        plain.summary["bytes_up"],
        plain.summary["bytes_down"],
        None,
    ]
    assert not {"release", "prior"} & {*made.outcome.state.notes, *made.outcome.state.server}


def test_a_client_of_one_class_learns_nothing_from_its_own_labels():
    """8.3: label and contrast are the same, so the loss is 0 whatever the model; with global labels it is not."""
    moved = {}
    for draw in ("local", "global"):
        fed, method, state = started({"draw": draw, "dp": "none"})
        start = state.server["model"].clone()
        moved[draw] = (toy.round_of(method, fed, state, [4])[0]["model"].flat - start.flat).abs().max()
    assert moved["local"] < 1e-6 < 1e-2 < moved["global"]


# the release

ANEW = {"release": "every_round", "keep": 0.6}


def test_a_release_in_every_round_is_paid_for_in_every_round():
    """Histograms of 5 counts up from all 7 clients, not only from the cohort's 4; epsilon and the prior down."""
    runs = (toy.play("feddpcont", method=ANEW), toy.play("feddpcont", method={"keep": 0.6}), toy.play("fedavg"))
    anew, once, plain = (run.summary for run in runs)
    assert anew["epsilon"] == pytest.approx(3 * np.log(6))
    assert anew["epsilon_a_release"] == once["epsilon"] == pytest.approx(np.log(6))
    assert anew["releases_of_a_label"] == 3
    assert anew["bytes_up"] - plain["bytes_up"] == 3 * 7 * 5 * 8
    assert anew["bytes_down"] - plain["bytes_down"] == 3 * 7 * (8 + 5 * 4)


@pytest.mark.parametrize("how", [{}, {"executor": "workers"}], ids=["sequential", "workers"])
def test_a_killed_run_releases_the_same_again(how, tmp_path):
    saving = Saving(tmp_path / "checkpoint.pt", "key", rounds=2)
    whole = toy.play("feddpcont", method=ANEW, saving=saving)
    resumed = toy.play("feddpcont", method=ANEW, saving=saving, **how)
    assert resumed.outcome.resumed == 2
    assert toy.same(resumed.outcome.state, whole.outcome.state)
    assert resumed.outcome.state.notes["release"] == whole.outcome.state.notes["release"]
    assert resumed.summary["epsilon"] == pytest.approx(3 * np.log(6))


@pytest.mark.parametrize("fields", [ANEW, {"keep": 0.6, "debias": False}], ids=["every round", "as released"])
def test_suspects_lose_against_what_was_released_last(fields):
    fed, method, state = started(fields)
    state.round = 1
    method.round(fed, state)
    p, proposed = fed.on_clients(state, [3], method.suspects, method.down(fed, state))[0]
    x, y = toy.images_of(fed._world, 3)
    logp = torch.log_softmax(fed.net().predict(state.server["model"], x), 1)
    torch.testing.assert_close(
        p, torch.sigmoid(-logp[range(len(y)), y] + logp @ state.server["prior"]), rtol=1e-4, atol=1e-5
    )
    assert torch.equal(proposed, logp.argmax(1))


# the schedule

CORES = [*np.zeros(10), *np.linspace(0, 2, 30), *np.full(60, 2)]


@pytest.mark.parametrize(
    ("fields", "rounds", "betas"),
    [
        ({}, 100, CORES),
        ({"beta": 0.5}, 100, np.array(CORES) / 4),
        ({"beta_start": 2, "beta_rise": 3}, 7, [0, 0, 0, 1, 2, 2, 2]),
        ({"beta_start": 0.2, "beta_rise": 0.3}, 10, [0, 0, 0, 1, 2, 2, 2, 2, 2, 2]),
        ({"beta_start": 2, "beta_rise": 1}, 4, [0, 0, 0, 2]),
        ({}, 3, [0, 0, 2]),  # a tenth and three tenths of three rounds: one each
        ({"beta_start": 9}, 4, [0, 0, 0, 0]),
        ({"beta_start": 0.25, "beta_rise": 0.5}, 8, [0, 0, 0, 2 / 3, 4 / 3, 2, 2, 2]),
    ],
)
def test_the_weight_of_each_round(fields, rounds, betas):
    method = make({"name": "feddpcont", "beta_schedule": "cores", **fields}, Train(rounds=rounds))
    assert [method.weight(t) for t in range(1, rounds + 1)] == pytest.approx(list(betas))


def test_the_schedule_stands_in_metrics_and_phases():
    fields = {"beta_schedule": "cores", "beta_start": 2, "beta_rise": 2, "draw": "uniform"}
    made = toy.play("feddpcont", method=fields, rounds=5)
    rows = [row for row in made.outcome.record.metrics if row[5] == "beta"]
    assert [(row[0], row[2], row[6]) for row in rows] == [
        (1, "plain", 0.0),
        (2, "plain", 0.0),
        (3, "rise", 0.0),
        (4, "rise", 2.0),
        (5, "contrast", 2.0),
    ]
    fixed = toy.play("feddpcont", method={"draw": "uniform"}, rounds=2)
    assert not [row for row in fixed.outcome.record.metrics if row[5] == "beta"]


@pytest.mark.parametrize("beta_lr", [False, True])
def test_before_the_rise_it_is_fedavg_bit_for_bit(beta_lr):
    fields = {"beta_schedule": "cores", "beta_start": 2, "beta_rise": 1, "beta_lr": beta_lr}
    plain = [toy.play("fedavg", rounds=r).outcome.state.server["model"].flat for r in (3, 4)]
    assert torch.equal(toy.play("feddpcont", method=fields, rounds=3).outcome.state.server["model"].flat, plain[0])
    assert not torch.equal(toy.play("feddpcont", method=fields, rounds=4).outcome.state.server["model"].flat, plain[1])


def test_the_schedule_in_worker_processes():
    fields = {"beta_schedule": "cores", "beta_start": 1, "beta_rise": 2, "beta_lr": True, "draw": "local"}
    runs = [toy.play("feddpcont", method=fields, rounds=4, **how) for how in ({}, {"executor": "workers"})]
    assert toy.same(*(run.outcome.state for run in runs))

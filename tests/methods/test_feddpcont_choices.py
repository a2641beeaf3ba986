"""FedDPCont: where contrastive labels are drawn from, and the schedule of their weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toy

from fednoise_core.io import SpecError
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


def test_uniform_labels_err_by_what_the_classes_differ():
    made = toy.play("feddpcont", method={"draw": "uniform"})
    assert made.summary["diagnostics"]["prior_error"] == pytest.approx(np.abs(SHARES - 0.2).sum(), abs=1e-6)
    assert all(torch.equal(kept["prior"], torch.full((5,), 0.2)) for kept in made.outcome.state.clients.values())


def test_a_client_of_one_class_learns_nothing_from_its_own_labels():
    """8.3: label and contrast are the same, so the loss is 0 whatever the model; with global labels it is not."""
    moved = {}
    for draw in ("local", "global"):
        fed, method, state = started({"draw": draw, "dp": "none"})
        start = state.server["model"].clone()
        moved[draw] = (toy.round_of(method, fed, state, [4])[0]["model"].flat - start.flat).abs().max()
    assert moved["local"] < 1e-6 < 1e-2 < moved["global"]


@pytest.mark.parametrize("draw", ["local", "uniform"])
def test_a_budget_without_a_release_is_refused(draw):
    with pytest.raises(SpecError, match=rf"method\.epsilon: draw '{draw}' releases no label"):
        started({"draw": draw, "epsilon": 1.0})


def test_a_budget_for_exact_counts_is_refused():
    """Else a run that is thought to be private would not be."""
    with pytest.raises(SpecError, match=r"method\.epsilon: dp 'none' sends exact counts"):
        started({"dp": "none", "epsilon": 1.0})


def test_the_server_step():
    """theta_g + alpha_g sum w_c (theta_c - theta_g), the erratum's sign."""
    fed, method, state = started({"server_lr": 0.25, "draw": "local"})
    start = state.server["model"].trained.clone()
    ups = toy.round_of(method, fed, state, [0, 3])
    mean = (17 * ups[0]["model"].trained + 12 * ups[1]["model"].trained) / 29
    torch.testing.assert_close(state.server["model"].trained, start + 0.25 * (mean - start), rtol=0, atol=1e-6)


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


def test_steps_take_the_rounds_weight():
    """Once risen, the schedule is a constant weight."""
    schedule = {"beta_schedule": "cores", "beta_start": 1, "beta_rise": 1}
    risen, fixed, half = (
        started({"draw": "uniform", **fields}, rounds=9) for fields in (schedule, {"beta": 2.0}, {"beta": 1.0})
    )
    after = []
    for fed, method, state in (risen, fixed, half):
        state.round = 4
        after.append(toy.round_of(method, fed, state, [0])[0]["model"].flat)
    assert torch.equal(after[0], after[1])
    assert not torch.equal(after[0], after[2])


def test_the_rate_is_divided_by_one_plus_beta():
    halved = toy.play("feddpcont", method={"beta_lr": True}, lr=0.2).outcome.state
    assert torch.equal(halved.server["model"].flat, toy.play("feddpcont", lr=0.1).outcome.state.server["model"].flat)


def test_the_schedule_in_worker_processes():
    fields = {"beta_schedule": "cores", "beta_start": 1, "beta_rise": 2, "beta_lr": True, "draw": "local"}
    runs = [toy.play("feddpcont", method=fields, rounds=4, **how) for how in ({}, {"executor": "workers"})]
    assert toy.same(*(run.outcome.state for run in runs))

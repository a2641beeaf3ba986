"""FedDPCont: the label release, sources of contrastive labels, and the schedule of their weight."""

import math

import numpy as np
import pytest
import torch
import toy

from fednoise_core.engine.loop import Saving
from fednoise_core.io import SpecError
from fednoise_core.methods import make_method
from fednoise_core.ops import losses
from fednoise_core.settings.train import Train

PRIOR = torch.tensor([0.1, 0.4, 0.2, 0.3, 0.0])


def method_of(**fields):
    return make_method({"name": "feddpcont", **fields}, Train())


def started(fields, **train):
    return toy.started("feddpcont", fields, train=train)


def contrast(method, logits, u, prior=PRIOR):
    return method._contrast_loss(logits, u, prior)


@pytest.mark.parametrize("train", [{}, {"augment": "flip", "net": "toy_drop"}])
@pytest.mark.parametrize("mode", ["sample", "expect"])
def test_without_contrast_it_is_fedavg_bit_for_bit(train, mode, toy_nets):
    plain = toy.play("fedavg", **train).outcome.state.server
    contrastive = toy.play("feddpcont", method={"beta": 0.0, "mode": mode}, **train).outcome.state.server
    assert toy.same_state(contrastive["model"], plain["model"])


def test_with_beta_one_the_partition_function_cancels():
    """l = CE(z, y) - CE(z, y') = z_y' - z_y, and its gradient is e_y' - e_y, whatever the logits."""
    draw = torch.Generator().manual_seed(0)
    z, u = torch.randn(17, 5, generator=draw).requires_grad_(), torch.rand(17, 1, generator=draw)
    y, drawn = torch.arange(17) % 5, torch.bucketize(u[:, 0], PRIOR.cumsum(0), right=True)
    value = losses.ce(z, y) - contrast(method_of(neg_log_floor=0.0), z, u)
    torch.testing.assert_close(value, (z.gather(1, drawn[:, None]) - z.gather(1, y[:, None])).squeeze(1))
    value.sum().backward()
    torch.testing.assert_close(z.grad, torch.eye(5)[drawn] - torch.eye(5)[y], rtol=0, atol=1e-6)


def test_labels_are_drawn_from_the_prior():
    method = method_of(neg_log_floor=0.0)
    u = (torch.arange(1000.0)[:, None] + 0.5) / 1000
    z = torch.arange(5.0).repeat(1000, 1) * 10  # the cross entropy identifies the class
    drawn = ((40 - contrast(method, z, u)) / 10).round().long()
    assert np.bincount(drawn.numpy(), minlength=5).tolist() == [100, 400, 200, 300, 0]
    edges = torch.tensor([[0.0], [1 - 2**-24]])
    first_empty = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0])
    picked = ((40 - contrast(method, z[:2], edges, first_empty)) / 10).round().long()
    assert picked.tolist() == [1, 2]  # never a class of probability 0


def test_the_contrast_is_bounded_per_class():
    z = torch.tensor([[100.0, 0.0, 0.0, 0.0, 0.0]])
    u = torch.tensor([[0.3]])  # draws class 1
    assert contrast(method_of(), z, u).item() == pytest.approx(18.420680743952367)
    assert contrast(method_of(neg_log_floor=0.0), z, u).item() == pytest.approx(100.0)
    assert contrast(method_of(neg_log_floor=3.0, mode="expect"), z, u).item() == pytest.approx(0.9 * 3.0)


# the release


def test_all_clients_receive_the_prior():
    fed, _, state = started({"keep": 0.5})
    assert all(toy.same_state(state.clients[c]["prior"], state.server["prior"]) for c in fed.all)


@pytest.mark.parametrize(
    ("fields", "epsilon"),
    [
        ({"keep": 0.5}, math.log(4)),
        ({"epsilon": 0.7}, 0.7),
        ({"epsilon": 0.7, "keep": 0.9}, 0.7),
        ({"dp": "none"}, None),
    ],
)
def test_epsilon_stands_in_the_summary(fields, epsilon):
    """keep = p: epsilon = ln(p (K - 1)/(1 - p))."""
    summary = toy.play("feddpcont", method=fields).summary
    assert summary["epsilon"] == (None if epsilon is None else pytest.approx(epsilon))
    assert "release" not in summary["notes"]
    assert (summary["diagnostics"]["prior_error"] < 1e-6) == (epsilon is None)


def test_no_second_release():
    fed, _, state = started({"keep": 0.5})
    state.round = 1
    with pytest.raises(RuntimeError, match=r"as often as allowed \(1\)"):
        fed.release_labels(state, 1.0)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"keep": 0.2}, "keep"),  # no information about five classes
        ({"draw": "local", "epsilon": 1.0}, "epsilon"),
        ({"dp": "none", "epsilon": 1.0}, "epsilon"),  # the run would not be private
        ({"draw": "uniform", "release": "every_round"}, "release"),
        ({"dp": "none", "release": "every_round"}, "release"),
    ],
)
def test_meaningless_privacy_settings_are_refused(fields, key):
    with pytest.raises(SpecError, match=rf"{key}: "):
        toy.play("feddpcont", method=fields)


# draw


def test_local_and_uniform_labels():
    (fed, local, local_state), (_, uniform, uniform_state) = started({"draw": "local"}), started({"draw": "uniform"})
    for c in fed.all:
        counts = torch.bincount(toy.images_of(fed.world, c)[1], minlength=5)
        torch.testing.assert_close(local_state.clients[c]["prior"], counts / counts.sum())
        assert torch.equal(uniform_state.clients[c]["prior"], torch.full((5,), 0.2))
    assert local.estimate_noise(fed, local_state) == {}
    assert torch.equal(uniform.estimate_noise(fed, uniform_state)["label_prior"], torch.full((5,), 0.2))


@pytest.mark.parametrize("draw", ["local", "uniform"])
def test_without_global_labels_nothing_is_released(draw):
    """The traffic is that of FedAvg, and no budget is spent."""
    run, plain = toy.play("feddpcont", method={"draw": draw}), toy.play("fedavg")
    assert all(run.summary[key] == plain.summary[key] for key in ("bytes_up", "bytes_down", "epsilon"))
    assert not {"release", "prior"} & {*run.outcome.state.notes, *run.outcome.state.server}


def test_a_client_of_one_class_learns_nothing_from_its_own_labels():
    """8.3: label and contrast are equal, so the loss is 0 for every model. With global labels it is not."""
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
    run = toy.play("feddpcont", method={**ANEW, "keep": 0.9}, rounds=5)
    anew, plain = run.summary, toy.play("fedavg", rounds=5).summary
    assert anew["epsilon_a_release"] == pytest.approx(np.log(36))
    assert anew["epsilon"] == pytest.approx(5 * np.log(36))
    assert anew["releases_of_a_label"] == 5
    assert anew["bytes_up"] - plain["bytes_up"] == 5 * 7 * 5 * 8
    assert anew["bytes_down"] - plain["bytes_down"] == 5 * 7 * (8 + 5 * 4)
    errors = {row[0]: row[3] for row in run.outcome.record.diagnostics if row[2] == "prior_error"}
    assert sorted(errors) == [1, 2, 3, 4, 5]  # no estimate before the first round
    assert len(set(errors.values())) > 3
    states = run.outcome.state.clients.values()
    assert all(toy.same_state(state["prior"], run.outcome.state.server["prior"]) for state in states)


@pytest.mark.parametrize("options", [{}, {"executor": "workers"}], ids=["sequential", "workers"])
def test_a_killed_run_releases_the_same_again(options, tmp_path):
    saving = Saving(tmp_path / "checkpoint.pt", "key", rounds=2)
    full_run = toy.play("feddpcont", method=ANEW, saving=saving)
    resumed = toy.play("feddpcont", method=ANEW, saving=saving, **options)
    assert resumed.outcome.resumed == 2
    assert toy.same_state(resumed.outcome.state, full_run.outcome.state)
    assert resumed.outcome.state.notes["release"] == full_run.outcome.state.notes["release"]
    assert resumed.summary["epsilon"] == pytest.approx(3 * np.log(6))


@pytest.mark.parametrize("fields", [ANEW, {"dp": "none"}])
def test_suspects_are_judged_by_the_last_release(fields):
    fed, method, state = started(fields)
    state.round = 1
    method.run_round(fed, state)
    p, proposed = fed.run_on_clients(state, [3], method.suspect_labels, method.make_broadcast(fed, state))[0]
    x, y = toy.images_of(fed.world, 3)
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
    method = make_method({"name": "feddpcont", "beta_schedule": "cores", **fields}, Train(rounds=rounds))
    assert [method.weight(t) for t in range(1, rounds + 1)] == pytest.approx(list(betas))


def test_the_schedule_stands_in_metrics_and_phases():
    fields = {"beta_schedule": "cores", "beta_start": 2, "beta_rise": 2, "draw": "uniform"}
    scheduled = toy.play("feddpcont", method=fields, rounds=5)
    rows = [(row[0], row[2], row[6]) for row in scheduled.outcome.record.metrics if row[5] == "beta"]
    assert rows == [(1, "plain", 0), (2, "plain", 0), (3, "rise", 0), (4, "rise", 2), (5, "contrast", 2)]
    plain = toy.play("fedavg", rounds=5)  # its report lacks only beta
    reports = [{row[5] for row in run.outcome.record.metrics} for run in (scheduled, plain)]
    assert reports[0] == reports[1] | {"beta"}


def test_the_schedule_in_worker_processes():
    fields = {"beta_schedule": "cores", "beta_start": 1, "beta_rise": 2, "beta_lr": True, "draw": "local"}
    runs = [toy.play("feddpcont", method=fields, rounds=4, **options) for options in ({}, {"executor": "workers"})]
    assert toy.same_state(*(run.outcome.state for run in runs))

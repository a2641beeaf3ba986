"""FedExP: its server step by hand."""

import pytest
import torch
import toy

from fednoise_core.ops.weights import Weights


def merged(moves: list[list[float]], fields: dict | None = None, round: int = 1):
    """A merge of models that moved from 1 by these numbers, on every trained coordinate in turn; clients 0, 3, …"""
    fed, method, state = toy.started("fedexp", {**(fields or {})}, net=toy.toy_net(toy.normed_body))
    state.round = round
    start = state.server["model"] = state.server["model"].like(torch.ones_like(state.server["model"].flat))
    clients = [0, 3, 4, 5][: len(moves)]
    updates = []
    for move in moves:
        w = start.clone()
        w.trained[: len(move)] += torch.tensor(move)
        w.flat[start.layout.trained :] += move[0]
        updates.append({"model": w})
    method.merge_updates(fed, state, clients, updates)
    return state, start


def test_orthogonal_displacements_are_added_rather_than_averaged():
    """d_1 = (3, 0), d_2 = (0, 3): mean of squares 9, square of the mean 4.5; with epsilon to 0 the step is 9/9 = 1.
    Four of them, each on an axis of its own: mean of squares 9, square of the mean 9/4: the step is 2.
    """
    eye = (3 * torch.eye(4)).tolist()
    state, start = merged(eye[:2], {"epsilon": 1e-12})
    assert state.notes["server_step"] == pytest.approx(1.0)
    state, start = merged(eye, {"epsilon": 1e-12})
    assert state.notes["server_step"] == pytest.approx(2.0)
    torch.testing.assert_close(state.server["model"].trained[:4], start.trained[:4] + 2 * 3 / 4)


def test_the_formula_and_its_epsilon():
    moves = [[1.0, 0.0], [-0.9, 0.2], [0.1, -0.3]]
    d = torch.tensor(moves, dtype=torch.float64)
    for weighting, sizes in (("uniform", [1.0, 1.0, 1.0]), ("samples", [17.0, 12.0, 9.0])):
        state, start = merged(moves, {"epsilon": 0.01, "weighting": weighting})
        p = torch.tensor(sizes, dtype=torch.float64)[:, None] / sum(sizes)
        step = float((p * d.square()).sum() / (2 * ((p * d).sum(0).square().sum() + 0.01)))
        assert step > 1
        assert state.notes["server_step"] == pytest.approx(step, rel=1e-5)
        expected = (start.trained[:2].double() + step * (p * d).sum(0)).float()
        torch.testing.assert_close(state.server["model"].trained[:2], expected, rtol=1e-5, atol=1e-6)
        statistics = start.flat[start.layout.trained :] + (p[:, 0] * d[:, 0]).sum()  # averaged, whatever the step
        torch.testing.assert_close(state.server["model"].flat[start.layout.trained :], statistics.float())


def test_agreeing_clients_are_fedavg_bit_for_bit():
    """The ratio is 1/2 for equal displacements, and for a cohort of one: never less than a plain mean."""
    state, start = merged([[0.5, 0.25]] * 3)
    assert state.notes["server_step"] == 1.0
    assert torch.equal(state.server["model"].trained[:2], start.trained[:2] + torch.tensor([0.5, 0.25]))
    split = toy.toy_partition((30,))
    alone = [toy.play(n, split=split, method={"weighting": "uniform"}).outcome.state for n in ("fedavg", "fedexp")]
    assert torch.equal(alone[0].server["model"].flat, alone[1].server["model"].flat)


def test_the_mean_of_the_last_two_models_is_evaluated_from_the_second_round_on():
    fed, method, state = toy.started("fedexp")
    models: list[Weights] = []
    for state.round in (1, 2, 3):
        method.run_round(fed, state)
        models.append(state.server["model"].clone())
        views = method.list_models(fed, state)
        average = views["averaged"][0][1].flat
        expected = models[-1].flat if state.round == 1 else (models[-1].flat + models[-2].flat) / 2
        assert torch.equal(average, expected)
        assert torch.equal(views["global"][0][1].flat, models[-1].flat)
    assert next(iter(views)) == "averaged"


def test_every_round_reports_its_step():
    run = toy.play("fedexp")
    steps = [row[6] for row in run.outcome.record.metrics if row[5] == "server_step"]
    assert len(steps) == 3
    assert min(steps) >= 1.0
    assert steps[-1] == run.summary["notes"]["server_step"]

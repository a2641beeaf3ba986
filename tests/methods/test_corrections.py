"""Loss correction, forward correction after a prestop, T-revision and pruning: phases, estimates and steps."""

import numpy as np
import pytest
import torch
import toy

from fednoise_core.io import SpecError
from fednoise_core.methods import make_method
from fednoise_core.methods.transition import anchor_rows, confident_rows, tail_rows, weigh_by_shares
from fednoise_core.ops import stats
from fednoise_core.ops.weights import Weights

NAMES = {"lc": {"switch": 2}, "t_revision": {"switch": 2, "revise": 3, "revision_lr": 0.01}}


def by_hand(world, client: int, w: Weights, loss, lr: float) -> torch.Tensor:
    """The flat model of softmax regression after one full-batch step, in float64 with ordinary autograd."""
    x, y = toy.images_of(world, client)
    weight, bias = (w[name].double().clone().requires_grad_() for name in ("head.weight", "head.bias"))
    loss(x.double().flatten(1) @ weight.T + bias, y).mean().backward()
    end = w.layout.zeros()
    end["head.weight"].copy_((weight - lr * weight.grad).detach())
    end["head.bias"].copy_((bias - lr * bias.grad).detach())
    return end.flat


def forward(T: torch.Tensor):
    """The naive forward loss: -log sum_i p_i T[i, y]."""
    return lambda z, y: -torch.log((torch.softmax(z, 1) @ T.double())[torch.arange(len(y)), y])


def linear_world(name: str, **fields):
    """Federation with full batches and one epoch of softmax regression, method and a state with a trained model."""
    fed = toy.toy_federation(train={"epochs": 1, "batch": 20, "lr": 0.5}, net=toy.toy_net(toy.linear_body))
    method = make_method({"name": name, **fields}, fed.train)
    state = method.init_state(fed)
    for _ in range(3):
        toy.round_of(make_method({"name": "fedavg"}, fed.train), fed, state)
    return fed, method, state


# loss correction and T-revision: phases


@pytest.mark.parametrize("name", NAMES)
def test_before_the_switch_it_is_fedavg_bit_for_bit(name):
    run, plain = toy.play(name, method=NAMES[name], rounds=4), toy.play("fedavg", rounds=4)
    assert run.curve[:3] == plain.curve[:3]
    assert run.curve != plain.curve
    assert run.summary["notes"]["estimated"] == 2
    never = toy.play(name, method={"switch": 9}, rounds=3)
    assert toy.same_state(never.outcome.state.server, toy.play("fedavg").outcome.state.server)
    assert "estimated" not in never.summary["notes"]
    assert never.suspects == toy.play("fedavg").suspects  # it makes no estimate


@pytest.mark.parametrize(
    ("name", "rounds", "ends"),
    [
        ("lc", 300, [150, 300]),
        ("lc", 5, [3, 5]),
        ("lc", 1, [1, 1]),
        ("t_revision", 300, [20, 160, 300]),
        ("t_revision", 40, [3, 21, 40]),
        ("t_revision", 1, [1, 1, 1]),
    ],
)
def test_rounds_of_the_paper_are_shares(name, rounds, ends):
    fed = toy.toy_federation(train={"rounds": rounds})
    assert [phase.end for phase in make_method({"name": name}, fed.train).list_phases(fed)] == ends


def test_everybody_estimates_once_from_the_global_model_and_given_labels():
    """Also clients outside the cohort; the empty one keeps nothing."""
    fed, method, state = linear_world("lc", confidence=0.4)
    method.estimate_all(fed, state)
    model = state.server["model"]
    assert set(state.clients) == set(fed.all)
    for client in fed.all:
        x, y = toy.images_of(fed.world, client)
        p = torch.softmax(fed.net(0).predict(model, x), 1)
        torch.testing.assert_close(state.clients[client]["T"], confident_rows(p, y, 0.4))
    matrices = {c: state.clients[c]["T"].clone() for c in fed.all}
    toy.round_of(method, fed, state)
    assert all(torch.equal(state.clients[c]["T"], matrices[c]) for c in fed.all)  # fixed from then on


def test_a_corrected_step_by_hand():
    fed, method, state = linear_world("lc", confidence=0.4)
    method.estimate_all(fed, state)
    start = state.server["model"].clone()
    _, updates = fed.fit(method, state, [3], method.make_broadcast(fed, state), tag="step")
    expected = by_hand(fed.world, 3, start, forward(state.clients[3]["T"]), 0.5)
    torch.testing.assert_close(updates[0]["model"].flat, expected, rtol=1e-4, atol=1e-5)
    plain = by_hand(fed.world, 3, start, torch.nn.functional.cross_entropy, 0.5)
    assert (expected - plain).abs().max() > 1e-2


def test_stage_two_of_t_revision_is_loss_correction_with_anchor_points():
    fed, method, state = linear_world("t_revision")
    method.estimate_all(fed, state)
    for client in fed.all:
        p = torch.softmax(fed.net(0).predict(state.server["model"], toy.images_of(fed.world, client)[0]), 1)
        torch.testing.assert_close(state.clients[client]["T"], anchor_rows(p, 97.0), rtol=1e-4, atol=1e-5)
    start = state.server["model"].clone()
    _, updates = fed.fit(method, state, [5], method.make_broadcast(fed, state), tag="step")
    expected = by_hand(fed.world, 5, start, forward(state.clients[5]["T"]), 0.5)
    torch.testing.assert_close(updates[0]["model"].flat, expected, rtol=1e-4, atol=1e-5)


# revision


def test_revision_by_hand():
    """The first step of Adam goes by lr in the direction of the gradient's sign, for model and slack alike; signs come
    from a float64 autograd of mean p_y/((T + D)' p)_y CE."""
    fed, method, state = linear_world("t_revision", revision_lr=1e-3, revision_decay=0.0)
    method.estimate_all(fed, state)
    T, w = state.clients[5]["T"].double(), state.server["model"].clone()
    x, y = toy.images_of(fed.world, 5)
    weight, bias = (w[name].double().clone().requires_grad_() for name in ("head.weight", "head.bias"))
    slack = torch.zeros(5, 5, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(x.double().flatten(1) @ weight.T + bias, 1)
    rows = torch.arange(len(y))
    p_y = p[rows, y]
    (p_y / (p @ (T + slack))[rows, y] * -p_y.log()).mean().backward()
    fed.sample_cohort = lambda round, candidates=None: [5]
    state.round += 1
    method.run_revision(fed, state)
    moved = state.clients[5]["slack"]["D"].double()
    clear = slack.grad.abs() > 1e-5
    assert clear.any()
    torch.testing.assert_close(moved[clear], -1e-3 * slack.grad.sign()[clear], rtol=1e-2, atol=0)
    step = state.server["model"]["head.bias"].double() - bias.detach()
    torch.testing.assert_close(step, -1e-3 * bias.grad.sign(), rtol=1e-2, atol=1e-6)
    assert torch.equal(state.clients[5]["T"].double(), T)  # only the slack is trained


def test_a_revision_without_corrected_rounds_still_estimates():
    run = toy.play("t_revision", method={"switch": 2, "revise": 2})
    assert run.summary["notes"]["estimated"] == 2
    assert {row[2] for row in run.outcome.record.metrics if row[0] == 3} == {"revised"}


# forward correction after a prestop


@pytest.mark.parametrize("prior", [True, False])
def test_forward_prestop_estimates_in_every_round_with_the_broadcast_model(prior):
    fed, method, state = linear_world("forward_prestop", prior_weighting=prior, percentile=80.0)
    state.notes["prestop"] = {**state.notes["prestop"], "round": 3}
    for _ in range(2):
        start = state.server["model"].clone()
        x, y = toy.images_of(fed.world, 3)
        T = tail_rows(torch.softmax(fed.net(0).predict(start, x), 1), 80.0)
        loss = forward(weigh_by_shares(T, y) if prior else T)
        (update,) = toy.round_of(method, fed, state, [3])
        assert "accuracy" not in update
        torch.testing.assert_close(state.clients[3]["T"], T, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(update["model"].flat, by_hand(fed.world, 3, start, loss, 0.5), rtol=1e-4, atol=1e-5)


# confident learning after a prestop


def test_pruning_starts_from_the_original_data_in_every_round_and_weighs_by_what_is_kept(monkeypatch):
    """With predictions that know the truth, exactly the wrong labels are pruned (20 of 100, symmetric)."""
    draw = np.random.default_rng(0)
    y = torch.arange(100) % 4
    labels = y.clone()
    wrong = torch.from_numpy(draw.permutation(100)[:20])
    labels[wrong] = (labels[wrong] + torch.from_numpy(draw.integers(1, 4, 20))) % 4
    p = torch.eye(4)[y] * 0.88 + 0.03
    assert stats.label_issues(p, labels).nonzero().flatten().tolist() == sorted(wrong.tolist())
    assert not stats.label_issues(p, y).any()  # perfect predictions of right labels

    fed, method, state = linear_world("confident_prestop")
    state.notes["prestop"] = {**state.notes["prestop"], "round": 3}
    sizes = []

    def issues(p, y):
        sizes.append(len(y))
        return (torch.arange(len(y)) % 3 == 0) & (len(y) > 1)

    module = "fednoise_core.methods.confident_prestop"
    monkeypatch.setattr(f"{module}.label_issues", issues)
    monkeypatch.setattr(f"{module}.confident_counts", lambda p, y: torch.arange(25.0).view(5, 5))
    for _ in range(2):
        updates = toy.round_of(method, fed, state)
        counts = [update["kept"] for update in updates]
        assert counts == [n - (n + 2) // 3 if n > 1 else 1 for n in (toy.SIZES[c] for c in fed.all)]
        assert method.weigh_updates(fed, state, fed.all, updates) == counts
    assert set(sizes) <= set(toy.SIZES)  # always all samples of the client, not only those kept before
    assert state.clients[0]["kept"].tolist() == [k for k in range(17) if k % 3]
    equal = make_method({"name": "confident_prestop", "weighting": "uniform"}, fed.train)
    assert equal.weigh_updates(fed, state, fed.all, updates) == [1.0] * 7


def test_a_joint_of_two_different_numbers_prunes_nothing(monkeypatch):
    fed, method, state = linear_world("confident_prestop")
    state.notes["prestop"] = {**state.notes["prestop"], "round": 3}
    module = "fednoise_core.methods.confident_prestop"
    monkeypatch.setattr(f"{module}.label_issues", lambda p, y: torch.ones_like(y, dtype=torch.bool))
    monkeypatch.setattr(f"{module}.confident_counts", lambda p, y: 1.0 + 3 * torch.eye(5))
    assert toy.round_of(method, fed, state, [0])[0]["kept"] == toy.SIZES[0]


def test_a_client_with_one_class_or_one_sample_keeps_everything():
    fed, method, state = linear_world("confident_prestop")
    state.notes["prestop"] = {**state.notes["prestop"], "round": 3}
    updates = toy.round_of(method, fed, state, [1, 4])
    assert [update["kept"] for update in updates] == [1, toy.SIZES[4]]


def test_a_missing_cleanlab_is_reported_before_the_first_round(monkeypatch):
    monkeypatch.setattr("fednoise_core.ops.stats.importlib.util.find_spec", lambda name: None)
    with pytest.raises(SpecError, match="cleanlab"):
        toy.play("confident_prestop")

"""Co-teaching."""

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.engine.state import State
from fednoise_core.methods import make_method
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.train import Train


class SecondStart(FedAvg):
    """FedAvg from the weights of Co-teaching's second net."""

    def init_state(self, fed):
        return State(server={"model": fed.init_weights("model", 2)})


@pytest.mark.parametrize("net", [{"name": "mlp", "hidden": 6}, "toy_norm"])
@pytest.mark.parametrize("augment", ["none", "flip"])
def test_forgetting_nothing_is_two_independent_fedavgs_bit_for_bit(net, augment, toy_nets):
    train = toy.toy_federation(train={"net": net, "augment": augment}).train
    coteaching = make_method({"name": "coteaching", "forget_rate": 0.0}, train)
    ends = []
    for method in (coteaching, make_method({"name": "fedavg"}, train), SecondStart(train=train)):
        fed = toy.toy_federation(train={"net": net, "augment": augment})
        ends.append(method.init_state(fed))
        for _ in range(3):
            toy.round_of(method, fed, ends[-1])
    pair, first, second = ends
    assert torch.equal(pair.server["one"].flat, first.server["model"].flat)
    assert torch.equal(pair.server["two"].flat, second.server["model"].flat)
    assert not torch.equal(pair.server["one"].flat, pair.server["two"].flat)


@pytest.mark.parametrize(("rate", "r"), [(0.4, 10), (0.8, 3), (0.99, 1), (0.0, 17)])
def test_each_net_learns_from_the_others_small_losses(rate, r):
    """17 samples in one batch: r = max(1, floor((1 - rate) 17)) of smallest loss of the *other* net, mean over them."""
    fed, method, state = toy.started(
        "coteaching", {"ramp": 1, "forget_rate": rate}, train={"batch": 100, "epochs": 1, "lr": 0.3}
    )
    state.round = 1  # with ramp 1 the second round forgets the full rate
    nets = {name: state.server[name].flat.double() for name in ("one", "two")}
    update = toy.round_of(method, fed, state, [0])[0]
    x, y = toy.images_of(fed.world, 0)
    for name, peer in (("one", "two"), ("two", "one")):
        small = F.cross_entropy(toy64.module_of(nets[peer])(x.double()), y, reduction="none").argsort()[:r]
        chosen = [(x[small].double(), y[small])]
        expected = toy64.train(nets[name], chosen, lambda theta: 0.0, 0.3)
        torch.testing.assert_close(update[name].flat.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.2]),
        ({"exponent": 2.0}, [0.0, 0.02, 0.08, 0.18, 0.2, 0.2]),  # .2 * min(t^2 / 10, 1)
        ({"ramp": 1}, [0.0, 0.2, 0.2]),
    ],
)
def test_schedules_over_rounds(fields, expected):
    """tau = .2, T_k = 10."""
    method = make_method({"name": "coteaching", "forget_rate": 0.2, "ramp": 10, **fields}, Train())
    assert [method.forget_rate_at(t) for t in range(len(expected))] == pytest.approx(expected)


@pytest.mark.parametrize(("rounds", "ramp"), [(100, 10), (95, 10), (3, 1), (25, 3)])
def test_the_ramp_is_a_tenth_of_the_rounds_rounded_up(rounds, ramp):
    method = make_method({"name": "coteaching", "forget_rate": 0.5}, Train(rounds=rounds))
    assert method.forget_rate_at(ramp) == pytest.approx(0.5)
    assert method.forget_rate_at(ramp - 1) < 0.5 - 1e-9


def test_round_one_keeps_everything_and_later_rounds_follow_the_schedule():
    fed = toy.toy_federation()
    method = make_method({"name": "coteaching", "forget_rate": 0.4, "ramp": 2}, fed.train)
    shares = [float(method.make_broadcast(fed, State(round=round))["keep"]) for round in (1, 2, 3, 4)]
    assert shares == pytest.approx([1.0, 0.8, 0.6, 0.6])


def test_headline_is_the_mean_of_both_nets_and_the_ensemble_is_another_view():
    run = toy.play("coteaching")
    assert list(run.outcome.views) == ["mean", "ensemble"]
    first, second = run.outcome.state.server["one"], run.outcome.state.server["two"]
    x = (torch.from_numpy(toy.arrays().x_test).float()[:, None] / 255 - 0.25) / 0.2
    y = torch.from_numpy(toy.arrays().y_test)
    z = [run.outcome.fed.net().predict(w, x) for w in (first, second)]
    right = [(logits.argmax(1) == y).double().mean().item() for logits in (z[0], z[1], z[0] + z[1])]
    assert run.summary["accuracy"]["last"] == pytest.approx((right[0] + right[1]) / 2)
    assert run.summary["views"]["ensemble"]["last"] == pytest.approx(right[2])


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.75])
def test_suspects_are_the_forgotten_share(rate):
    """Of n samples those beyond the rank (1 - rate) n have P(wrong) > 1/2."""
    fed, method, state = toy.started("coteaching", {"forget_rate": rate})
    p, proposed = fed.run_on_clients(state, [3], method.suspect_labels, method.make_broadcast(fed, state))[
        0
    ]  # 12 samples
    assert int((p > 0.5).sum()) == round(12 * rate)
    assert 0 <= p.min() <= p.max() <= 1
    x, y = toy.images_of(fed.world, 3)
    z = [fed.net().predict(state.server[k], x) for k in ("one", "two")]
    loss = F.cross_entropy(z[0], y, reduction="none") + F.cross_entropy(z[1], y, reduction="none")
    assert torch.equal(p.argsort(stable=True), loss.argsort(stable=True))
    assert torch.equal(proposed, (z[0] + z[1]).argmax(1))

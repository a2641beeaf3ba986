"""FedBN: layers of normalisation stay on the client, and everything else is FedAvg."""

import pytest
import torch
import toy

from fednoise_core.engine.evaluate import iterate_models
from fednoise_core.engine.federation import SERVER
from fednoise_core.methods import make_method
from fednoise_core.ops.weights import Weights


def start(**train):
    return toy.started("fedbn", net=toy.toy_net(toy.normed_body), train={"lr": 0.05, **train})


def kinds(w: Weights) -> set[str]:
    return {entry.kind for entry in w.layout.entries}


def test_normalisation_layers_are_not_sent():
    fed, method, state = start()
    assert kinds(method.make_broadcast(fed, state)["model"]) == {"weight"}
    updates = toy.round_of(method, fed, state)
    assert all(set(update) == {"model"} and kinds(update["model"]) == {"weight"} for update in updates)
    assert kinds(state.server["model"]) == {"weight"}
    assert kinds(state.clients[0]["own"]) == {"norm", "stat"}
    layout = fed.net().layout
    weights = sum(entry.size for entry in layout.entries if entry.kind == "weight")
    assert fed.bytes_down == 7 * 4 * weights < 7 * 4 * layout.size


def test_clients_layers_never_mix():
    """Layers of client 0 do not depend on those of client 3, though both train. Other clients keep theirs."""
    ends = []
    for shift in (0.0, 1.0):
        fed, method, state = start()
        layers = state.clients[3]["own"]
        state.clients[3] = {"own": layers.like(layers.flat + shift)}
        before = {c: state.clients[c]["own"].flat.clone() for c in fed.all}
        toy.round_of(method, fed, state, [0, 3])
        ends.append({c: state.clients[c]["own"].flat for c in fed.all})
        for c in fed.all:
            assert torch.equal(ends[-1][c], before[c]) == (c not in (0, 3))
    assert torch.equal(ends[0][0], ends[1][0])
    assert not torch.equal(ends[0][3], ends[1][3])


def test_clients_go_on_from_their_own_layers():
    """With a learning rate of 0 only running means change, by a tenth of the distance in each step.

    After t rounds of one full step they are (1 - .9^t) times the mean of the client's own images.
    """
    fed, method, state = start(lr=0.0, epochs=1, batch=100)
    w = fed.init_weights("model")
    for round in (1, 2, 3):
        toy.round_of(method, fed, state, [0, 3])
        for c in (0, 3):
            x, _ = toy.images_of(fed.world, c)
            mean = torch.nn.functional.conv2d(x, w["conv.weight"], w["conv.bias"], 2).mean((0, 2, 3))
            running = state.clients[c]["own"]["norm.running_mean"]
            torch.testing.assert_close(running, (1 - 0.9**round) * mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("train", [{}, {"server_lr": 1.5}])
def test_a_net_without_normalisation_is_fedavg_bit_for_bit(train):
    a, b = (toy.play(name, method=train) for name in ("fedbn", "fedavg"))
    assert torch.equal(a.outcome.state.server["model"].flat, b.outcome.state.server["model"].flat)
    assert a.summary["bytes_down"] == b.summary["bytes_down"]
    assert [v for _, v in a.outcome.record.curve("avg_bn")] == [v for _, v in b.curve]


def test_after_one_round_all_other_weights_are_those_of_fedavg():
    fed, method, state = start()
    plain = make_method({"name": "fedavg"}, fed.train)
    plain_state = plain.init_state(fed)
    toy.round_of(method, fed, state)
    toy.round_of(plain, toy.toy_federation(net=toy.toy_net(toy.normed_body), train={"lr": 0.05}), plain_state)
    for name, view in state.server["model"].views.items():
        assert torch.equal(view, plain_state.server["model"][name])
    layers = torch.stack([state.clients[c]["own"].flat for c in fed.all])
    assert len(layers.unique(dim=0)) == 7


def members(fed, method, state, view):
    return {c: w for c, (w,) in iterate_models(method.list_models(fed, state)[view], state.clients)}


def test_views_by_hand():
    """`personal` has the round's clients, and at the end all that ever trained. `avg_bn` is weighted by samples."""
    fed, method, state = start(rounds=3)
    for name in ("personal", "avg_bn"):
        (initial,) = members(fed, method, state, name).values()
        assert torch.equal(initial.flat, fed.init_weights("model").flat)
    for clients, members_of_view in (([0, 3], [0, 3]), ([3, 5], [3, 5]), ([6], [0, 3, 5, 6])):
        toy.round_of(method, fed, state, clients)
        personal = members(fed, method, state, "personal")
        assert list(personal) == members_of_view
        for c, w in personal.items():
            for part in (state.server["model"], state.clients[c]["own"]):
                assert all(torch.equal(w[entry.name], part[entry.name]) for entry in part.layout.entries)
        (mean,) = members(fed, method, state, "avg_bn").values()
        total = sum(toy.SIZES[c] for c in clients)
        expected = sum(toy.SIZES[c] / total * state.clients[c]["own"]["norm.running_var"] for c in clients)
        torch.testing.assert_close(mean["norm.running_var"], expected)
        assert torch.equal(mean["conv.weight"], state.server["model"]["conv.weight"])
        assert set(members(fed, method, state, "avg_bn")) == {SERVER}


def test_the_headline_is_personal(toy_nets):
    assert list(toy.play("fedbn", net="toy_norm").summary["views"]) == ["personal", "avg_bn"]

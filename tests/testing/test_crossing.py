"""The record of values that cross between server and clients: their names, their bytes, and labels among them."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import toy

from fednoise_core.engine.federation import SERVER
from fednoise_core.engine.local import Local
from fednoise_core.methods import METHODS, method_class
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops.weights import Entry, Layout, Weights
from fednoise_core.settings.train import Train
from fednoise_core.testing.crossing import SIDES, Crossed, compare_wire, tells_labels, watch_crossing


@dataclass(frozen=True)
class Talk(Local):
    """Sends logits before each step, and relays its model."""

    train: Train

    def make_message(self, net, carry, batch, broadcast, client_state):
        return {"logits": net.predict(carry["model"].w, batch.x)}

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {"done": steps, "relay": {"model": carry["model"].values()}, "client_state": {"kept": torch.ones(1)}}


def count(client: Any, broadcast: Any) -> int:
    return client.n


def hand_on(client: Any, broadcast: Any) -> dict[str, Any]:
    return {"size": client.n, "relay": {"word": "hello"}}


def test_every_way_is_seen_and_nothing_else():
    """Names and bytes of each way are recorded; the server's own training and clients' states are not."""
    fed = toy.toy_federation()
    talk, model, ids = Talk(fed.train), fed.init_weights("model"), torch.arange(4)
    state = FedAvg(train=fed.train).init_state(fed)
    state.round = 1
    with watch_crossing() as crossed:
        fed.fit(talk, state, [0, 3], {"model": model}, per_client=[{"first": 1.0}, {}])
        message = fed.relayed_message(state, 0, "model")
        fed.run_on_clients(state, [3], count, {"asked": 1}, per_client=[{"near0": message}])
        fed.run_on_clients(state, [5], hand_on)
        state.round = 2
        fed.fit_lockstep(talk, state, [0, 3], {"model": model}, lambda sent: [{"mean": sent[0]["logits"]}] * 2, ids=ids)
        plain, targets = FedAvg(train=fed.train), torch.zeros(4).long()
        fed.fit(plain, state, [SERVER], {"model": model, "hidden": 1}, on="public", ids=ids, targets=targets)
    assert crossed.names == {
        "broadcast": {"model": 1, "first": 1, "asked": 1, "near0": 1, "mean": 2},
        "update": {"done": 1, "count()": 1, "size": 1, "logits": 2},
        "relay": {"model": 1, "word": 1},
    }
    assert (crossed.bytes_down, crossed.bytes_up) == (fed.bytes_down, fed.bytes_up)
    assert crossed.labels == []


def crossed_with(**names: tuple[str, ...]) -> Crossed:
    return Crossed({side: dict.fromkeys(names.get(side, ()), 3) for side in SIDES})


UNDECLARED = "crossed in round 3 and is not declared"
UNSEEN = "is declared and never crossed in this run"


@pytest.mark.parametrize(
    ("wire", "lines"),
    [
        ({"broadcast": ("model", "near*"), "update": ("model", "rare?")}, []),
        ({"broadcast": ("model", "near0", "near1"), "update": ("model",)}, []),
        ({"broadcast": ("near0", "near1"), "update": ("model",)}, [f"broadcast 'model' {UNDECLARED}"]),
        ({"broadcast": ("model", "n*"), "update": ("model", "often")}, [f"update 'often' {UNSEEN}"]),
        ({"broadcast": ("model", "near*")}, [f"update 'model' {UNDECLARED}"]),
        ({"update": ("model",), "broadcast": ("*",), "up": ()}, ["'up' is none of broadcast, update, relay"]),
    ],
)  # fmt: skip
def test_a_declaration_is_compared_with_what_crossed(wire, lines):
    assert compare_wire(wire, crossed_with(broadcast=("model", "near0", "near1"), update=("model",))) == lines


Y = torch.tensor([2, 0, 1, 1, 4, 2])


@pytest.mark.parametrize(
    "value",
    [
        Y,
        Y.float()[:, None],
        Y.flip(0),
        Y.tolist(),
        {"deep": [{"down": Y.to(torch.uint8)}]},
        torch.nn.functional.one_hot(Y, 5),
        10.0 * torch.nn.functional.one_hot(Y, 7).float(),
        Weights(Layout([Entry("w", (3,)), Entry("seen", (6,), "stat")]), torch.cat([torch.ones(3), Y.float()])),
        dict(enumerate(Y.tolist())),
    ],
)
def test_labels_are_known_by_their_content(value):
    assert tells_labels(value, Y)


@pytest.mark.parametrize(
    "value",
    [
        torch.bincount(Y, minlength=5),
        torch.bincount(Y, minlength=6),
        (Y + 1) % 5,
        torch.softmax(torch.nn.functional.one_hot(Y, 5).float(), 1),
        Y[:5],
        [1.0, None],
        "201142",
        3,
        torch.zeros(0),
        toy.toy_federation().init_weights("model"),
    ],
)
def test_other_things_are_no_labels(value):
    assert not tells_labels(value, Y)


def test_a_client_of_few_samples_is_not_looked_at():
    assert not tells_labels(torch.tensor([2]), torch.tensor([2]))


def test_only_a_class_whose_samples_all_lie_with_one_client_declares_labels():
    """Raw labels leave a client through privacy.py only, which sends counts of others."""
    telling = [name for name in METHODS if "labels" in method_class(name).wire["update"]]
    assert telling == ["centralised"]
    assert method_class("centralised").pooled

"""Errors that name a method's mistake: state changed in place, one tag for two fits, a client asked twice, clients'
state read on the server. Also the cost of a label release where clients overlap.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import toy
from toy import Plain

from fednoise_core.data.partition import Partition
from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.evaluate import ClientEntry
from fednoise_core.engine.federation import SERVER
from fednoise_core.engine.state import State
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.train import Train

# state changed in place


def kept_by(client: int = 0) -> State:
    fed = toy.toy_federation()
    things = {"count": torch.zeros(3), "deep": {"list": [torch.zeros(2)]}, "model": fed.init_weights("model")}
    return State(round=1, clients={client: things})


def add_to_count(client, broadcast):
    client.state["count"] += 1


def add_deep_down(client, broadcast):
    client.state["deep"]["list"][0][1] = 5.0


def train_what_is_kept(client, broadcast):
    client.state["model"].flat.mul_(2)
    return {"n": client.n}


@pytest.mark.parametrize(
    ("fn", "entry"), [(add_to_count, "count"), (add_deep_down, "deep"), (train_what_is_kept, "model")]
)
@pytest.mark.parametrize("room", [0, 1 << 30])
def test_a_function_that_changes_state_in_place_is_refused(executor, fn: Callable[..., Any], entry, room):
    with toy.federation_on(executor) as fed:
        state = kept_by()
        state.store.move_to(None, room, torch.device("cpu"))
        with pytest.raises(WireError, match=rf"{fn.__name__}: client 0: state\['{entry}'\] was changed in place.* = …"):
            fed.run_on_clients(state, [0], fn)


class InPrepare(Plain):
    def prepare_fit(self, client, broadcast):
        add_to_count(client, broadcast)


class InBetween(Plain):
    def between_epochs(self, client, carry, broadcast, epoch):
        add_to_count(client, broadcast)


class InAfter(Plain):
    def after_fit(self, client, update, broadcast):
        add_to_count(client, broadcast)
        return update


class InStep(Plain):
    def correct_gradient(self, grad, w, broadcast, client_state):
        client_state["count"].add_(1)


class InFinish(Plain):
    def make_update(self, net, carry, broadcast, client_state, steps):
        client_state["count"].add_(1)
        return super().make_update(net, carry, broadcast, client_state, steps)


@pytest.mark.parametrize("kind", [InPrepare, InBetween, InAfter, InStep, InFinish])
def test_a_local_that_changes_state_in_place_is_refused(executor, kind):
    message = rf"{kind.__name__}: client 0: state\['count'\] was changed in place"
    with toy.federation_on(executor) as fed, pytest.raises(WireError, match=message):
        fed.fit(kind(fed.train), kept_by(), [0], {"model": fed.init_weights("model")})


class SpoilsInStep(Plain):
    def correct_gradient(self, grad, w, broadcast, client_state):
        broadcast["model"].flat.mul_(0.5)


class SpoilsInPrepare(Plain):
    def prepare_fit(self, client, broadcast):
        broadcast["model"].flat.zero_()


@pytest.mark.parametrize("kind", [SpoilsInStep, SpoilsInPrepare])
def test_a_local_that_changes_the_broadcast_is_refused(executor, kind):
    """In one process all clients get the same tensors."""
    message = rf"{kind.__name__}: client 0: broadcast\['model'\] was changed in place, which other clients would see"
    with toy.federation_on(executor) as fed, pytest.raises(WireError, match=message):
        fed.fit(kind(fed.train), kept_by(), [0], {"model": fed.init_weights("model")})


def spoil(client, broadcast):
    broadcast["prior"] += 1


def test_a_function_that_changes_the_broadcast_is_refused(executor):
    with (
        toy.federation_on(executor) as fed,
        pytest.raises(WireError, match=r"spoil: client 0: broadcast\['prior'\] was"),
    ):
        fed.run_on_clients(kept_by(), [0], spoil, {"prior": torch.zeros(3)})


# tags, streams, and clients asked twice


def test_two_fits_of_a_client_in_one_round_need_two_tags():
    fed, model = toy.toy_federation(), toy.toy_federation().init_weights("model")
    state, local = State(round=1), Plain(fed.train)
    _, (first,) = fed.fit(local, state, [0], {"model": model})
    with pytest.raises(ValueError, match=r"round 1: a second fit of client 0 with tag 'fit'.*fit\(…, tag=…\)"):
        fed.fit(local, state, [3, 0], {"model": model})
    _, (second,) = fed.fit(local, state, [0], {"model": model}, tag="again")
    assert not toy.same_state(first, second)  # other batches
    fed.fit(local, state, [5], {"model": model})  # another client
    for _ in range(2):
        fed.fit(local, state, [SERVER, SERVER], {"model": model}, on="public")  # the server may
    state.round = 2
    _, (later,) = fed.fit(local, state, [0], {"model": model})
    assert not toy.same_state(first, later)


def draws(client, broadcast):
    names = ("batches", "fit"), ("step", "fit"), ("augment", 0, "fit")
    return [torch.rand(9, generator=client.random_stream(*key)).tolist() for key in names]


def test_a_clients_own_streams_are_not_those_of_its_batches():
    fed = toy.toy_federation()
    (numbers,) = fed.run_on_clients(State(round=1), [0], draws)
    names = ("batches", "fit"), ("step", "fit"), ("augment", 0, "fit")
    plans = [torch.rand(9, generator=fed.world.random_stream(*key, 1, 0)).tolist() for key in names]
    assert all(a != b for a, b in zip(numbers, plans, strict=True))
    assert numbers == fed.run_on_clients(State(round=1), [0], draws)[0]


@pytest.mark.parametrize("clients", [[0, 3, 0], [5, 5]])
def test_a_client_is_asked_once_a_call(executor, clients):
    with toy.federation_on(executor) as fed:
        state, model = State(round=1), fed.init_weights("model")
        with pytest.raises(ValueError, match=f"client {clients[-1]} is listed twice"):
            fed.fit(Plain(fed.train), state, clients, {"model": model})
        with pytest.raises(ValueError, match="is listed twice"):
            fed.run_on_clients(state, clients, draws)
    assert not state.clients


# reading on the server


@dataclass(frozen=True, kw_only=True)
class Peeks(FedAvg):
    """Reads client 0's state in one of the methods that the engine calls."""

    where: str = ""

    def init_state(self, fed):
        state = super().init_state(fed)
        state.clients[0] = {"secret": torch.ones(2)}
        return state

    def look(self, state, where):
        if where == self.where:
            state.clients[0]["secret"].sum()

    def run_round(self, fed, state, candidates=None):
        self.look(state, "round")
        return {}

    def make_broadcast(self, fed, state):
        self.look(state, "broadcast")  # asked for at the end only, for suspects
        return super().make_broadcast(fed, state)

    def list_models(self, fed, state):
        self.look(state, "views")
        return super().list_models(fed, state)

    def estimate_noise(self, fed, state):
        self.look(state, "estimates")
        return {"client_noise": ClientEntry("secret")} if self.where == "" else {}


@pytest.mark.parametrize("where", ["round", "broadcast", "views", "estimates"])
def test_no_method_reads_on_the_server_what_clients_keep(where):
    method = Peeks(train=Train(**toy.TRAIN), where=where)
    with pytest.raises(
        WireError, match=r"what a client keeps is its own: use `client\.state` in client code, and `ClientEntry`"
    ):
        toy.run_method(method)
    assert toy.run_method(Peeks(train=method.train, where="nowhere")).state.round == 3


# the cost of a label release


@pytest.mark.parametrize(
    ("rows", "m"),
    [
        ([range(0, 30), range(30, 60)], 1),
        ([range(0, 30), range(20, 50)], 2),
        ([range(0, 20), range(10, 30), range(19, 40), range(45, 50)], 3),  # sample 19 is held by three
    ],
)
def test_a_label_that_several_clients_hold_costs_as_often(rows, m, tmp_path):
    spec = {"artifact": "partition", "partition": {"kind": "toy"}, "clients": len(rows)}
    notes = {"samples": toy.N, "overlap": m > 1}
    split = Partition.from_parts([np.array(r) for r in rows], {**spec, "notes": notes})
    run = toy.play("feddpcont", method={"mode": "expect", "epsilon": 0.75}, split=split, out=tmp_path, fraction=1.0)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == json.loads(json.dumps(run.summary))
    assert summary["epsilon"] == m * 0.75
    assert summary.get("releases_of_a_label") == (m if m > 1 else None)
    assert summary.get("epsilon_a_release") == (0.75 if m > 1 else None)
    anew = {"mode": "expect", "epsilon": 0.75, "release": "every_round"}
    costs = toy.play("feddpcont", method=anew, split=split, fraction=1.0, rounds=3).summary
    assert (costs["epsilon"], costs["epsilon_a_release"], costs["releases_of_a_label"]) == (3 * m * 0.75, 0.75, 3 * m)
    assert toy.play("fedavg", split=split, fraction=1.0).summary["epsilon"] is None


def test_samples_held_out_for_validation_are_not_released():
    """A label that one client trains on and another validates on is released once."""
    spec = {"artifact": "partition", "partition": {"kind": "toy"}, "clients": 2}
    notes = {"samples": toy.N, "overlap": True}
    rows = [np.arange(0, 20), np.arange(10, 30)]
    valid = np.concatenate([np.arange(20) >= 10, np.zeros(20, bool)])
    split = Partition.from_parts(rows, {**spec, "notes": notes}, valid)
    assert toy.play("feddpcont", method={"epsilon": 0.5}, split=split, fraction=1.0).summary["epsilon"] == 0.5

"""Messages that clients send each other through the server."""

import dataclasses
from typing import Any

import pytest
import torch
import toy

from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.relay import Relayed
from fednoise_core.engine.state import State, kept_folder, load_checkpoint, save_checkpoint
from fednoise_core.methods.fedavg import FedAvg

CPU = torch.device("cpu")
MODEL = 4 * (64 * 6 + 6 + 6 * 5 + 5)  # bytes of the toy's perceptron


class Hands(toy.Plain):
    """Sends others its id, the round and a model; reports the message that it received."""

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {"model": carry["model"].values(), "relay": {"whole": carry["model"].values()}}

    def after_fit(self, client, update, broadcast):
        heard = broadcast["gift"].tolist() if "gift" in broadcast else []
        total = broadcast["whole"].flat.sum().item() if "whole" in broadcast else 0.0
        relay = {**update["relay"], "gift": torch.tensor([float(client.id), float(client.round), 0.5])}
        return {**update, "heard": heard, "sum": total, "relay": relay}


def tell(client, broadcast):
    return {
        "heard": broadcast["gift"].tolist(),
        "whole": broadcast["whole"].flat,
        "relay": {"gift": torch.full((2,), client.id + 0.5)},
    }


@pytest.mark.parametrize("clients", [[0, 3, 5], [5, 3, 0], [1, 0, 4]])
def test_a_message_reaches_others_in_the_next_fit_whoever_is_done_first(executor, clients):
    with toy.federation_on(executor) as fed:
        state, model, updates = State(), fed.init_weights("model"), []
        assert fed.relayed_message(state, clients[0], "gift") is None
        for state.round in (1, 2, 3):
            # each client gets the message of the next one, the last that of the first, before or after that one's fit
            each: list[dict[str, Any]] = [{} for _ in clients]
            for k, extra in enumerate(each):
                for name in ("gift", "whole"):
                    if (message := fed.relayed_message(state, clients[(k + 1) % 3], name)) is not None:
                        extra[name] = message
            updates.append(fed.fit(Hands(fed.train), state, clients, {"model": model}, per_client=each).updates)
        assert fed.relayed_message(state, 7, "gift") is None
        assert fed.relayed_message(state, clients[0], "other") is None
    assert [update["heard"] for update in updates[0]] == [[]] * 3
    for k in range(3):
        giver = clients[(k + 1) % 3]
        for round in (2, 3):
            assert updates[round - 1][k]["heard"] == [float(giver), round - 1.0, 0.5]
            before = updates[round - 2][(k + 1) % 3]["model"]
            assert updates[round - 1][k]["sum"] == pytest.approx(before.flat.sum().item(), abs=1e-5)


def test_bytes_by_hand(executor):
    with toy.federation_on(executor) as fed:
        state, model, local = State(round=1), fed.init_weights("model"), Hands(fed.train)
        _, updates = fed.fit(local, state, [0, 3], {"model": model})
        # up: the model, an empty list, a number, and the message: a model and three floats
        assert fed.bytes_up == 2 * (MODEL + 8 + MODEL + 12)
        assert fed.bytes_down == 2 * MODEL
        assert all(update.keys() == {"model", "heard", "sum"} for update in updates)
        state.round, up, down = 2, fed.bytes_up, fed.bytes_down
        gift, relayed_model = fed.relayed_message(state, 0, "gift"), fed.relayed_message(state, 0, "whole")
        fed.fit(local, state, [3, 4], {"model": model, "gift": gift}, per_client=[{"whole": relayed_model}, {}])
        assert fed.bytes_down - down == 2 * (MODEL + 12) + MODEL  # to both, and to one of them
        assert fed.bytes_up - up == 2 * (MODEL + 3 * 8 + 8 + MODEL + 12)  # they report the three numbers of the gift
        up, down = fed.bytes_up, fed.bytes_down
        answers = fed.run_on_clients(state, [5, 6], tell, {"gift": gift}, per_client=[{"whole": relayed_model}] * 2)
        assert fed.bytes_down - down == 2 * (12 + MODEL)
        assert fed.bytes_up - up == 2 * (3 * 8 + MODEL + 8)
        assert [s["heard"] for s in answers] == [[0.0, 1.0, 0.5]] * 2
        assert all("relay" not in s for s in answers)
        (again,) = fed.run_on_clients(
            state, [0], tell, {"gift": fed.relayed_message(state, 6, "gift"), "whole": relayed_model}
        )
        assert again["heard"] == [6.5, 6.5]


class Both(toy.Plain):
    """Sends one model to the server and to others, and more to the others."""

    def make_update(self, net, carry, broadcast, client_state, steps):
        model = carry["model"].values()
        return {"model": model, "relay": {"same": model, "equal": model.clone(), "more": torch.zeros(3)}}


def test_an_object_for_the_server_and_for_others_is_sent_once(executor):
    """The same object counts once, an equal one twice; and the message arrives."""
    with toy.federation_on(executor) as fed:
        state, model = State(round=1), fed.init_weights("model")
        _, updates = fed.fit(Both(fed.train), state, [0, 3], {"model": model})
        assert fed.bytes_up == 2 * (MODEL + MODEL + 12)
        messages = state.relay
        assert all(
            toy.same_state(messages[c]["same"], update["model"]) for c, update in zip([0, 3], updates, strict=True)
        )
        down = fed.bytes_down
        state.round = 2
        fed.fit(Both(fed.train), state, [4], {"model": model, "near": fed.relayed_message(state, 0, "same")})
        assert fed.bytes_down - down == 2 * MODEL


def test_a_client_that_hands_on_nothing_leaves_its_last_message():
    fed, state, model = toy.toy_federation(), State(round=1), toy.toy_federation().init_weights("model")
    fed.fit(Hands(fed.train), state, [0], {"model": model})
    fed.fit(FedAvg(train=fed.train), state, [0], {"model": model}, tag="silent")
    assert fed.relayed_message(state, 0, "gift") is not None


def test_the_server_holds_a_name_and_nothing_else():
    fed, state = toy.toy_federation(), State(round=1)
    _, (update,) = fed.fit(Hands(fed.train), state, [0], {"model": fed.init_weights("model")})
    assert "relay" not in update
    message = fed.relayed_message(state, 0, "whole")
    assert dataclasses.asdict(message) == {"client": 0, "name": "whole"}
    assert not state.server
    assert 0 not in state.clients
    assert "Relay" not in repr(state)


def test_a_checkpoints_messages_outlive_what_came_after_it(tmp_path):
    """They are overwritten only when the next checkpoint is in place. A kill in between loses nothing."""
    path, fed = tmp_path / "c.pt", toy.toy_federation()
    state, model, local = State(round=1), fed.init_weights("model"), Hands(fed.train)
    state.move_to(kept_folder(path, "k"), 0, CPU)
    for _ in range(4):
        fed.fit(local, state, [0, 3], {"model": model})
        save_checkpoint(path, "k", state, {})
        saved = {c: m["gift"].tolist() for c, m in state.relay.items()}
        assert saved == {c: [float(c), float(state.round), 0.5] for c in (0, 3)}
        for _ in range(2):
            state.round += 1
            fed.fit(local, state, [0, 3], {"model": model})
        back, _ = load_checkpoint(path, "k", CPU)
        assert {c: m["gift"].tolist() for c, m in back.relay.items()} == saved
        state.round += 1


class Loud(Hands):
    """One client's message is not finite."""

    def after_fit(self, client, update, broadcast):
        update = super().after_fit(client, update, broadcast)
        if client.id == 3 and client.round == 2:
            update["relay"]["gift"] = torch.full((3,), torch.nan)
        return update


def test_a_message_that_is_not_finite_is_not_handed_on(executor):
    with toy.federation_on(executor) as fed:
        state, model = State(), fed.init_weights("model")
        for state.round in (1, 2):
            clients, _ = fed.fit(Loud(fed.train), state, [0, 3], {"model": model})
    assert clients == [0]
    assert {c: m["gift"].tolist() for c, m in state.relay.items()} == {0: [0, 2, 0.5], 3: [3, 1, 0.5]}


def test_a_relay_is_no_way_to_read_what_clients_keep():
    """The server can neither relay an entry of a client's state nor read it."""
    fed, state = toy.toy_federation(), State(round=1, clients={0: {"secret": torch.zeros(3)}})
    assert fed.relayed_message(state, 0, "secret") is None
    with pytest.raises(KeyError):
        fed.fit(Hands(fed.train), state, [1], {"model": fed.init_weights("model"), "gift": Relayed(0, "secret")})
    with state.store.server_side(), pytest.raises(WireError):
        state.clients[0]

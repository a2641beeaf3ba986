"""Fits that exchange something before every step."""

from typing import Any

import pytest
import torch
import toy
from torch.nn import functional as F
from toy_jobs import apart

from fednoise_core.engine.local import Local, Work
from fednoise_core.engine.state import State
from fednoise_core.rng import torch_stream

IDS = torch.tensor([9, 2, 5, 0, 7, 4, 1, 8, 3, 6])  # all ten public images, in an order of their own


class Mutual(toy.Plain):
    """Deep mutual learning on public images: each descends its divergence from the mean of the others."""

    def get_augmentations(self):
        return ["none"]

    def init_carry(self, net, broadcast, client_state):
        return {"model": client_state["model"]}

    def make_message(self, net, carry, batch, broadcast, client_state):
        return {"logits": net.train(carry["model"].w, batch.x), "i": batch.i, "labels": batch.y}

    def compute_objective(self, net, w, batch, broadcast, client_state):
        theirs = torch.softmax(broadcast["others"], 1)
        return F.kl_div(torch.log_softmax(net.train(w, batch.x), 1), theirs, reduction="batchmean")

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {"steps": steps, "client_state": {"model": carry["model"].values()}}


HEARD: list[list[Any]] = []


def others(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean of all others' logits."""
    HEARD.append([(s["i"].tolist(), s["labels"].tolist()) for s in messages])
    total = sum(s["logits"] for s in messages)
    return [{"others": (total - s["logits"]) / (len(messages) - 1)} for s in messages]


def start(fed: Any, clients: Any) -> State:
    return State(round=1, clients={c: {"model": fed.init_weights("model", c, client=c)} for c in clients})


def run(executor: str, clients: Any = (0, 3), train: dict[str, Any] | None = None, **options: Any):
    with toy.federation_on(executor, train=train) as fed:
        state = start(fed, clients)
        HEARD.clear()
        answered, updates = fed.fit_lockstep(
            Mutual(fed.train), state, clients, {}, others, ids=IDS, **{"batch": 4, **options}
        )
    assert answered == list(clients)
    return fed, state, updates


def falling(step: int, steps: int) -> float:
    return 0.5 * (1 - step / steps)


def test_two_clients_are_a_loop_by_hand(executor):
    """In float64: two epochs of batches of 4, 4 and 2."""
    fed, state, updates = run(executor, epochs=2, lr=falling)
    x = (torch.from_numpy(toy.arrays().x_public)[IDS].double() / 255 - 0.25) / 0.2
    nets = []
    for c in (0, 3):
        w = fed.init_weights("model", c, client=c)
        nets.append([w[name].double().requires_grad_() for name in w.views])
    order, rates = torch_stream(0, "batches", "lockstep", 1), iter(falling(k, 6) for k in range(6))

    def logits(net, rows):
        hidden = torch.relu(x[rows].flatten(1) @ net[0].T + net[1])
        return hidden @ net[2].T + net[3]

    for _ in range(2):
        for rows in torch.randperm(10, generator=order).split(4):
            outputs, rate = [logits(net, rows).detach() for net in nets], next(rates)
            for k in (0, 1):
                theirs = torch.softmax(outputs[1 - k], 1)
                loss = (theirs * (theirs.log() - torch.log_softmax(logits(nets[k], rows), 1))).sum(1).mean()
                grads = torch.autograd.grad(loss, nets[k])
                nets[k] = [(p - rate * g).detach().requires_grad_() for p, g in zip(nets[k], grads, strict=True)]
    for c, net in zip((0, 3), nets, strict=True):
        model = state.clients[c]["model"]
        for name, expected in zip(model.views, net, strict=True):
            torch.testing.assert_close(model[name].double(), expected.detach(), rtol=0, atol=2e-6)
        assert apart(model, fed.init_weights("model", c, client=c)) > 1e-3
    assert [update["steps"] for update in updates] == [6, 6]


def test_bytes_and_work_by_hand(executor):
    fed, *_ = run(executor, clients=(0, 3, 5), epochs=2)
    # 3 clients, 2 epochs of 10 images: 5 logits of 4 bytes, position and label of 8; then the number of steps
    assert fed.bytes_up == 3 * (2 * 10 * (5 * 4 + 8 + 8) + 8)
    assert fed.bytes_down == 3 * 2 * 10 * 5 * 4
    assert fed.passes == 3 * 2 * 10


def test_all_see_the_same_images_in_the_same_order(executor):
    run(executor, clients=(0, 1, 3, 5), epochs=2, targets=torch.arange(10) * 10)
    assert len(HEARD) == 6
    for messages in HEARD:
        assert all(message == messages[0] for message in messages)
        assert messages[0][1] == [10 * i for i in messages[0][0]]
    epochs = [[i for messages in HEARD[k : k + 3] for i in messages[0][0]] for k in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert epochs[0] != epochs[1]


def test_every_client_must_be_answered(executor):
    with toy.federation_on(executor) as fed:
        state = start(fed, (0, 3))
        with pytest.raises(ValueError, match="combine answered 1 of 2 clients"):
            fed.fit_lockstep(Mutual(fed.train), state, (0, 3), {}, lambda messages: others(messages)[:1], ids=IDS)
        # the executor is as good as before
        state.round = 2
        assert fed.fit_lockstep(Mutual(fed.train), state, (0, 3), {}, others, ids=IDS).participants == [0, 3]


class Mute(Mutual):
    make_message = Local.make_message


class Pauses(Mutual):
    def between_epochs(self, client, carry, broadcast, epoch):
        return None


def test_a_local_that_says_nothing_or_pauses_is_refused(executor):
    with toy.federation_on(executor) as fed:
        state = start(fed, (0, 3))
        with pytest.raises((TypeError, RuntimeError), match=r"Mute says nothing: a Local for fed\.fit_lockstep"):
            fed.fit_lockstep(Mute(fed.train), state, (0, 3), {}, others, ids=IDS)
        with pytest.raises(TypeError, match="Pauses: `between_epochs` is for fit"):
            fed.fit_lockstep(Pauses(fed.train), state, (0, 3), {}, others, ids=IDS)


class Explodes(Mutual):
    def compute_objective(self, net, w, batch, broadcast, client_state):
        return super().compute_objective(net, w, batch, broadcast, client_state) * client_state["factor"]

    def prepare_fit(self, client, broadcast):
        return Work(facts={"factor": float("inf") if client.id == 3 else 1.0})


def test_a_client_that_is_not_finite_keeps_the_model_it_had(executor):
    with toy.federation_on(executor) as fed:
        state = start(fed, (0, 3))
        before = state.clients[3]["model"].flat.clone()
        # one step each: the next message to the other client would not be finite either
        clients, updates = fed.fit_lockstep(Explodes(fed.train), state, (0, 3), {}, others, ids=IDS, batch=10)
    assert clients == [0]
    assert len(updates) == 1
    assert fed.dropped == [3]
    assert torch.equal(state.clients[3]["model"].flat, before)
    assert torch.isfinite(state.clients[0]["model"].flat).all()

"""Client work for tests of the executors: a Local that uses all that a step may, and jobs for every client."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from toy import Plain

from fednoise_core.engine.fit import FitRequest
from fednoise_core.engine.local import Local, Work
from fednoise_core.methods import make_method
from fednoise_core.ops.weights import Weights


def all_tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, Mapping):
        return [t for k in sorted(tree, key=str) for t in all_tensors(tree[k])]
    if isinstance(tree, list | tuple):
        return [t for part in tree for t in all_tensors(part)]
    return [tree.flat if isinstance(tree, Weights) else tree] if isinstance(tree, torch.Tensor | Weights) else []


def apart(a: Any, b: Any) -> float:
    """The largest difference of two trees relative to the largest number of each tensor."""
    pairs = list(zip(all_tensors(a), all_tensors(b), strict=True))
    assert pairs
    pairs = [(x.double(), y.double()) for x, y in pairs if x.numel()]
    return max(float((x - y).abs().max() / x.abs().max().clamp_min(1e-3)) for x, y in pairs)


class Everything(Plain):
    """Uses all that a step may: random numbers, per-sample data and state, a further pool, what is kept and sent,
    changing floats, and other samples from epoch to epoch.
    """

    draws = 2

    def prepare_fit(self, client, broadcast):
        client.state["seen"] = client.state.get("seen", torch.zeros(())) + 1
        if client.n < 3:
            return None
        client.targets = (client.labels + 1) % client.classes
        picked, others = torch.arange(0, client.n, 2), torch.arange(1, client.n, 2)
        weight = torch.from_numpy(client.numpy_rng("weight").random(client.n).astype(np.float32))
        facts = {"scale": 1.0 + client.id, "kind": "odd"}
        state = {"mean": client.state.get("mean", torch.zeros(client.n, client.classes))}
        return Work(samples=picked, aux={"weight": weight}, state=state, more={"rest": others}, facts=facts)

    def between_epochs(self, client, carry, broadcast, epoch):
        if client.n < 9:
            return None
        guess = client.predict(carry["model"].values()).argmax(1)
        weight = (guess == client.labels).float() + client.state["mean"].amax(1)
        picked, others = torch.arange(epoch, client.n, 2), torch.arange(1 - epoch, client.n, 3)
        return Work(samples=picked, aux={"weight": weight}, more={"rest": others}, facts={"scale": 2.0, "kind": "odd"})

    def compute_objective(self, net, w, batch, broadcast, client_state):
        logits = net.train(w, batch.x, batch.drop(net))
        loss = self.compute_loss(logits, batch.y) * (1 + batch.u[:, 1])
        if "mean" in batch.state:
            batch.state["mean"] = 0.5 * (batch.state["mean"] + torch.softmax(logits.detach(), 1))
        if "rest" not in batch.more:
            return loss.mean()
        assert client_state["kind"] == "odd"
        second = batch.more["rest"]
        second_loss = self.compute_loss(net.train(w, second.x, second.drop(net)), second.y)
        second_loss = second_loss * second.aux["weight"] * (1 + second.u[:, 0])
        return (loss * batch.aux["weight"]).mean() * broadcast["factor"] + second_loss.mean() / client_state["scale"]

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {
            "model": carry["model"].values(),
            "steps": float(steps),
            "client_state": {"last": carry["model"].values()},
        }


WHO = (1, 7, 2, 0, 3, 6, 4, 5)  # a single sample first, an empty client in between, then smaller and larger ones


def jobs(
    world: Any, local: Local | None = None, clients: Any = WHO, round: int = 1, **broadcast: Any
) -> list[FitRequest]:
    model = world.net(0).fresh(torch.Generator().manual_seed(0))
    local = local or make_method({"name": "fedavg"}, world.train)
    return [
        FitRequest(local, c, round, 2, {"model": model, "lr": 0.05, "factor": 0.5 * round, **broadcast})
        for c in clients
    ]

"""Client work for tests of the executors: a Local that uses all that a step may, and jobs for every client; and a
stand-in for a GPU's streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fednoise_core.engine.executors.graphs import Graphs
from fednoise_core.engine.fit import FitRequest
from fednoise_core.engine.local import Local, Work
from fednoise_core.methods import make
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


class Everything(Local):
    """Uses all that a step may: random numbers, per-sample data and state, a further pool, what is kept and sent,
    changing floats, and other samples from epoch to epoch.
    """

    draws = 2

    def __init__(self, train: Any):
        self.train = train

    def prepare(self, me, down):
        me.mine["seen"] = me.mine.get("seen", torch.zeros(())) + 1
        if me.n < 3:
            return None
        me.targets = (me.labels + 1) % me.classes
        picked, rest = torch.arange(0, me.n, 2), torch.arange(1, me.n, 2)
        weight = torch.from_numpy(me.rng("weight").random(me.n).astype(np.float32))
        facts = {"scale": 1.0 + me.id, "kind": "odd"}
        state = {"mean": me.mine.get("mean", torch.zeros(me.n, me.classes))}
        return Work(samples=picked, aux={"weight": weight}, state=state, more={"rest": rest}, facts=facts)

    def between(self, me, carry, down, epoch):
        if me.n < 9:
            return None
        guess = me.predict(carry["model"].values()).argmax(1)
        weight = (guess == me.labels).float() + me.mine["mean"].amax(1)
        picked, rest = torch.arange(epoch, me.n, 2), torch.arange(1 - epoch, me.n, 3)
        return Work(samples=picked, aux={"weight": weight}, more={"rest": rest}, facts={"scale": 2.0, "kind": "odd"})

    def objective(self, net, w, batch, down, mine):
        logits = net.train(w, batch.x, batch.drop(net))
        loss = self.loss(logits, batch.y) * (1 + batch.u[:, 1])
        if "mean" in batch.state:
            batch.state["mean"] = 0.5 * (batch.state["mean"] + torch.softmax(logits.detach(), 1))
        if "rest" not in batch.more:
            return loss.mean()
        assert mine["kind"] == "odd"
        rest = batch.more["rest"]
        other = self.loss(net.train(w, rest.x, rest.drop(net)), rest.y) * rest.aux["weight"] * (1 + rest.u[:, 0])
        return (loss * batch.aux["weight"]).mean() * down["factor"] + other.mean() / mine["scale"]

    def finish(self, net, carry, down, mine, steps):
        return {"model": carry["model"].values(), "steps": float(steps), "mine": {"last": carry["model"].values()}}


WHO = (1, 7, 2, 0, 3, 6, 4, 5)  # a single sample first, an empty client in between, then smaller and larger ones


def jobs(made: Any, local: Local | None = None, who: Any = WHO, round: int = 1, **down: Any) -> list[FitRequest]:
    model = made.net(0).fresh(torch.Generator().manual_seed(0))
    local = local or make({"name": "fedavg"}, made.train)
    return [FitRequest(local, c, round, 2, {"model": model, "lr": 0.05, "factor": 0.5 * round, **down}) for c in who]


class Late(Graphs):
    """A GPU's order of events: an evaluation is asked for its numbers after the next round."""

    runs_beside = True

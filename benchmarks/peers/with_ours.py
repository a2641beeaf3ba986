"""This library through its front door, `fn.run`, with all that it records; one or more single-thread processes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.work import EVAL_BATCH, MEAN, STD, TRAINED, Clock, Work, make_images, make_net
from fednoise_core.api.simulate import run_federation as front_door
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine import loop
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.noise.labels import Labels


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    x, y = make_images(work)
    n, test = work.pool, slice(work.pool, None) if work.test else slice(0, 10)
    arrays = Arrays(x_train=x[:n], y_train=y[:n], x_test=x[test], y_test=y[test], classes=10, mean=(MEAN,), std=(STD,))
    labels = Labels(
        noisy=y[:n], clean=y[:n], rate=0.0, spec={"artifact": "labels", "noise": {"kind": "clean"}, "classes": 10}
    )
    facts = {"artifact": "partition", "clients": work.clients, "notes": {"overlap": True}}
    rows = work.parts
    parts = Partition.from_parts([np.arange(p.start, p.stop) for p in rows], facts)
    train = {
        "net": work.net, "rounds": work.warm_up + work.rounds, "fraction": work.cohort / work.clients,
        "epochs": work.epochs, "batch": work.batch, "lr": work.lr, "momentum": work.momentum,
        "eval_every": 1 if work.test else 10_000, "eval_batch": EVAL_BATCH,
    }  # fmt: skip

    class Ticking(loop.Progress):
        def __init__(self, *args: Any):
            super().__init__(*args)
            clock.start()

        def report_round(self, *args: Any) -> None:
            super().report_round(*args)
            clock.tick()

    def same_start(self: FedAvg, fed: Federation) -> State:
        """The weights that the other contenders start from; both sides define their layers in the same order."""
        weights = fed.init_weights("model")
        with torch.no_grad():
            for entry, parameter in zip(weights.layout.entries, make_net(work.net).parameters(), strict=True):
                weights[entry.name].copy_(parameter)
        return State(server={"model": weights})

    def count_fits(kind: Any) -> Any:
        original = kind.run

        def run(self: Any, jobs: Any) -> Iterator[Any]:
            for job, result in zip(jobs, original(self, jobs), strict=True):
                TRAINED[0] += result.steps
                TRAINED[1] += job.epochs * (rows[job.client].stop - rows[job.client].start)
                yield result

        return run

    loop.Progress = Ticking  # type: ignore[misc]
    FedAvg.init_state = same_start  # type: ignore[method-assign]
    for kind in (Sequential, Workers):
        kind.run = count_fits(kind)  # type: ignore[method-assign]
    executor = "sequential" if work.processes == 1 else f"workers:{work.processes}"
    model = front_door(arrays, labels, parts, "fedavg", train, 0, executor=executor).outcome.state.server["model"]
    return [model[entry.name] for entry in model.layout.entries]

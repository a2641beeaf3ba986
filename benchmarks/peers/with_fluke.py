"""fluke: client and server objects in one process, messages by deep copy."""

from typing import Any

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from torch import Tensor

from benchmarks.peers.work import EVAL_BATCH, Clock, Work, count_training, make_net, make_tensors


class Splitter:
    """The part of a DataSplitter that an algorithm asks: loaders of clients and server."""

    def __init__(self, work: Work, x: Tensor, y: Tensor):
        self.train = [
            FastDataLoader(x[p], y[p], num_labels=10, batch_size=work.batch, shuffle=True, skip_singleton=False)
            for p in work.parts
        ]
        self.test = None
        if work.test:
            self.test = FastDataLoader(x[work.pool :], y[work.pool :], num_labels=10, batch_size=EVAL_BATCH)

    def assign(self, n_clients: int, batch_size: int) -> Any:
        return (self.train, [None] * n_clients), self.test


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    x, y = make_tensors(work)
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=10))
    environment.set_eval_cfg(server=bool(work.test), locals=False, pre_fit=False, post_fit=False)
    settings = DDict(
        model=count_training(make_net(work.net)),
        client=DDict(
            batch_size=work.batch, local_epochs=work.epochs, loss=torch.nn.CrossEntropyLoss,
            optimizer=DDict(name="SGD", lr=work.lr, momentum=work.momentum),
            scheduler=DDict(name="StepLR", step_size=1, gamma=1),
            persistency=False,  # else the momentum of a client's last round would go on in its next
        ),
        server=DDict(weighted=True),
    )  # fmt: skip
    algorithm = FedAVG(work.clients, Splitter(work, x, y), settings)

    class Ticking(FederationObserver):
        def end_round(self, round: int) -> None:
            clock.tick()

    algorithm.set_callbacks([Ticking()])
    clock.start()
    algorithm.run(work.warm_up + work.rounds, work.cohort / work.clients)
    return list(algorithm.server.model.parameters())

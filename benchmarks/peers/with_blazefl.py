"""BlazeFL's sequential trainer, one process. It trains without momentum, so `train` is overridden."""

from typing import Any

from blazefl.contrib.fedavg import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgUplinkPackage,
)
from blazefl.core import deserialize_model, serialize_model
from torch import Tensor

from benchmarks.peers.work import (
    EVAL_BATCH,
    Clock,
    Work,
    count_training,
    make_loader,
    make_net,
    make_tensors,
    train_locally,
)


class Trainer(FedAvgBaseClientTrainer):
    work: Work

    def train(self, model_parameters: Tensor, train_loader: Any, cid: int) -> FedAvgUplinkPackage:
        deserialize_model(self.model, model_parameters)
        train_locally(self.model, train_loader, self.work)
        return FedAvgUplinkPackage(cid, serialize_model(self.model), len(train_loader.dataset))


class Selector:
    def select_model(self, name: str, seed: int | None = None) -> Any:
        return count_training(make_net(name))


class Clients:
    """The data set interface that trainer and server ask."""

    def __init__(self, work: Work, x: Tensor, y: Tensor):
        self.loaders = [make_loader(x[p], y[p], work.batch) for p in work.parts]
        self.test = make_loader(x[work.pool :], y[work.pool :], EVAL_BATCH, shuffle=False) if work.test else None

    def get_dataloader(self, type_: str, cid: int | None, batch_size: int | None, generator: Any = None) -> Any:
        return self.test if cid is None else self.loaders[cid]


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    x, y = make_tensors(work)
    clients = Clients(work, x, y)
    server = FedAvgBaseServerHandler(
        Selector(), work.net, clients, work.warm_up + work.rounds, work.clients, work.cohort / work.clients, "cpu",
        EVAL_BATCH, 0,
    )  # fmt: skip
    trainer = Trainer(Selector(), work.net, clients, "cpu", work.clients, work.epochs, work.batch, work.lr, 0)
    trainer.work = work
    clock.start()
    while not server.if_stop():  # its pipeline class is this loop
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        if work.test:
            server.get_summary()
        clock.tick()
    return list(server.model.parameters())

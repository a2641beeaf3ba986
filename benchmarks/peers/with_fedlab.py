"""FedLab's stand-alone pipeline: one process, clients in turn. Its trainer has no momentum and its average no weights,
so both are overridden where its documentation says to.
"""

from typing import Any

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool
from fedlab.utils.functional import evaluate
from torch import Tensor, nn, tensor

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


class Trainer(SGDSerialClientTrainer):
    work: Work

    def train(self, model_parameters: Tensor, train_loader: Any) -> list[Tensor]:
        self.set_model(model_parameters)
        train_locally(self._model, train_loader, self.work)
        return [self.model_parameters, tensor(float(len(train_loader.dataset)))]


class Handler(SyncServerHandler):
    def global_update(self, buffer: list[list[Tensor]]) -> None:
        mean = Aggregators.fedavg_aggregate([up[0] for up in buffer], [float(up[1]) for up in buffer])
        SerializationTool.deserialize_model(self._model, mean)


class Clients:
    """The data set interface that the trainer asks."""

    def __init__(self, work: Work, x: Tensor, y: Tensor):
        self.loaders = [make_loader(x[p], y[p], work.batch) for p in work.parts]

    def get_dataloader(self, client: int, batch_size: int) -> Any:
        return self.loaders[client]


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    x, y = make_tensors(work)
    model = count_training(make_net(work.net))
    handler = Handler(model, work.warm_up + work.rounds, work.cohort / work.clients)
    trainer = Trainer(model, work.clients)
    trainer.work = work
    trainer.setup_dataset(Clients(work, x, y))
    trainer.setup_optim(work.epochs, work.batch, work.lr)
    test = make_loader(x[work.pool :], y[work.pool :], EVAL_BATCH, shuffle=False) if work.test else None

    class Pipeline(StandalonePipeline):
        def evaluate(self) -> None:
            if test is not None:
                evaluate(self.handler.model, nn.CrossEntropyLoss(), test)
            clock.tick()

    pipeline = Pipeline(handler, trainer)
    clock.start()
    pipeline.main()
    return list(handler.model.parameters())

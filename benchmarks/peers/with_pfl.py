"""pfl-research in one process: users are data sets of resident tensors, built once; its own loop and average."""

from functools import partial
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers.work import EVAL_BATCH, Clock, Work, count_training, make_net, make_tensors


class Net(nn.Module):
    """The net with the two functions that pfl asks for."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def loss(self, x: Tensor, y: Tensor, is_eval: bool = False) -> Tensor:
        self.train(not is_eval)
        return nn.functional.cross_entropy(self.inner(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.eval()
        logits = self.inner(x)
        loss = float(nn.functional.cross_entropy(logits, y, reduction="sum"))
        return {"loss": Weighted(loss, len(y)), "accuracy": Weighted(float((logits.argmax(1) == y).sum()), len(y))}


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    x, y = make_tensors(work)
    users = [PyTorchTensorDataset((x[p], y[p]), user_id=str(c)) for c, p in enumerate(work.parts)]
    sampler = get_user_sampler("minimize_reuse", list(range(work.clients)))  # "random" may draw a user twice a round
    federated = FederatedDataset(lambda c: users[c], sampler)
    inner = count_training(make_net(work.net))
    wrapped = Net(inner)
    model = PyTorchModel(
        wrapped,
        partial(torch.optim.SGD, momentum=work.momentum),
        torch.optim.SGD(wrapped.parameters(), lr=1.0),
    )

    class Ticking(TrainingProcessCallback):
        def on_train_begin(self, *, model: Any) -> Metrics:
            clock.start()
            return Metrics()

        def after_central_iteration(self, *args: Any, **options: Any) -> tuple[bool, Metrics]:
            clock.tick()
            return False, Metrics()

    callbacks: list[Any] = [Ticking()]
    if work.test:  # ahead of the clock: it is part of the round
        test = PyTorchTensorDataset((x[work.pool :], y[work.pool :]))
        callbacks.insert(0, CentralEvaluationCallback(test, NNEvalHyperParams(local_batch_size=EVAL_BATCH)))
    rounds = work.warm_up + work.rounds
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=rounds, train_cohort_size=work.cohort, val_cohort_size=0
        ),  # on users it evaluates in iteration 0 only, which is a warm-up round
        SimulatedBackend(federated, federated, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=work.epochs, local_learning_rate=work.lr),
        callbacks=callbacks,
        send_metrics_to_platform=False,
    )
    return list(inner.parameters())

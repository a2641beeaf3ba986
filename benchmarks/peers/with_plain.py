"""The plain PyTorch script of benchmarks/plain.py."""

import torch
from torch import Tensor

from benchmarks.peers.work import EVAL_BATCH, Clock, Work, count_training, evaluate, make_loader, make_net, make_tensors
from benchmarks.plain import PlainFedAvg


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    x, y = make_tensors(work)
    plain = PlainFedAvg(count_training(make_net(work.net)), x, y, [], work.lr, work.momentum, work.epochs, work.batch)
    plain.loaders = [make_loader(x[p], y[p], work.batch) for p in work.parts]  # views of x, as everybody has
    plain.sizes = [p.stop - p.start for p in work.parts]
    test = make_loader(x[work.pool :], y[work.pool :], EVAL_BATCH, shuffle=False) if work.test else None
    draw = torch.Generator().manual_seed(0)
    clock.start()
    for _ in range(work.warm_up + work.rounds):
        plain.round(torch.randperm(work.clients, generator=draw)[: work.cohort].tolist())
        if test is not None:
            evaluate(plain.model, test)
        clock.tick()
    return list(plain.model.parameters())

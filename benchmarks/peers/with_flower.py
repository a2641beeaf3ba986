"""Flower's simulation: messages to single-thread Ray actors, `processes` of them; its FedAvg strategy."""

import functools
import json
import logging
import time
from dataclasses import asdict
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor

from benchmarks.peers.work import (
    EVAL_BATCH,
    TRAINED,
    Clock,
    Work,
    count_training,
    evaluate,
    make_loader,
    make_net,
    make_tensors,
    train_locally,
)

client_app = ClientApp()


@functools.cache
def clients(settings: str) -> tuple[Work, list[Any], torch.nn.Module]:
    """Make once for an actor: loaders of all clients, since any may be its next, and a net to load weights into."""
    torch.set_num_threads(1)
    work = Work(**json.loads(settings))
    x, y = make_tensors(work)
    return work, [make_loader(x[p], y[p], work.batch) for p in work.parts], count_training(make_net(work.net))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    work, loaders, model = clients(str(message.content["config"]["work"]))
    before, batches = list(TRAINED), loaders[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train_locally(model, batches, work)
    seen = {"num-examples": len(batches.dataset), "steps": TRAINED[0] - before[0], "trained": TRAINED[1] - before[1]}
    return Message(
        content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(seen)}),
        reply_to=message,
    )


def added(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    """Counts are added up; Flower would average them."""
    records = [reply["metrics"] for reply in replies]
    TRAINED[0] += sum(int(r["steps"]) for r in records)
    TRAINED[1] += sum(int(r["trained"]) for r in records)
    return MetricRecord({"num-examples": sum(int(r["num-examples"]) for r in records)})


def run(work: Work, clock: Clock) -> list[Tensor]:
    """Train, tick after every round, return the global model's weights."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    model, test = make_net(work.net), None
    if work.test:
        x, y = make_tensors(work)
        test = make_loader(x[work.pool :], y[work.pool :], EVAL_BATCH, shuffle=False)
    server_app = ServerApp()

    def after(round: int, arrays: ArrayRecord) -> None:
        if round and test is not None:
            model.load_state_dict(arrays.to_torch_state_dict())
            evaluate(model, test)
        if round:
            clock.tick()
        else:
            clock.start()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < work.clients:  # else round 1 draws its share of those registered so far
            time.sleep(0.01)
        strategy = FedAvg(
            fraction_train=work.cohort / work.clients,
            fraction_evaluate=0.0,
            min_available_nodes=work.clients,
            train_metrics_aggr_fn=added,
        )
        result = strategy.start(
            grid,
            ArrayRecord(model.state_dict()),
            work.warm_up + work.rounds,
            train_config=ConfigRecord({"work": json.dumps(asdict(work))}),
            evaluate_fn=after,
        )
        model.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app,
        client_app,
        work.clients,
        backend_config={
            "init_args": {"num_cpus": work.processes},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return list(model.parameters())

"""CPU time of a round of FedAvg at four sites, against Flower's own FedAvg on the same net and data.

.venv-flower/bin/python -m benchmarks.flower_cost

`make test-flower` makes this environment. All processes run on the loopback. A round is the difference between runs of
2 and 6 rounds, divided by 4, so that the start is not in it.
"""

import ctypes
import os
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

SITES, HIDDEN, BATCH, RATE = 4, 64, 32, 0.1
PR_SET_CHILD_SUBREAPER = 36
client_app = ClientApp()
server_app = ServerApp()


def make_net() -> torch.nn.Module:
    layers = torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)


def load_images(file: Path, images: str, labels: str) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(file) as held:
        return torch.from_numpy(held[images]).float() / 255, torch.from_numpy(held[labels])


@client_app.train()
def train_model(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    x, y = load_images(Path(str(context.node_config["site"])) / "site.npz", "x", "labels")
    net = make_net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rule = torch.optim.SGD(net.parameters(), RATE)
    for rows in torch.randperm(len(x)).split(BATCH):
        rule.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        rule.step()
    metrics = MetricRecord({"num-examples": len(x)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@server_app.main()
def serve_baseline(grid: Grid, context: Context) -> None:
    from flwr.serverapp.strategy import FedAvg  # sites need it not

    x, y = load_images(Path(str(context.run_config["folder"])) / "server.npz", "x_test", "y_test")
    net = make_net()

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": float((net(x).argmax(1) == y).float().mean())})

    rounds = int(context.run_config["rounds"])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=SITES, min_available_nodes=SITES)
    strategy.start(grid, ArrayRecord(net.state_dict()), rounds, evaluate_fn=evaluate)


def measure_run(baseline: bool, rounds: int) -> float:
    """CPU seconds of all processes of a run."""
    from flower_processes import Processes

    import fednoise_core as fn
    from fednoise_core.flower.folders import write_folders

    arrays = fn.dataset("digits")
    partition = fn.partition_of(arrays, {"kind": "iid", "clients": SITES}, seed=0)
    train = {"net": {"name": "mlp", "hidden": HIDDEN}, "rounds": rounds, "fraction": 1.0, "epochs": 1}
    with tempfile.TemporaryDirectory() as folder:
        out, before = Path(folder), sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        settings = {**train, "batch": BATCH, "lr": RATE}
        write_folders(out, arrays, arrays.y_train, partition, {"name": "fedavg"}, settings, 0)
        with Processes(out) as running:
            if baseline:
                file = out / "app" / "pyproject.toml"
                text = file.read_text().replace("fednoise_core.flower.apps", "benchmarks.flower_cost")
                file.write_text(f"{text}rounds = {rounds}\n")
            for client in range(SITES):
                running.start_node(client)
            log = running.run_app()
        assert f"round {rounds}/{rounds}" in log or f"[ROUND {rounds}/{rounds}]" in log, log
        while True:  # those whose parents are gone, too
            try:
                os.wait()
            except ChildProcessError:
                return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    cost = {}
    for name, is_baseline in (("fednoise", False), ("Flower's FedAvg", True)):
        short, long = (measure_run(is_baseline, rounds) for rounds in (2, 6))
        cost[name] = (long - short) / 4
        print(f"{name}: {cost[name]:.1f} CPU seconds a round", flush=True)
    own, flowers = cost.values()
    print(f"ratio {own / flowers:.2f}")


if __name__ == "__main__":
    main()

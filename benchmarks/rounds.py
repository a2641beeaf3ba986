"""Benchmark 1: a round of FedAvg compared with the plain script, in turns in one process (10 of 100 clients x
200 samples, E = 5, batch 32, momentum .9). Median of the ratios. `python -m benchmarks.rounds [--repeats N]`
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import machine
from benchmarks.plain import PlainFedAvg, cnn, mlp
from fednoise_core import Arrays, Partition, Train
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import World
from fednoise_core.io import write_json
from fednoise_core.methods import make_method

TARGETS = {"small_cnn": {"sequential": 2.0}, "mlp": {"sequential": 1.7}}


def world(net: str, clients: int = 100, samples: int = 200, seed: int = 0) -> World:
    """Make random 28x28 images of 10 classes, split evenly over the clients."""
    rng = np.random.default_rng(seed)
    n = clients * samples
    x, y = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), rng.integers(0, 10, n)
    arrays = Arrays(x_train=x, y_train=y, x_test=x[:100], y_test=y[:100], classes=10, mean=(0.5,), std=(0.29,))
    parts = Partition.from_parts(list(np.arange(n).reshape(clients, samples)), {"artifact": "partition"})
    train = Train(net=net, rounds=1000, fraction=10 / clients, epochs=5, batch=32, lr=0.01, momentum=0.9)
    return World(arrays, y, parts, train, seed)


class Ours:
    """One federation on one executor, advanced round by round."""

    def __init__(self, place: World, executor: Any):
        self.method = make_method({"name": "fedavg"}, place.train)
        self.fed = Federation(place, executor)
        self.state = self.method.init_state(self.fed)

    def round(self, who: list[int]) -> None:
        self.state.round += 1
        answers = self.fed.fit(self.method, self.state, who, self.method.make_broadcast(self.fed, self.state))
        self.method.merge_updates(self.fed, self.state, *answers)


def measure(net: str, repeats: int) -> dict[str, Any]:
    """Measure CPU and wall seconds per round of every contender, in turns."""
    place = world(net)
    x = place.pools["train"].take(torch.arange(place.pools["train"].n)).permute(0, 3, 1, 2).contiguous()
    torch.manual_seed(0)
    plain = PlainFedAvg(cnn() if net == "small_cnn" else mlp(), x, place.labels, place.index, 0.01, 0.9, 5, 32)
    runners = {
        "plain script": plain,
        "sequential": Ours(place, Sequential(place)),
        "workers:1": Ours(place, Workers(place, 1)),
        "workers:2": Ours(place, Workers(place, 2)),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runners}
    for repeat in range(repeats + 1):
        who = torch.randperm(100, generator=torch.Generator().manual_seed(repeat))[:10].tolist()
        for name, runner in runners.items():
            wall, cpu = time.perf_counter(), time.process_time()
            runner.round(who)
            if repeat:  # the first repeat is a warm-up
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    for name in ("workers:1", "workers:2"):
        runners[name].fed.executor.close()  # type: ignore[union-attr]
    rows = {}
    for name, turns in times.items():
        pairs = list(zip(turns, times["plain script"], strict=True))
        pairs_with_worker = list(zip(turns, times["workers:1"], strict=True))
        rows[name] = {
            "wall_s": statistics.median(w for w, _ in turns),
            "cpu_s": statistics.median(c for _, c in turns),
            "speed_wall": statistics.median(p[0] / o[0] for o, p in pairs),
            "speed_cpu": statistics.median(p[1] / o[1] for o, p in pairs),
            "against_one_worker": statistics.median(p[0] / o[0] for o, p in pairs_with_worker),
        }
    return rows


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print the table, write it as JSON, return it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rounds.json"))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    result = {
        "machine": machine(),
        "rounds": {net: measure(net, args.repeats) for net in ("small_cnn", "mlp")},
        "targets": TARGETS,
    }
    for net, rows in result["rounds"].items():
        print(f"\n{net}: one round, 10 of 100 clients x 200 samples, E = 5, batch 32")
        print(f"{'':14} {'wall s':>8} {'CPU s':>8} {'x plain (wall)':>15} {'x plain (CPU)':>14} {'x one worker':>13}")
        for name, row in rows.items():
            cpu = "" if name.startswith("workers") else f"{row['cpu_s']:8.3f}"  # not measured in worker processes
            ratio = "" if name.startswith("workers") else f"{row['speed_cpu']:14.2f}"
            wall = f"{row['wall_s']:8.3f} {cpu:>8} {row['speed_wall']:15.2f}"
            print(f"{name:14} {wall} {ratio:>14} {row['against_one_worker']:13.2f}")
        print(
            f"target: sequential >= {TARGETS[net]['sequential']} x plain (CPU); two workers >= 1.8 x one on idle cores"
        )
    write_json(args.out, result)
    print(json.dumps(result["machine"]))
    return result


if __name__ == "__main__":
    main()

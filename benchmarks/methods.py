"""Benchmark 3: what a round of every method costs relative to FedAvg. Run: python -m benchmarks.methods [--repeats 3]

The small CNN on random 28x28 images, 5 of 20 clients x 100 samples, E = 2, batch 32; whole runs turn by turn, CPU time
of a whole round including the method's own phases; memory is the peak of a process that runs this method alone.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fednoise_core.io import write_json

FIELDS: dict[str, dict[str, Any]] = {  # fields without a default; every registered method is measured
    "coteaching": {"forget_rate": 0.2},
    "fedcorr": {"iterations": 1, "tune_rounds": 2, "full_rounds": 2},
    "fedmd": {"pretrain": 1, "public": 200},
    "rhfl": {"pretrain": 1, "public": 200},
    "fedhnl": {"pretrain": 1, "public": 200},
    "local": {"pretrain": 1},
}


def measure(names: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """Runs of these methods, turn by turn in this process."""
    import numpy as np
    import torch

    from fednoise_core.api.simulate import run_federation
    from fednoise_core.data.arrays import Arrays
    from fednoise_core.data.partition import Partition
    from fednoise_core.noise.labels import Labels

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    clients, samples, rounds = 20, 100, 4
    rng = np.random.default_rng(0)
    n = clients * samples
    x, y = rng.integers(0, 256, (n + 500, 28, 28), dtype=np.uint8), rng.integers(0, 10, n)
    arrays = Arrays(
        x_train=x[:n], y_train=y, x_test=x[:100], y_test=y[:100], classes=10, mean=(0.5,), std=(0.29,), x_public=x[n:]
    )
    facts = {"artifact": "partition", "clients": clients, "notes": {}}
    partition = Partition.from_parts(list(np.arange(n).reshape(clients, samples)), facts)
    labels = Labels(noisy=y, clean=y, rate=0.0, spec={"artifact": "labels", "noise": {"kind": "clean"}, "classes": 10})
    train = {"net": "small_cnn", "rounds": rounds, "fraction": 0.25, "epochs": 2, "lr": 0.01, "eval_every": 1000}
    times: dict[str, list[float]] = {name: [] for name in names}
    rows: dict[str, dict[str, float]] = {}
    for turn in range(repeats + 1):
        for name in names:
            began = time.process_time()
            made = run_federation(arrays, labels, partition, {"name": name, **FIELDS.get(name, {})}, train, 0)
            if turn:  # the first one warms up
                times[name].append((time.process_time() - began) / max(made.summary["work"], 1e-9))
            sent = made.summary["bytes_up"] + made.summary["bytes_down"]
            rows[name] = {"bytes": sent / made.summary["work"]}
    for name in names:
        rows[name] |= {"cpu_s": statistics.median(times[name]), "peak_mb": made.cost["peak_memory_mb"]}
        rows[name]["time"] = statistics.median(
            a / b for a, b in zip(times[name], times.get("fedavg", times[name]), strict=True)
        )
    return rows


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print the table; returns it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", help="measure this method's memory in this process")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/methods.json"))
    args = parser.parse_args(argv)
    if args.alone:
        found = measure([args.alone], 1)
        print(json.dumps(found))
        return found
    from fednoise_core.methods import METHODS

    rows = measure(list(METHODS), args.repeats)
    print("| method | CPU s a round of work | x FedAvg | peak MB | x FedAvg | bytes a round of work | x FedAvg |")
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        command = [sys.executable, "-m", "benchmarks.methods", "--alone", name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row["peak_mb"] = json.loads(said.splitlines()[-1])[name]["peak_mb"]
        first = rows["fedavg"]
        memory = f"{row['peak_mb']:.0f} | {row['peak_mb'] / first['peak_mb']:.2f}"
        row["byte_ratio"] = row["bytes"] / first["bytes"]
        sent = f"{row['bytes']:.3g} | {row['byte_ratio']:.2f}"
        print(f"| {name} | {row['cpu_s']:.3f} | {row['time']:.2f} | {memory} | {sent} |", flush=True)
    write_json(args.out, {"rows": rows})
    return {"rows": rows}


if __name__ == "__main__":
    main()

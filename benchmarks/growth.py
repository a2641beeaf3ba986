"""Benchmark 4: growth of time and memory with clients, cohort, samples and client state.

Run: python -m benchmarks.growth [--large 100000]. A small CNN is trained on random 28x28 images, from which all clients
draw. Every row is a separate process, so that its peak memory is measured separately. `round` is the median CPU time of
a round without evaluation. `start` and `end` are the time before the first round and after the last one.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fednoise_core.io import write_json

IMAGES = 60_000
BASE = {"method": {"name": "fedavg"}, "clients": 100, "cohort": 10, "samples": 60, "rounds": 12}
MB_LIMIT, GROWTH_LIMIT = 2000.0, 1.2


def cases(large: int) -> dict[str, dict[str, Any]]:
    """Map names to settings. Each group of settings varies one quantity."""
    settings = {}
    clients = 100
    while clients <= large:
        settings[f"clients {clients}"] = {"clients": clients}
        clients *= 10
    for cohort in (30, 100):
        settings[f"cohort {cohort}"] = {"clients": 1000, "cohort": cohort, "rounds": 6}
    for samples in (120, 240):
        settings[f"samples {samples}"] = {"samples": samples, "rounds": 6}
    for clients in (100, 10_000):
        settings[f"scaffold, clients {clients}"] = {"method": {"name": "scaffold"}, "clients": clients}
    large_state = {"method": {"name": "scaffold"}, "clients": 1000, "cohort": 500, "rounds": 4, "samples": 10}
    settings["scaffold, cohort 500 of 1000"] = large_state
    settings["the same, kept in a file"] = {**large_state, "room": 0}
    return settings


def measure(case: dict[str, Any]) -> dict[str, float]:
    """Measure one run in this process."""
    import numpy as np
    import torch

    from fednoise_core.api.simulate import run_federation
    from fednoise_core.data.arrays import Arrays
    from fednoise_core.data.partition import Partition
    from fednoise_core.engine import loop as engine_loop
    from fednoise_core.engine.client_store import ROOM
    from fednoise_core.noise.labels import Labels

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    spec = {**BASE, **case}
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8), rng.integers(0, 10, IMAGES)
    arrays = Arrays(x_train=x, y_train=y, x_test=x[:100], y_test=y[:100], classes=10, mean=(0.5,), std=(0.29,))
    starts = rng.integers(0, IMAGES - spec["samples"], spec["clients"])
    parts = [np.arange(a, a + spec["samples"]) for a in starts]
    facts = {"artifact": "partition", "clients": spec["clients"], "notes": {"overlap": True}}
    partition = Partition.from_parts(parts, facts)
    del parts
    labels = Labels(noisy=y, clean=y, rate=0.0, spec={"artifact": "labels", "noise": {"kind": "clean"}, "classes": 10})
    train = {
        "net": "small_cnn", "rounds": spec["rounds"], "fraction": spec["cohort"] / spec["clients"], "epochs": 5,
        "batch": 32, "lr": 0.01, "momentum": 0.9, "eval_every": 10_000,
    }  # fmt: skip
    ends: list[float] = []

    class Clock(engine_loop.Progress):
        def report_round(self, *args: Any) -> None:
            ends.append(time.process_time())
            super().report_round(*args)

    engine_loop.Progress = Clock  # type: ignore[misc]
    began = time.process_time()
    run = run_federation(arrays, labels, partition, spec["method"], train, 0, room=spec.get("room", ROOM))
    over = time.process_time()
    rounds = [b - a for a, b in itertools.pairwise(ends)]
    states = run.outcome.state.clients
    return {
        "start_s": ends[0] - began,
        "round_s": statistics.median(rounds),
        "per_client_ms": 1e3 * statistics.median(rounds) / spec["cohort"],
        "end_s": over - ends[-1],
        "peak_mb": run.cost["peak_memory_mb"],
        "bytes_per_client": run.cost["client_state_bytes"],
        "in_a_file": states.filed,  # type: ignore[attr-defined]
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print the table, and return it with the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", type=int, default=100_000, help="the largest number of clients")
    parser.add_argument("--case", help="one setting as JSON, measured in this process")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/growth.json"))
    args = parser.parse_args(argv)
    if args.case:
        row_of_case = measure(json.loads(args.case))
        print(json.dumps(row_of_case))
        return row_of_case
    rows: dict[str, dict[str, float]] = {}
    print("| setting | start s | round s | ms a client-round | end s | peak MB | kept bytes a client |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, case in cases(args.large).items():
        command = [sys.executable, "-m", "benchmarks.growth", "--case", json.dumps(case)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = rows[name] = json.loads(output.splitlines()[-1])
        figures = " | ".join(f"{row[k]:.3g}" for k in ("start_s", "round_s", "per_client_ms", "end_s"))
        print(f"| {name} | {figures} | {row['peak_mb']:.0f} | {row['bytes_per_client']:.0f} |", flush=True)
    result = {"rows": rows, "limits": {"peak_mb": MB_LIMIT, "round_growth": GROWTH_LIMIT}}
    write_json(args.out, result)
    return result


if __name__ == "__main__":
    main()

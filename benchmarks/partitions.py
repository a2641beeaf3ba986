"""Time and memory of every partition at 1,000,000 samples over 10,000 clients. Run: python -m benchmarks.partitions

Each scheme runs in its own process, so that the memory is its own. The bound is 10 s and 2 GB each; exit code 1 if one
is missed."""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from fednoise_core.data.labelled import LabelledData
from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partition

SECONDS, MEGABYTES = 10.0, 2000.0
CASES: list[dict[str, object]] = [
    {"kind": "iid"},
    {"kind": "openset", "mode": "uniform"},
    {"kind": "openset", "mode": "nonuniform"},
    {"kind": "bernoulli_dirichlet", "p": 0.7, "alpha": 10.0},
    {"kind": "bernoulli_dirichlet", "p": 0.2, "alpha": 1.0},
    {"kind": "classes_per_client", "n": 3, "mode": "fedlsr"},
    {"kind": "classes_per_client", "n": 3, "mode": "shards"},
    {"kind": "classes_per_client", "n": 3, "mode": "disjoint_classes"},
    {"kind": "random_draws", "size": 100},
    {"kind": "random_draws", "size": 100, "overlap": False},
    {"kind": "dirichlet", "alpha": 0.5},
    {"kind": "quantity", "alpha": 1.0},
    {"kind": "natural"},
]


def measure(spec: dict[str, object], samples: int, clients: int, classes: int) -> None:
    """Make one partition and print its seconds and the peak memory of this process as JSON."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, samples)
    source = LabelledData(y, classes, client=rng.integers(0, clients, samples))
    labels = Labels(y, float("nan"), {"classes": classes})
    if spec["kind"] != "natural":
        spec = {**spec, "clients": clients}
    start = time.perf_counter()
    made = partition.make(source, spec, 0, labels)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "min": int(made.sizes.min()), "max": int(made.sizes.max())}))


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--case", help="one spec as JSON, measured in this process")
    args = parser.parse_args(argv)
    if args.case:
        measure(json.loads(args.case), args.samples, args.clients, args.classes)
        return 0
    slow = False
    print(f"{args.samples} samples, {args.clients} clients, {args.classes} classes")
    print("| partition | seconds | peak MB | smallest | largest |\n|---|---|---|---|---|")
    for spec in CASES:
        command = [sys.executable, "-m", "benchmarks.partitions", "--case", json.dumps(spec)]
        command += [
            word for name in ("samples", "clients", "classes") for word in (f"--{name}", str(getattr(args, name)))
        ]
        got = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        name = " ".join(str(value) if key == "kind" else f"{key}={value}" for key, value in spec.items())
        print(f"| {name} | {got['seconds']:.2f} | {got['peak_mb']:.0f} | {got['min']} | {got['max']} |", flush=True)
        slow |= got["seconds"] > SECONDS or got["peak_mb"] > MEGABYTES
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())

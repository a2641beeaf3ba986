"""Benchmark 6: seconds until a training process is ready, compared with a bare `import torch`.

Run: python -m benchmarks.startup. The processes take turns, and the result is the median of the ratios. It also lists
the packages other than torch that take the most time by `python -X importtime`.
"""

import argparse
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from fednoise_core.io import write_json

TARGET = 1.3
CODE = {  # imports of the command when the first round of FedAvg begins
    "import torch": "import torch",
    "train": "import workflow_scripts.steps.train, fednoise_core.api.simulate; "
    "import fednoise_core.methods.fedavg, fednoise_core.nets.small",
}


def seconds(code: str) -> float:
    """Measure CPU seconds of a new interpreter that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heaviest(code: str, count: int = 8) -> list[tuple[str, float]]:
    """List packages outside torch by the milliseconds for the import of their own modules."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], check=True, capture_output=True, text=True
    )
    spent: dict[str, float] = {}
    for line in process.stderr.splitlines()[1:]:
        microseconds, _, name = line.removeprefix("import time:").split("|")
        if microseconds.strip().isdigit():
            package = name.strip().split(".")[0]
            spent[package] = spent.get(package, 0.0) + int(microseconds) / 1e3
    return sorted(((k, v) for k, v in spent.items() if k != "torch"), key=lambda pair: -pair[1])[:count]


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print and return the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/startup.json"))
    args = parser.parse_args(argv)
    for code in CODE.values():
        seconds(code)  # fills the file cache
    turns = [{name: seconds(code) for name, code in CODE.items()} for _ in range(args.repeats)]
    figures: dict[str, Any] = {name: statistics.median(turn[name] for turn in turns) for name in CODE}
    figures["ratio"] = statistics.median(turn["train"] / turn["import torch"] for turn in turns)
    figures["beyond_torch_ms"] = dict(heaviest(CODE["train"]))
    spent = ", ".join(f"{name} {figures[name]:.2f} s" for name in CODE)
    print(f"{spent}, x {figures['ratio']:.2f} (target {TARGET})")
    print("ms in other packages: " + ", ".join(f"{k} {v:.0f}" for k, v in figures["beyond_torch_ms"].items()))
    write_json(args.out, figures)
    return figures


if __name__ == "__main__":
    main()

"""Run all benchmarks that take about five minutes on two cores, and print a table with targets: python -m benchmarks

To set options of a benchmark, run its own module. Results: benchmarks/results/*.json.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: two threads are slower than one for such small steps

from benchmarks import growth, net_steps, rounds, startup
from benchmarks.machine import machine
from fednoise_core.io import write_json

Row = tuple[str, str, str, bool | None]  # quantity, value, target, reached (None without a target)


def main(argv: list[str] | None = None) -> None:
    """Run them all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bench.json"))
    args = parser.parse_args(argv)
    results: dict[str, Any] = {"machine": machine()}
    for name, run in (
        ("startup", lambda: startup.main([])),
        ("rounds", lambda: rounds.main(["--repeats", "7"])),
        ("net_steps", lambda: net_steps.measure(["cnn9-28", "resnet18-32"], 3, True)),
        ("growth", lambda: growth.main([])),
    ):
        print(f"\n# {name}", flush=True)
        results[name] = run()
        write_json(args.out, results)
    print(f"\n{', '.join(f'{k} {v}' for k, v in results['machine'].items())}\n")
    print("| what | figure | target | |\n|---|---|---|---|")
    for figure_name, figure, target, reached in table(results):
        print(
            f"| {figure_name} | {figure} | {target} | {'' if reached is None else 'reached' if reached else 'missed'} |"
        )


def table(results: dict[str, Any]) -> Iterator[Row]:
    """The rows of the table from the benchmarks' results."""
    ratio = results["startup"]["ratio"]
    yield "import of a training process / import torch", f"{ratio:.2f}", "≤ 1.3", ratio <= 1.3
    for net, target in (("small_cnn", 2.0), ("mlp", 1.7)):
        rows = results["rounds"]["rounds"][net]
        speed, ratio_of_two = rows["sequential"]["speed_cpu"], rows["workers:2"]["against_one_worker"]
        yield f"{net} round, one worker / plain script, CPU time", f"{speed:.2f} x", f"≥ {target} x", speed >= target
        yield (
            f"{net} round, two workers / one, wall time",
            f"{ratio_of_two:.2f} x",
            "≥ 1.8 x (idle cores)",
            ratio_of_two >= 1.8,
        )
    for net, row in results["net_steps"]["rows"].items():
        share, half = row["share"], row["bf16_share"]
        yield f"{net} step, fp32, share of the measured peak", f"{share:.0%}", "≥ 70 %", share >= 0.7
        yield f"{net} step, bf16, share of the measured peak", f"{half:.0%}", "≥ 60 %", half >= 0.6
    rows = results["growth"]["rows"]
    grown, first = rows["clients 10000"], rows["clients 100"]
    slower = grown["round_s"] / first["round_s"]
    yield "10,000 clients: round / that of 100 clients", f"{slower:.2f} x", "≤ 1.2 x", slower <= growth.GROWTH_LIMIT
    yield "10,000 clients: peak memory", f"{grown['peak_mb']:.0f} MB", "< 2000 MB", grown["peak_mb"] < growth.MB_LIMIT
    for name in ("clients 100000", "cohort 100", "samples 240"):
        row = rows[name]
        yield name, f"{row['per_client_ms']:.1f} ms a client-round, {row['peak_mb']:.0f} MB", "", None


if __name__ == "__main__":
    main()

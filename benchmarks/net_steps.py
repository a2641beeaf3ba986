"""One training step of the large nets on one thread, compared with the same net as an ordinary channels_last module.

Run: python -m benchmarks.net_steps [--repeats 7] [--nets cnn9-28,cnn9-32,resnet18-32]

The module is torchvision's for ResNet-18 (3x3 stem, no max-pool), otherwise that of tests/support/eager_nets.py. Both
use the same weights, batch, cross entropy and SGD with momentum. They take turns, and the ratio is the median over
pairs of the ratio of CPU times, because other processes may share the machine. The share is relative to the peak
measured in the same run (machine.peak). With --bf16 our step also runs under autocast, and the last column has the
speed-up.
Exit code 1 if a ratio is above the bound.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.machine import machine, peak
from fednoise_core.io import write_json
from fednoise_core.nets import build_net
from fednoise_core.ops import optim
from fednoise_core.ops.optim import Trained
from fednoise_core.ops.weights import Weights
from tests.support.eager_nets import copy_into, eager
from workflow_scripts.commands.calculation import make_counter

BOUND = 1.05
CASES: dict[str, Any] = {  # name -> (net, channels, side, batch, width); batch is 60 in FedLSR and 32 in FedDPCont
    "cnn9-28": ("cnn9", 1, 28, 60),
    "cnn9-28-width32": ("cnn9", 1, 28, 60, 32),
    "cnn9-28-width8": ("cnn9", 1, 28, 60, 8),
    "cnn9-32": ("cnn9", 3, 32, 60),
    "resnet18-32": ("resnet18", 3, 32, 32),
    "mobilenet_v2-32": ("mobilenet_v2", 3, 32, 32),
    "shufflenet-32": ("shufflenet", 3, 32, 32),
    "small_cnn-28": ("small_cnn", 1, 28, 32),
}
Step = Callable[[], Tensor]


def steps(name: str, channels: int, side: int, batch: int, width: int | None = None) -> tuple[Step, Step, Step]:
    """Return functions for one step from equal weights: (ours, the module's, ours in bf16). Each returns the loss."""
    generator = torch.Generator().manual_seed(0)
    options = {"width": width} if width else {}
    net = build_net({"name": name, **options}, (channels, side, side), 10)
    start = net.fresh(generator)
    x = torch.randn(batch, side, side, channels, generator=generator).permute(0, 3, 1, 2)
    y = torch.randint(10, (batch,), generator=generator)
    u = torch.rand(batch, net.draws, generator=generator) if net.draws else None

    trained = Trained(net.layout, optim.make_optimiser("sgd", momentum=0.5))
    trained.load(start)

    def ours() -> Tensor:
        loss = F.cross_entropy(net.train(trained.w, x, u), y)
        trained.backward(loss)
        trained.update(0.01)
        return loss

    module = counterpart(name, channels, side, start, **options).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rule = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.5)

    def theirs() -> Tensor:
        rule.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        rule.step()
        return loss

    def half() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            return ours()

    return ours, theirs, half


def counterpart(name: str, channels: int, side: int, start: Weights, **options: int) -> nn.Module:
    """Make the ordinary module with weights `start`."""
    if name != "resnet18":
        module = eager(name, channels, side, 10, **options)
        copy_into(module, start)
        return module
    import torchvision

    module = torchvision.models.resnet18(num_classes=10)
    module.conv1, module.maxpool = nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.Identity()
    module.load_state_dict({n.replace("head.", "fc."): t for n, t in start.named().items()}, strict=False)
    return module


def seconds(step: Step) -> float:
    """Measure CPU seconds of one step, which is repeated for at least a tenth of a second."""
    began, count = time.process_time(), 0
    while True:
        step()
        count += 1
        spent = time.process_time() - began
        if spent > 0.1:
            return spent / count


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--nets", default="cnn9-28,cnn9-32,resnet18-32", help="among: " + ", ".join(CASES))
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/net_steps.json"))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    results = measure(args.nets.split(","), args.repeats, args.bf16)
    write_json(args.out, {"machine": machine(), **results})
    return int(any(row["ratio"] > BOUND for row in results["rows"].values()))


def measure(nets: list[str], repeats: int, bf16: bool) -> dict[str, Any]:
    """Print and return the table: peak GFLOP/s by precision, and the medians of each net."""
    peaks = {"fp32": peak(torch.float32), "bf16": peak(torch.bfloat16) if bf16 else float("nan")}
    peak_text = ", ".join(f"{name} {value:.0f}" for name, value in peaks.items() if value == value)
    print(f"torch {torch.__version__}, 1 thread, {repeats} pairs, CPU time; peak GFLOP/s: {peak_text}")
    print(
        "| net | batch | GFLOP | ours ms | GFLOP/s | share | module ms | ours / module (range) | bf16 ms | share | x |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows: dict[str, dict[str, Any]] = {}
    for case in nets:
        ours, theirs, half = steps(*CASES[case])
        with make_counter() as counter:
            ours()
        gflop = counter.get_total_flops() / 1e9
        for step in (ours, theirs, half) if bf16 else (ours, theirs):
            step()
        pairs, halves = [], []
        for k in range(repeats):
            order = (ours, theirs) if k % 2 else (theirs, ours)
            spent = {step: seconds(step) for step in order}
            pairs.append((spent[ours], spent[theirs]))
            if bf16:
                halves.append(seconds(half))
        net_s, module_s = (statistics.median(pair[k] for pair in pairs) for k in (0, 1))
        ratios = sorted(a / b for a, b in pairs)
        row = {"gflop": gflop, "ms": net_s * 1e3, "module_ms": module_s * 1e3, "ratio": statistics.median(ratios)}
        row["share"] = gflop / net_s / peaks["fp32"]
        if bf16:
            row["bf16_ms"] = statistics.median(halves) * 1e3
            row["bf16_share"] = gflop / statistics.median(halves) / peaks["bf16"]
            row["bf16_speed"] = statistics.median(pair[0] / half_s for pair, half_s in zip(pairs, halves, strict=True))
        rows[case] = row
        last = f"{row['bf16_ms']:.1f} | {row['bf16_share']:.0%} | {row['bf16_speed']:.2f}" if bf16 else " | | "
        print(
            f"| {case} | {CASES[case][3]} | {gflop:.1f} | {net_s * 1e3:.1f} | {gflop / net_s:.0f} | {row['share']:.0%} "
            f"| {module_s * 1e3:.1f} | {row['ratio']:.3f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) | {last} |",
            flush=True,
        )
    return {"peak_gflops": {k: v for k, v in peaks.items() if v == v}, "rows": rows}


if __name__ == "__main__":
    sys.exit(main())

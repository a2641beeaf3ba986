"""Benchmark 5: from an eager step to lanes shared by several runs, on one GPU.

Run: python -m benchmarks.gpu_ladder [--minutes 9] [--arrays cifar10.npz] [--out docs/results/gpu]

Needs torch, numpy, safetensors and pydantic only. Each rung adds one thing to the one before: `eager` gathers every
batch from host memory, `resident` has the data on the device, `graph` replays a captured step in one lane, `tf32` and
`bf16` compute in these, `lanes N` runs N clients side by side, `shared R` lets R runs use the lanes of one process,
`compiled` is `lanes 10` with torch.compile's kernels under our capture. An evaluation of the test images is timed
apart. Every rung is timed over whole cohorts after a warm-up cohort. The floor of a step is its arithmetic at the bf16
peak that a large matrix product reached in the same run. Without --arrays the images are random: the arithmetic is the
same.
--dry: a miniature on the CPU, where the stand-in of graphs.py takes the place of CUDA; its times mean nothing.
"""

import argparse
import gc
import os
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from benchmarks.machine import gflop_of, machine, peak
from fednoise_core.api.simulate import run_federation
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine.evaluate import Evaluator
from fednoise_core.engine.executors.gpu.graphs import graphs_for
from fednoise_core.engine.executors.gpu.lanes import LanePool, Lanes
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.fit import ClientFit
from fednoise_core.engine.local import Batch
from fednoise_core.engine.loop import Saving, Stopped
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.world import World
from fednoise_core.io import open_atomic, write_json
from fednoise_core.methods import make_method
from fednoise_core.noise.labels import Labels
from fednoise_core.settings.train import Train


@dataclass(frozen=True)
class Case:
    """A workload: `cohort` of `clients` clients x `samples`, `epochs` epochs of `batch`."""

    net: str
    method: dict[str, Any]
    shape: tuple[int, int, int]  # H, W, C
    samples: int
    cohort: int
    batch: int
    epochs: int = 5
    clients: int = 100
    nets: int = 1  # trained per client
    rounds: int = 300
    train: dict[str, Any] = field(default_factory=dict)


CASES = {
    "resnet18, FedDPCont": Case(
        "resnet18", {"name": "feddpcont"}, (32, 32, 3), 500, 10, 32, train={"augment": "crop_flip", "momentum": 0.9}
    ),
    "cnn9, FedAvg": Case("cnn9", {"name": "fedavg"}, (32, 32, 3), 600, 5, 60),
    "resnet18, Co-teaching": Case(
        "resnet18", {"name": "coteaching", "forget_rate": 0.2}, (32, 32, 3), 500, 10, 32, nets=2
    ),
}
DRY = {
    "mlp, FedDPCont": Case("mlp", {"name": "feddpcont"}, (8, 8, 1), 12, 3, 5, 1, 4, rounds=2),
    "mlp, Co-teaching": Case("mlp", {"name": "coteaching", "forget_rate": 0.2}, (8, 8, 1), 12, 3, 5, 1, 4, nets=2),
}


class HostFit(ClientFit):
    """A fit whose every batch comes from host memory, as a DataLoader would bring it."""

    def open(self) -> ClientFit:
        super().open()
        self.host, self.order = self.x.cpu(), self.plan.order.cpu()
        return self

    def make_batch(self, k: int) -> Batch:
        a, b = self.plan.steps[k]
        order = self.plan.order[a:b]
        views, u = self.make_views(self.host[self.order[a:b]].to(self.world.device), self.plan.u[a:b])
        return Batch(views, self.y[order], order, u, self.plan.masks[a:b], {}, {})


class Host(Sequential):
    """The sequential executor over such fits."""

    def run(self, requests: Any) -> Any:
        for request in requests:
            fit = HostFit(self.world, request, self.workspace).open()
            for steps in fit.iterate_stretches():
                for k in steps:
                    fit.step(k)
            yield fit.close()


def arrays_of(case: Case, path: Path | None) -> Arrays:
    """The data set given, if it is large enough and of the case's shape; else random images."""
    if path is not None:
        loaded = Arrays.load(path)
        if loaded.x_train.shape[1:] == case.shape and len(loaded.x_train) >= case.clients * case.samples:
            return loaded
    rng = np.random.default_rng(0)
    n, channels = case.clients * case.samples, case.shape[2]
    x = rng.integers(0, 256, (n, *case.shape), dtype=np.uint8)
    y = rng.integers(0, 10, n)
    facts = {"classes": 10, "mean": (0.5,) * channels, "std": (0.25,) * channels}
    test = max(100, n // 5)
    return Arrays(x_train=x, y_train=y, x_test=x[:test], y_test=y[:test], **facts)


def parts_of(case: Case) -> Partition:
    rows = np.random.default_rng(1).permutation(case.clients * case.samples).reshape(case.clients, case.samples)
    facts = {"artifact": "partition", "clients": case.clients, "notes": {}}
    return Partition.from_parts([np.sort(r) for r in rows], facts)


def train_of(case: Case, precision: str) -> Train:
    settings = {"net": case.net, "fraction": case.cohort / case.clients, "epochs": case.epochs, "batch": case.batch}
    return Train(**{**settings, "lr": 0.01, "rounds": case.rounds, "precision": precision, **case.train})


def federation(
    case: Case, arrays: Arrays, device: str, precision: str, executor: Any, seed: int = 0
) -> Callable[[], None]:
    """A function that trains one cohort."""
    world = World(arrays, arrays.y_train, parts_of(case), train_of(case, precision), seed, device)
    method = make_method(case.method, world.train)
    fed = Federation(world, executor(world))
    state = method.init_state(fed)

    def cohort() -> None:
        state.round += 1
        who = fed.sample_cohort(state.round)
        method.merge_updates(fed, state, *fed.fit(method, state, who, method.make_broadcast(fed, state)))

    return cohort


def compiled(world: World, device: str) -> World:
    """The world with nets whose training pass torch.compile has rewritten (on a CPU only traced)."""
    backend = "inductor" if device == "cuda" else "aot_eager"
    for net in world.nets:
        net.train = torch.compile(net.train, backend=backend, dynamic=False)  # type: ignore[method-assign]
    return world


def evaluation(case: Case, arrays: Arrays, device: str) -> float:
    """Seconds of one evaluation on the test images, as a bf16 run does it, nothing else going on."""
    world = World(arrays, arrays.y_train, parts_of(case), train_of(case, "bf16"), 0, device)
    fed = Federation(world, Sequential(world))
    method = make_method(case.method, world.train)
    state = method.init_state(fed)
    test = Pool(arrays.x_test, arrays.mean, arrays.std, device)
    evaluator = Evaluator(fed, test, torch.as_tensor(np.asarray(arrays.y_test, dtype=np.int64), device=device))
    spent = []
    for _ in range(4):
        began = time.perf_counter()
        list(evaluator.start_evaluation(method.list_models(fed, state), state.store)())
        spent.append(time.perf_counter() - began)
    return min(spent[1:])


def timed(works: list[Callable[[], None]], device: str, repeats: int = 2) -> float:
    """Seconds of a cohort, if all run at once, each in its thread and on its stream; the first cohort warms up."""
    graphs = graphs_for(torch.device(device))
    streams = [graphs.plain_stream() for _ in works]

    def one(work: Callable[[], None], stream: Any) -> None:
        with graphs.on(stream):
            work()

    # a thread for each all along: cuDNN's plans are kept by thread, and a new one would make them within the time
    threads = [ThreadPoolExecutor(1) for _ in works]

    def together() -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        asked = [thread.submit(one, *job) for thread, *job in zip(threads, works, streams, strict=True)]
        for answer in asked:
            answer.result()  # also raises what a thread raised
        if device == "cuda":
            torch.cuda.synchronize()

    try:
        together()
        began = time.perf_counter()
        for _ in range(repeats):
            together()
        return (time.perf_counter() - began) / repeats / len(works)
    finally:
        for thread in threads:
            thread.shutdown()


def rungs(case: Case, arrays: Arrays, device: str) -> dict[str, Callable[[], float]]:
    """Name -> seconds of a cohort (measured when called)."""

    def alone(precision: str, executor: Callable[[World], Any]) -> Callable[[], float]:
        return lambda: timed([federation(case, arrays, device, precision, executor)], device)

    def shared(runs: int, lanes: int) -> Callable[[], float]:
        def measured() -> float:
            pool = LanePool(device, lanes)
            works = [federation(case, arrays, device, "bf16", lambda w: Lanes(w, pool), seed) for seed in range(runs)]
            return timed(works, device)

        return measured

    return {
        "eager": alone("fp32", Host),
        "resident": alone("fp32", Sequential),
        "graph": alone("fp32", lambda w: Lanes(w, lanes=1)),
        "tf32": alone("tf32", lambda w: Lanes(w, lanes=1)),
        "bf16": alone("bf16", lambda w: Lanes(w, lanes=1)),
        "lanes 4": alone("bf16", lambda w: Lanes(w, lanes=4)),
        "lanes 10": alone("bf16", lambda w: Lanes(w, lanes=10)),
        "shared 2": shared(2, 10),
        "shared 4": shared(4, 16),
        "compiled": alone("bf16", lambda w: Lanes(compiled(w, device), lanes=10)),
    }


def climb(
    cases: dict[str, Case],
    device: str,
    path: Path | None,
    until: float,
    peak_gflops: float,
    save: Callable[[Any], None],
) -> dict[str, Any]:
    """All rungs of all cases for which there is time; one that fails says why and does not stop the others. save: takes
    what there is after each case, should the rest be cut off.
    """
    ladder: dict[str, Any] = {}
    for name, case in cases.items():
        arrays = arrays_of(case, path)
        height, _, channels = case.shape
        gflop = gflop_of(case.net, channels, height, case.batch) * case.nets
        steps = case.cohort * case.epochs * -(-case.samples // case.batch)
        samples = case.cohort * case.epochs * case.samples * case.nets
        rows = ladder[name] = {}
        print(f"\n{name}: {case.cohort} clients x {case.samples} x {case.epochs} epochs, {gflop:.1f} GFLOP a full step")
        print("| rung | ms a step | samples/s | TFLOP/s | share of the floor |\n|---|---|---|---|---|", flush=True)
        for rung, measured in rungs(case, arrays, device).items():
            if time.monotonic() > until:
                rows[rung] = {"missing": "no time left"}
                print(f"| {rung} | no time left | | | |", flush=True)
                continue
            gc.collect()  # lanes refer to their pool: what the last rung had would stay on the device
            try:
                with warnings.catch_warnings():  # a rung that fell back to eager steps is not what it is called
                    warnings.filterwarnings("error", message=".*cannot be captured")
                    seconds = measured()
            except Exception as error:
                rows[rung] = {"missing": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
                print(f"| {rung} | {rows[rung]['missing']} | | | |", flush=True)
                continue
            rate = gflop / case.nets / case.batch * samples / seconds  # GFLOP/s, the short last batch at its size
            row = {"ms_per_step": 1e3 * seconds / steps, "samples_per_s": samples / seconds, "tflops": rate / 1e3}
            rows[rung] = {**row, "share": rate / peak_gflops}
            figures = f"{row['ms_per_step']:.3f} | {row['samples_per_s']:.0f} | {row['tflops']:.2f}"
            print(f"| {rung} | {figures} | {rate / peak_gflops:.1%} |", flush=True)
        if time.monotonic() < until:
            rows["evaluation"] = {"seconds": evaluation(case, arrays, device), "images": len(arrays.x_test)}
            print(f"an evaluation on {len(arrays.x_test)} images: {1e3 * rows['evaluation']['seconds']:.1f} ms")
        save(ladder)
    return ladder


def whole_run(case: Case, device: str, path: Path | None, until: float, folder: Path) -> dict[str, Any]:
    """The run of the paper's length through the front door, evaluation every round; stopped when time is up."""
    arrays = arrays_of(case, path)
    labels_given = arrays.y_train
    clean = {"artifact": "labels", "noise": {"kind": "clean"}, "classes": 10}
    labels = Labels(noisy=labels_given, clean=labels_given, rate=0.0, spec=clean)
    began, progress = time.monotonic(), folder / "progress.jsonl"
    saving = Saving(folder / "checkpoint.pt", "ladder", seconds=1e9, stop=lambda: time.monotonic() > until)
    facts: dict[str, Any] = {"rounds_wanted": case.rounds, "data": "real" if path is not None else "random"}
    progress.unlink(missing_ok=True)
    try:
        run = run_federation(
            arrays, labels, parts_of(case), case.method, train_of(case, "bf16"), 0,
            device=device, executor="lanes", saving=saving, progress=progress,
        )  # fmt: skip
        facts |= {"rounds": run.summary["rounds"], "finished": True, "accuracy": run.summary["accuracy"]["last"]}
    except Stopped:
        facts |= {"rounds": len(progress.read_text().splitlines()), "finished": False}
    finally:
        (folder / "checkpoint.pt").unlink(missing_ok=True)
        progress.unlink(missing_ok=True)
    facts["seconds"] = time.monotonic() - began
    return facts


def markdown(result: dict[str, Any]) -> str:
    """The tables, headed by where they were measured."""
    facts = result["machine"]
    lines = ["# GPU ladder", "", ", ".join(f"{k} {v}" for k, v in facts.items()), ""]
    if result["dry"]:
        lines += ["A dry run on the CPU: the times mean nothing.", ""]
    peaks = ", ".join(f"{name} {value:,.0f}" for name, value in result["peak_gflops"].items())
    lines += [f"Peak of a large product, GFLOP/s: {peaks}", ""]
    for name, rows in result["ladder"].items():
        measured = {rung: row for rung, row in rows.items() if "ms_per_step" in row}
        reasons = dict.fromkeys(row["missing"] for row in rows.values() if "missing" in row)
        lines += [f"## {name}"]
        if measured:
            lines += ["", "| rung | ms a step | samples/s | TFLOP/s | share of the floor |", "|---|---|---|---|---|"]
        for rung, row in measured.items():
            figures = f"{row['ms_per_step']:.3f} | {row['samples_per_s']:.0f} | {row['tflops']:.2f}"
            lines.append(f"| {rung} | {figures} | {row['share']:.1%} |")
        if "evaluation" in rows:
            images, seconds = rows["evaluation"]["images"], rows["evaluation"]["seconds"]
            lines += ["", f"An evaluation on {images} images: {1e3 * seconds:.1f} ms"]
        for reason in reasons:
            lines += ["", f"Not measured, {reason}: " + ", ".join(r for r in rows if rows[r].get("missing") == reason)]
        lines.append("")
    lines += ["## A whole run", "", ", ".join(f"{k} {v}" for k, v in result["whole_run"].items()), ""]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Climb the ladder; writes `<out>/ladder.json` and `.md`, and returns the former's content."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything; a third is kept for the whole run")
    parser.add_argument("--arrays", type=Path, help="arrays artifact of CIFAR-10; default: random images of its shape")
    parser.add_argument("--fast", action="store_true", help="kernels whose sums are not in a fixed order, too")
    parser.add_argument("--dry", action="store_true", help="a miniature on the CPU")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu"))
    args = parser.parse_args(argv)
    began = time.monotonic()
    if not args.dry and not torch.cuda.is_available():
        parser.error("no GPU is visible; --dry shows on the CPU that the script works")
    device, cases = ("cpu", DRY) if args.dry else ("cuda", CASES)
    torch.set_num_threads(1 if args.dry else torch.get_num_threads())
    size = 256 if args.dry else 0
    torch.backends.cudnn.allow_tf32 = False  # torch's default would be taken for the peak of float32
    if not args.dry and not args.fast:  # as `train` computes unless it is told otherwise
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    peaks = {str(t).removeprefix("torch."): round(peak(t, device, size), 1) for t in (torch.float32, torch.bfloat16)}
    end = began + 60 * args.minutes
    args.out.mkdir(parents=True, exist_ok=True)
    facts = {"machine": machine(), "dry": args.dry, "fast": args.fast, "peak_gflops": peaks}
    result: dict[str, Any] = {}

    def save(ladder: dict[str, Any], long_run: Mapping[str, Any] = MappingProxyType({"missing": "cut off"})) -> None:
        result.update(facts, ladder=ladder, whole_run=dict(long_run))
        write_json(args.out / "ladder.json", result)
        with open_atomic(args.out / "ladder.md") as file:
            file.write(markdown(result))

    ladder = climb(cases, device, args.arrays, began + 40 * args.minutes, peaks["bfloat16"], save)
    first = next(iter(cases.values()))
    long_run = whole_run(first, device, args.arrays, end, args.out)
    print("\nwhole run: " + ", ".join(f"{k} {v}" for k, v in long_run.items()))
    save(ladder, long_run)
    return result


if __name__ == "__main__":
    main()

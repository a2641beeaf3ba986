"""A round of FedAvg in this library, in a plain script and in frameworks from the package index.

Run: python -m benchmarks.peers --venv DIR [--venv DIR ...] [--turns 7] [--only NAME ...]

Each DIR is a virtual environment named after its peer (benchmarks/README.md says how to make them). Peers without one
are left out. First every contender trains a case without randomness, and must end with the same weights after the same
steps. Then, in every case, each contender is one process (Flower and workers: with children) that warms up and waits.
The contenders take turns of a few rounds, and only one trains at a time, because the load of the machine changes from
minute to minute. A ratio is taken within a turn. Its median and range are over the turns. Each process has one thread.
CPU time is that of a process and all its descendants. In the cases with many clients each contender runs alone, for two
turns.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.peers.tree import memory_mb
from benchmarks.peers.work import OVER, READY
from fednoise_core.io import write_json

ROOT = Path(__file__).parents[2]
TURN_LIMIT = 900.0  # seconds
CONTENDERS = {  # name -> (peer, number of processes that train)
    "plain script": ("plain", 1),
    "fednoise": ("ours", 1),
    "pfl-research": ("pfl", 1),
    "BlazeFL": ("blazefl", 1),
    "fluke": ("fluke", 1),
    "FedLab": ("fedlab", 1),
    "Flower, 1 actor": ("flower", 1),
    "fednoise, 2 workers": ("ours", 2),
    "Flower, 2 actors": ("flower", 2),
}
LOCAL_PEERS = ("plain", "ours")  # they run in this environment
# Every batch is a client's whole data and every cohort the whole federation, so neither order nor sampling matters.
CHECK = {
    "clients": 6,
    "cohort": 6,
    "samples": 30,
    "epochs": 3,
    "rounds": 2,
    "per_turn": 2,
    "pool": 2000,
    "uneven": True,
}
TOLERANCE = 1e-3  # share of the distance that the weights moved
MANY_CLIENTS = {"samples": 60, "pool": 60_000, "per_turn": 2}
CASES: dict[str, dict[str, Any]] = {
    "small_cnn": {},
    "mlp": {"net": "mlp", "per_turn": 4},
    "small_cnn, evaluated": {"test": 10_000},
    "1,000 clients": {"clients": 1000, **MANY_CLIENTS},
    "10,000 clients": {"clients": 10_000, **MANY_CLIENTS},
}
SEPARATE_CASES = ("1,000 clients", "10,000 clients")
MINIATURE = {"clients": 5, "cohort": 2, "samples": 20, "epochs": 1, "pool": 2000}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PFL_PYTORCH_DEVICE": "cpu",
    "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
}  # fmt: skip

Row = dict[str, Any]


class Contender:
    """A process that trains a turn at a time. When it has ended, `row` is its result, or {"missing": reason}."""

    def __init__(self, name: str, python: Path, settings: Row):
        peer, processes = CONTENDERS[name]
        self.name, self.row, self.peak = name, {}, (0.0, 0)
        self.folder = tempfile.TemporaryDirectory(prefix="peers", ignore_cleanup_errors=True)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment |= {**ENVIRONMENT, "TMPDIR": self.folder.name, "RAY_TMPDIR": self.folder.name}
        work = json.dumps({**settings, "processes": processes})
        command = [str(python), "-m", "benchmarks.peers.contender", peer, work, str(time.time())]
        self.errors = Path(self.folder.name, "errors")
        with self.errors.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self.process.stdout as output:  # type: ignore[union-attr]
            for line in output:
                self.lines.put(line)
        self.lines.put(None)

    def run_turn(self) -> bool:
        """Let the process train its next turn. Returns False if it has ended."""
        if self.process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write("go\n")  # type: ignore[union-attr]
                self.process.stdin.flush()  # type: ignore[union-attr]
        return self.wait_until_ready()

    def wait_until_ready(self) -> bool:
        """Wait until the process asks for its next turn, and measure its memory. Returns False if it has ended."""
        deadline, line, last_line, over = time.monotonic() + TURN_LIMIT, "", "", False
        while line is not None and not line.startswith(READY):
            try:
                line = self.lines.get(timeout=0.5)
                last_line, over = line or last_line, over or (line or "").startswith(OVER)
            except queue.Empty:
                if not over:
                    self._measure_memory()
                if time.monotonic() > deadline:
                    os.killpg(self.process.pid, signal.SIGKILL)  # its session holds no other process
        if line is not None:
            self._measure_memory()
            return True
        if self.process.wait():
            messages = self.errors.read_text().strip().splitlines() or ["no message"]
            self.row = {"missing": f"exit {self.process.returncode}: {messages[-1]}"}
        else:
            self.row = {**json.loads(last_line), "peak_mb": round(self.peak[0], 1), "processes": self.peak[1]}
        return False

    def _measure_memory(self) -> None:
        self.peak = tuple(map(max, self.peak, memory_mb(self.process.pid)))

    def stop(self) -> None:
        """End the process if it still runs, and remove its folder."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # type: ignore[union-attr]
        self.folder.cleanup()


def race(names: list[str], pythons: dict[str, Path], settings: Row) -> dict[str, Row]:
    """Run all contenders of a case in turns: one trains while the others wait."""
    running: list[Contender] = []
    results: dict[str, Row] = {}
    try:
        for name in names:
            contender = Contender(name, pythons[CONTENDERS[name][0]], settings)
            running.append(contender)
            if contender.wait_until_ready():
                contender.run_turn()  # warm-up
            print(f"{name}: {contender.row.get('missing', 'ready')}", file=sys.stderr, flush=True)
        waiting = [c for c in running if not c.row]
        while waiting:
            waiting = [c for c in waiting if c.run_turn()]
            waiting = waiting[1:] + waiting[:1]  # so that no contender always follows the same other one
        results = {c.name: c.row for c in running}
    finally:
        for contender in running:
            contender.stop()
    return results


def list_differences(results: dict[str, Row]) -> Iterator[str]:
    """Yield the differences of contenders from the first one in steps, images and weights."""
    names = [name for name, row in results.items() if "missing" not in row]
    reference = results[names[0]]
    for name in names:
        row = results[name]
        for key in ("steps", "trained"):
            if row[key] != reference[key]:
                yield f"{name}: {key} {row[key]}, not {reference[key]}"
        row["apart"] = max(
            abs(a - b) / reference["moved"] for a, b in zip(row["projections"], reference["projections"], strict=True)
        )
        if not row["apart"] < TOLERANCE:
            yield f"{name}: weights apart by {row['apart']:.2g} of the distance moved"


def summarise(results: dict[str, Row]) -> dict[str, Row]:
    """Take medians over the turns of each contender, and of its ratios to the plain script within a turn."""
    rows: dict[str, Row] = {}
    plain = results.get("plain script", {})
    for name, result in results.items():
        if "missing" in result:
            rows[name] = result
            continue
        row = {k: result[k] for k in ("setup_s", "warm_up_s", "peak_mb", "processes", "steps")}
        row |= {k: statistics.median(result[k]) for k in ("cpu_s", "round_s")} | {
            "best_round_s": min(result["round_s"])
        }
        row |= {"turns": len(result["cpu_s"]), "loss": [result["loss_before"], result["loss_after"]]}
        for key, time_key in (("speed_cpu", "cpu_s"), ("speed_wall", "round_s")):
            if time_key in plain:
                ratios = [a / b for a, b in zip(plain[time_key], result[time_key], strict=True)]
                row[key] = _median_and_range(ratios)
        rows[name] = row
    return rows


def _median_and_range(values: list[float]) -> list[float]:
    return [round(v, 3) for v in (statistics.median(values), min(values), max(values))]


def format_tables(cases: dict[str, dict[str, Row]]) -> Iterator[str]:
    """Yield the lines of a Markdown table for each case."""
    for case, rows in cases.items():
        yield f"\n{case}\n"
        yield "| | s a round | CPU s | x plain (CPU) | x plain (wall) | set-up, warm-up s | MB | processes | loss |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for name, row in rows.items():
            if "missing" in row:
                yield f"| {name} | {row['missing']} | | | | | | | |"
                continue
            speeds = ["{:.2f} ({:.2f}-{:.2f})".format(*row[k]) if k in row else "" for k in ("speed_cpu", "speed_wall")]
            yield (
                f"| {name} | {row['round_s']:.3f} | {row['cpu_s']:.3f} | {speeds[0]} | {speeds[1]} "
                f"| {row['setup_s']:.1f}, {row['warm_up_s']:.1f} | {row['peak_mb']:.0f} | {row['processes']} "
                f"| {row['loss'][0]:.3f} -> {row['loss'][1]:.3f} |"
            )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark, print its tables, and write all turns as JSON. Exit code 1 if two contenders differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, action="append", default=[], help="an environment named after its peer")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, help="contenders (default: all that can run)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--dry", action="store_true", help="a miniature whose times mean nothing")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/peers.json"))
    args = parser.parse_args(argv)
    pythons = {peer: Path(sys.executable) for peer in LOCAL_PEERS}
    pythons |= {folder.name: folder.absolute() / "bin" / "python" for folder in args.venv}
    chosen = [n for n, (peer, _) in CONTENDERS.items() if peer in pythons and (not args.only or n in args.only)]
    result: dict[str, Any] = {"machine": machine(), "dry": args.dry, "versions": {}}

    def run(settings: Row, names: list[str]) -> dict[str, Row]:
        rows = race(names, pythons, settings)
        result["versions"] |= {name: row.pop("versions") for name, row in rows.items() if "versions" in row}
        return rows

    nets = dict.fromkeys(CASES[case].get("net", "small_cnn") for case in args.cases)
    result["check"] = {net: run({**CHECK, "net": net}, chosen) for net in nets}
    problems = [
        f"{net}: {difference}" for net, results in result["check"].items() for difference in list_differences(results)
    ]
    result |= {"differences": problems, "cases": {}, "turns": {}}
    if problems:
        sys.exit("the contenders compute different things:\n" + "\n".join(problems))
    for case in args.cases:
        print(f"{case}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        settings = {"per_turn": 1, **CASES[case], **(MINIATURE if args.dry else {})}
        settings["rounds"] = settings["per_turn"] * (2 if case in SEPARATE_CASES else args.turns)
        if case in SEPARATE_CASES:  # waiting contenders would slow the one that trains
            results = {name: row for alone in chosen for name, row in run(settings, [alone]).items()}
        else:
            results = run(settings, chosen)
        result["cases"][case], result["turns"][case] = summarise(results), results
        write_json(args.out, result)
    print(", ".join(f"{k} {v}" for k, v in result["machine"].items()))
    print("\n".join(format_tables(result["cases"])))
    return result


if __name__ == "__main__":
    main()

"""run: one federation, from arrays, labels, partition, method and seed to results. The command line and the tests both
call this.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fednoise_core import __version__
from fednoise_core.data.arrays import Arrays
from fednoise_core.engine import output
from fednoise_core.engine.executors.choose import executor_for
from fednoise_core.engine.loop import Outcome, loop
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError, digest
from fednoise_core.methods import make
from fednoise_core.noise.labels import Labels
from fednoise_core.partition.artifact import Partition
from fednoise_core.run_inputs import Options, check_augmentation, check_data, checked_settings, options_of, with_foreign
from fednoise_core.spec import Train

if TYPE_CHECKING:
    from fednoise_core.methods.fedavg import FedAvg

__all__ = ["FinishedRun", "run"]


@dataclass(repr=False)
class FinishedRun:
    """A finished run. summary: the dict of summary.json; cost: that of cost.json; spec: that of spec.json. outcome:
    state, curves and models for a closer look. world: its data as tensors. arrays, labels, partition: what it was
    given.
    """

    summary: dict[str, Any]
    cost: dict[str, Any]
    outcome: Outcome
    world: World
    spec: dict[str, Any]
    arrays: Arrays
    labels: Labels
    partition: Partition

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the result files (docs/results_files.md), each whole or not at all."""
        told = self.outcome, self.summary, self.spec, self.cost
        output.write(Path(folder), *told, self.arrays, self.labels.noisy, self.partition.sites)

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(round, accuracy) of the headline view; round 0 is before training."""
        return self.outcome.record.curve(self.summary["headline_view"])

    @property
    def suspects(self) -> list[tuple[int, int, float, int]]:
        """(sample, client, P(given label is wrong), proposed label) of every sample that was judged; `outcome.suspects`
        has more, site by site.
        """
        columns = ("samples", "p_wrong", "proposed")
        rows = ((one.site, *(getattr(one, name).tolist() for name in columns)) for one in self.outcome.suspects)
        return [(i, site, p, label) for site, *lists in rows for i, p, label in zip(*lists, strict=True)]

    def __repr__(self) -> str:
        ran, found = self.summary["run"], self.summary["accuracy"]
        what = "accuracy" if self.summary.get("test_known", True) else "agreement with given labels"
        accuracy = f"{what} {found['last']:.4f}, best {found['best']:.4f}"
        seconds = f"{self.cost['seconds']:.1f} s"
        return f"<{ran['method']}, seed {ran['seed']}, {self.summary['rounds']} rounds: {accuracy}, {seconds}>"


def run(
    arrays: Arrays,
    labels: Labels,
    partition: Partition,
    method: Mapping[str, Any] | str,
    train: Mapping[str, Any] | Train | None = None,
    seed: int = 0,
    *,
    donor: Arrays | None = None,
    **options: Any,
) -> FinishedRun:
    """Train one federation and evaluate it.

    arrays, labels, partition: of one data set. method: a name, or `{"name": …, fields…}`. train: a spec.Train or its
    fields. seed: a whole number from 0. donor: the data set whose images replace some, for labels with open-set noise.

    options (run_inputs.Options), of which only device and threads may change the last bits of a result:
    device: "cpu", "cuda" or "cuda:N". executor: see `executor_for`. pool: lanes shared with other runs. threads: of
    torch, during this run; more than one is far slower where cores are shared. saving: a loop.Saving, where and how
    often to checkpoint. room: bytes of what clients keep that may stay in memory; the rest goes to a file. out: folder
    for the result files. spec: what spec.json records instead of the settings. label: what the run is called in
    messages. console: a stream for one line per round. progress: a file for the same as JSON lines. on_round: a
    function that gets each round's metrics (`Record.of_round`). made: the method itself, of a class that has no name.

    Raises SpecError for wrong settings and for data that do not belong together, TypeError for arguments of another
    type, both before any training; loop.Stopped if `saving` asked to stop.
    """
    began = time.monotonic(), time.process_time()
    how = options_of(options)
    check_data(arrays, labels, partition, donor)
    method, settings, seed = checked_settings(method, train, seed)
    chosen = how.made or make(method, settings)
    arrays = with_foreign(arrays, labels, donor)
    world = World(arrays, labels.noisy, partition, settings, seed, how.device, labels.generator, chosen.pooled)
    check_augmentation(settings, chosen.augments(), world.pools["train"].shape)
    if chosen.needs_public and "public" not in world.pools:
        raise SpecError(f"method: {method['name']} needs public images: give the data set a `public` part")
    rows = [held.cpu().numpy() for held in world.index]
    truth = Truth(labels.clean, labels.noisy, rows, world.classes, labels.replaced)
    with _torch_set_up(how.threads):
        outcome, executor = _trained(world, chosen, truth, arrays, how, how.label or method["name"])
    facts = {"run": {"method": method["name"], "seed": seed}, "clean_known": labels.clean is not None}
    facts["test_known"] = arrays.test_known
    record: dict[str, Any] = {"spec": {"method": method, "train": dict(vars(settings)), "seed": seed}}
    if how.spec is not None:
        facts |= how.spec.get("facts", {})
        record = {key: value for key, value in how.spec.items() if key != "facts"}
    facts["spec_digest"] = digest(record["spec"])
    cost = _cost(outcome, world, executor, began)
    summary = output.summary(outcome, facts)
    made = FinishedRun(summary, cost, outcome, world, record, arrays, labels, partition)
    if how.out is not None:
        made.write(how.out)
    return made


def _trained(
    world: World, method: FedAvg, truth: Truth, arrays: Arrays, how: Options, label: str
) -> tuple[Outcome, str]:
    """What the training left, and the name of the executor that did it."""
    test = Pool(arrays.x_test, arrays.mean, arrays.std, world.device)
    test_y = torch.from_numpy(np.asarray(arrays.y_test, dtype=np.int64)).to(world.device)
    executor = executor_for(world, how.executor, how.pool)
    if how.console is not None:
        print(f"{label}  {executor.name} x {executor.count}, {_device(world.device)}", file=how.console)
        if not arrays.test_known:
            print(f"{label}  no trusted test set: numbers are agreement with given labels", file=how.console)
    with contextlib.closing(executor):
        outcome = loop(
            world,
            executor,
            method,
            truth,
            test,
            test_y,
            saving=how.saving,
            room=how.room,
            label=label,
            console=how.console,
            progress=how.progress,
            on_round=how.on_round,
        )
    return outcome, executor.name


@contextlib.contextmanager
def _torch_set_up(threads: int) -> Iterator[None]:
    """Torch's switches for this thread as a run needs them, put back afterwards. Processes started inside inherit them.

    Numbers near zero count as zero: weights that decay to denormal numbers would slow every kernel.
    """
    before, flushed = torch.get_num_threads(), _flushes_denormals()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)


def _flushes_denormals() -> bool:
    """Whether torch's set_flush_denormal is on, which it does not tell: a denormal number is then zero in a product."""
    return bool(torch.tensor([1e-310], dtype=torch.float64).mul(1.0).eq(0).item())


def _cost(outcome: Outcome, world: World, executor: str, began: tuple[float, float]) -> dict[str, Any]:
    """The dict of cost.json: what depends on the machine. began: time.monotonic(), time.process_time() at the start."""
    seconds = outcome.spent[0] + time.monotonic() - began[0]  # of all attempts
    return {
        "seconds": seconds,
        "seconds_per_round": seconds / max(outcome.state.round, 1),
        "cpu_seconds": outcome.spent[1] + time.process_time() - began[1],
        "peak_memory_mb": _peak(),
        "client_state_bytes": outcome.state._kept.largest,  # of one client
        "device": _device(world.device),
        "executor": executor,
        "resumed": outcome.resumed,
        "versions": {
            "fednoise_core": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": sys.version.split()[0],
        },
    }


def _peak() -> float:
    """Peak memory of this process in MB (on a GPU that of the device's allocator)."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent had when it forked, also after an exec
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return int(found[1]) / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    import platform

    return f"{device.type} ({platform.machine()})"

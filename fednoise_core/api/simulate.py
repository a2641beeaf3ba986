"""One run, from arrays, labels, partition, method and seed to results.

The command line and the Python interface both use this module. Arguments are checked before any work. A wrong argument
raises one error, which names it and the remedy.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from pydantic import JsonValue

from fednoise_core.api.checks import (
    apply_openset_images,
    check_data,
    check_device,
    check_pools,
    check_writable,
    resolve_settings,
    warn_of_slow_bf16,
)
from fednoise_core.api.cost import device_name, record_cost
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine import output
from fednoise_core.engine.client_store import ROOM
from fednoise_core.engine.executors.choose import executor_for
from fednoise_core.engine.loop import Outcome, Saving, run_loop
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import World, torch_switches
from fednoise_core.io import SpecError, json_digest
from fednoise_core.methods import make_method
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.sampling import continue_cohorts
from fednoise_core.settings.declare import check_value
from fednoise_core.settings.functions import check_int, expect_type
from fednoise_core.settings.train import Train

PATH = (str, os.PathLike, type(None))
OPTIONS: dict[str, tuple[Any, str]] = {  # option → its types, and what to pass instead of another
    "executor": (str, 'pass a name such as "workers:4"'),
    "label": (str, "pass a text"),
    "room": (int, "pass a number of bytes"),
    "saving": ((Saving, type(None)), "pass fn.Saving(path), or None"),
    "out": (PATH, "pass the path of a folder, or None"),
    "progress": (PATH, "pass the path of a file, or None"),
    "spec": ((Mapping, type(None)), "pass a mapping with the key 'spec', or None"),
    "on_round": ((Callable, type(None)), "pass a function of one dict, or None"),
}


class NotSaved(OSError):
    """The files of a finished run could not be written. `run` is the run."""

    def __init__(self, problem: str, run: FinishedRun) -> None:
        super().__init__(problem)
        self.run = run


@dataclass(repr=False)
class FinishedRun:
    """Finished run with its data.

    Attributes:
        summary: Content of summary.json.
        cost: Content of cost.json.
        outcome: State, curves and models for a closer look.
        world: Data of the run as tensors.
        spec: Content of spec.json.
        arrays: Data set of the run.
        labels: Labels of the run.
        partition: Partition of the run.
    """

    summary: dict[str, Any]
    cost: dict[str, Any]
    outcome: Outcome
    world: World
    spec: dict[str, Any]
    arrays: Arrays
    labels: Labels
    partition: Partition

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result files (docs/results_files.md), each whole or not at all.

        Args:
            folder: Folder to write to. `fn.load(folder)` reads it.

        Raises:
            NotSaved: The disk is full, or the folder cannot be written to.
        """
        try:
            output.write_results(
                Path(folder),
                self.outcome,
                self.summary,
                self.spec,
                self.cost,
                self.arrays,
                self.labels.noisy,
                self.partition.sites,
            )
        except OSError as error:
            raise NotSaved(str(error), self) from error

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Accuracy of the headline view after each evaluation, as (round, accuracy). Round 0 is before training."""
        return self.outcome.record.curve(self.summary["headline_view"])

    @property
    def suspects(self) -> list[tuple[int, int, float, int]]:
        """Estimate of every assessed sample, as (sample, client, P(given label is wrong), proposed label).

        `outcome.suspects` has more details for each site.
        """
        columns = ("samples", "p_wrong", "proposed")
        rows = (
            (judged.site, *(getattr(judged, name).tolist() for name in columns)) for judged in self.outcome.suspects
        )
        return [(i, site, p, label) for site, *lists in rows for i, p, label in zip(*lists, strict=True)]

    def __repr__(self) -> str:
        ran, best = self.summary["run"], self.summary["accuracy"]["best"]
        accuracy = describe_end(self.summary) + ("" if best is None else f", best {best:.4f}")
        rounds = f"{self.summary['rounds']} rounds of {self.world.cohort} of {self.summary['clients']} clients"
        return f"<{ran['method']}, seed {ran['seed']}, {rounds}: {accuracy}, {self.cost['seconds']:.1f} s>"


def accuracy_words(facts: Mapping[str, Any]) -> str:
    """Name the accuracy in messages.

    If the test labels are held-out given labels, they may be wrong, so the number is not an accuracy.

    Args:
        facts: Content of summary.json, or its `test_known`.

    Returns:
        "accuracy" or "agreement with given labels".
    """
    return "accuracy" if facts.get("test_known", True) else "agreement with given labels"


def describe_end(summary: Mapping[str, Any]) -> str:
    """Describe in words how a run ended.

    Args:
        summary: Content of summary.json.

    Returns:
        The last accuracy, with "at chance" if it is not above chance, or "diverged".
    """
    last, chance = summary["accuracy"].get("last"), " (at chance)" if summary.get("at_chance") else ""
    return "diverged" if last is None else f"{accuracy_words(summary)} {last:.4f}{chance}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for the execution and the output files of a run.

    Only device and threads may change the last bits of a result.

    Attributes:
        device: "cpu", "cuda" or "cuda:N".
        executor: A name that `executor_for` knows.
        threads: Threads of torch during this run. More than one thread is far slower on shared cores.
        saving: Path and frequency of checkpoints. `fn.run` with the same arguments resumes from the checkpoint.
        room: Bytes of client state that may stay in memory. The rest goes to a file.
        out: Folder for the result files.
        spec: Content of spec.json, in place of the settings.
        label: Name of the run in messages.
        console: Stream for one line per round.
        progress: File for one JSON line per round.
        on_round: Function that is called with the metrics of each round as a dict: `round`, `of`, `phase`, `work`,
            `bytes_up`, `bytes_down` and the method's own metrics. After an evaluation the dict also has `accuracy`,
            `loss` and `accuracy_class_<k>` of the headline view, and `views` with the metrics of every view.
        made: The method as an instance, if its class has no registered name.

    Raises:
        SpecError: A value is wrong.
        TypeError: A field has another type.
    """

    device: str | torch.device = "cpu"
    executor: str = "sequential"
    threads: int = 1
    saving: Saving | None = None
    room: int = ROOM
    out: str | os.PathLike[str] | None = None
    spec: Mapping[str, Any] | None = None
    label: str = ""
    console: TextIO | None = None
    progress: str | os.PathLike[str] | None = None
    on_round: Callable[[dict[str, Any]], object] | None = None
    made: FedAvg | None = None

    def __post_init__(self) -> None:
        check_device(self.device)
        check_int(self.threads, "threads", 1)
        for name, (kind, cure) in OPTIONS.items():
            expect_type(getattr(self, name), kind, name, cure)
        if self.out is not None and (not os.fspath(self.out) or Path(self.out).is_file()):
            raise SpecError(f"out: expected the path of a folder, got {os.fspath(self.out)!r}")
        if self.spec is not None:
            check_value(dict[str, JsonValue], self.spec, "spec")
            if "spec" not in self.spec:
                raise SpecError("spec: the key 'spec' is missing")


def run_federation(
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
    """Train one federation and evaluate it. `fn.run` describes the arguments.

    Args:
        arrays: The data set.
        labels: Labels of this data set.
        partition: Partition of this data set.
        method: A name, or `{"name": …, fields…}`.
        train: A Train or its fields.
        seed: Whole number from 0.
        donor: Data set whose images replace some training images, for labels with open-set noise.
        **options: Fields of `Options`.

    Returns:
        The finished run. Its files are written if `out` is given.

    Raises:
        NotSaved: The files could not be written to `out`. The error has the finished run.
        SpecError: A setting is wrong, or the data do not belong together. Training has not begun.
        TypeError: An argument has another type. Training has not begun.
        Stopped: `saving` asked to stop.
        Diverged: No update of a round is finite (a SpecError).
    """
    began = time.monotonic(), time.process_time()
    run_options = Options(**options)
    check_data(arrays, labels, partition, donor)
    method, settings, seed = resolve_settings(method, train, seed)
    warn_of_slow_bf16(settings, run_options.device)
    chosen = run_options.made or make_method(method, settings)
    arrays = apply_openset_images(arrays, labels, donor)
    cohorts = functools.partial(continue_cohorts, labels.generator) if settings.sampling == "continued" else None
    with torch_switches(run_options.threads):
        world = World(arrays, labels.noisy, partition, settings, seed, run_options.device, cohorts, chosen.pooled)
        check_pools(method["name"], chosen, settings, world)
        check_writable(run_options.out)
        index = [i.cpu().numpy() for i in world.index]
        truth = Truth(labels.clean, labels.noisy, index, world.classes, labels.replaced)
        outcome, executor = _train_and_evaluate(
            world, chosen, truth, arrays, run_options, run_options.label or method["name"]
        )
    facts = {
        "run": {"method": method["name"], "seed": seed},
        "clean_known": labels.clean is not None,
        "test_known": arrays.test_known,
        **({"left_out": len(arrays.left_out)} if arrays.left_out else {}),
    }
    record = dict(run_options.spec or {"spec": {"method": method, "train": dict(vars(settings)), "seed": seed}})
    cost = record_cost(outcome, world, executor, began)
    summary = output.make_summary(outcome, {**facts, "spec_digest": json_digest(record["spec"])})
    _print_end(run_options, run_options.label or method["name"], summary)
    made = FinishedRun(summary, cost, outcome, world, record, arrays, labels, partition)
    if run_options.out is not None:
        made.save(run_options.out)
    return made


def _print_end(options: Options, label: str, summary: Mapping[str, Any]) -> None:
    if options.console is not None and (summary.get("diverged") or summary.get("at_chance")):
        print(f"{label}  ended: {describe_end(summary)}", file=options.console)


def _train_and_evaluate(
    world: World, method: FedAvg, truth: Truth, arrays: Arrays, options: Options, label: str
) -> tuple[Outcome, str]:
    """Run the rounds. Returns the outcome and the name of the executor."""
    test = Pool(arrays.x_test, arrays.mean, arrays.std, world.device)
    test_y = torch.from_numpy(np.asarray(arrays.y_test, dtype=np.int64)).to(world.device)
    executor = executor_for(world, options.executor)
    if options.console is not None:
        cohort = f"{world.cohort} of {world.n} clients a round"  # printed because the default is only a tenth
        print(
            f"{label}  {executor.name} x {executor.count}, {device_name(world.device)}, {cohort}", file=options.console
        )
        if not arrays.test_known:
            print(f"{label}  no trusted test set: numbers are agreement with given labels", file=options.console)
    with contextlib.closing(executor):
        outcome = run_loop(
            world,
            executor,
            method,
            truth,
            test,
            test_y,
            saving=options.saving,
            room=options.room,
            label=label,
            console=options.console,
            progress=None if options.progress is None else Path(options.progress),
            on_round=options.on_round,
        )
    return outcome, executor.name

"""A method under test: functions that find it, run it on the small world, and inject faults."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fednoise_core.api import simulate
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine import loop
from fednoise_core.engine.client_store import ROOM
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.fit import FitResult
from fednoise_core.engine.state import save_checkpoint
from fednoise_core.methods import make_method, method_class
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.noise.labels import Labels
from fednoise_core.ops.weights import Weights, all_finite, tree_map
from fednoise_core.settings.declare import build_settings, settings_of
from fednoise_core.settings.train import Train
from fednoise_core.testing import world
from fednoise_core.testing.crossing import Crossed, watch_crossing


@dataclass(frozen=True)
class Subject:
    """A method under test, with settings under which a few short rounds run all of its code.

    Attributes:
        method: {"name": …, settings…}.
        train: Training settings.
    """

    method: Mapping[str, Any]
    train: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name under which the method is registered."""
        return self.method["name"]

    @property
    def cls(self) -> type[FedAvg]:
        """The method's class."""
        return method_class(self.name)

    def play(
        self,
        *,
        method: Mapping[str, Any] | None = None,
        seed: int = 0,
        out: Path | None = None,
        saving: loop.Saving | None = None,
        executor: str = "sequential",
        split: Partition | None = None,
        labels: Labels | None = None,
        data: Arrays | None = None,
        room: int = ROOM,
        **train: Any,
    ) -> simulate.FinishedRun:
        """Run the method on the small world.

        Args:
            method: Settings of the method that differ from the subject's.
            seed: The run's seed.
            out: Folder for the files of the run.
            saving: How to write checkpoints.
            executor: Name of the executor.
            split: Another partition.
            labels: Other labels.
            data: Other images.
            room: Bytes of client states that stay in memory.
            **train: Training settings that differ from the subject's.
        """
        return simulate.run_federation(
            data or world.arrays(),
            labels or world.toy_labels(),
            split or world.toy_partition(),
            {**self.method, **(method or {})},
            {**self.train, **train},
            seed,
            out=out,
            saving=saving,
            room=room,
            executor=executor,
        )

    def play_with_checkpoints(self, folder: Path) -> Played:
        """Run the method on the small world and record what clients and server exchange.

        Args:
            folder: Folder for the files of the run, and for the checkpoint after each round.
        """

        def keep_all(path: Path, key: str, state: Any, log: Any) -> None:
            save_checkpoint(path, key, state, log)
            shutil.copy(path, path.with_name(f"{state.round}.pt"))

        with patch.object(loop, "save_checkpoint", keep_all), watch_crossing() as crossed:
            run = self.play(out=folder / "out", saving=loop.Saving(folder / "checkpoint.pt", "key", rounds=1))
        return Played(run, folder / "out", {int(p.stem): p for p in folder.glob("[0-9]*.pt")}, crossed)


@dataclass
class Played:
    """A whole run, its files, the checkpoint after each round except the last, and the recorded exchange."""

    run: simulate.FinishedRun
    out: Path
    checkpoints: dict[int, Path]
    crossed: Crossed


def find_subject(
    where: str, fields: Mapping[str, Any] | None = None, train: Mapping[str, Any] | None = None
) -> Subject:
    """Find the subject of "package.module:Class", or of a registered name.

    Args:
        where: "package.module:Class" or a name.
        fields: Settings of the method. Required ones that are missing come from the class's `example`.
        train: Training settings that differ from the small world's.

    Raises:
        SpecError: There is no such method, or its settings do not fit.
    """
    cls = method_class(where)
    needed = [name for name, declared in settings_of(cls).items() if declared.is_required() and name in cls.example]
    method = {"name": where, **{name: cls.example[name] for name in needed}, **(fields or {})}
    several = {"net": world.PAIR} if cls.several_nets else {}
    subject = Subject(method, {**world.TRAIN, **several, **(train or {})})
    make_method(dict(subject.method), build_settings(Train, subject.train, "train"))
    return subject


@contextlib.contextmanager
def poison_updates(clients: Collection[int]) -> Iterator[list[int]]:
    """Put a NaN into every update of these clients.

    Yields:
        A list to which the client of each changed update is added.
    """
    collect, hit = Federation._collect_results, []

    def spoilt(self: Federation, state: Any, requests: Any, sent: Any, results: Any) -> Any:
        def one(request: Any, result: FitResult) -> FitResult:
            if request.client not in clients:
                return result
            bad = _with_nan(result)
            if bad is not result:
                hit.append(request.client)
            return bad

        return collect(self, state, requests, sent, (one(*pair) for pair in zip(requests, results, strict=True)))

    with patch.object(Federation, "_collect_results", spoilt):
        yield hit


def _with_nan(result: FitResult) -> FitResult:
    """Put NaN into the floats that a result sends, or, if it sends none, into the models of its client state."""
    for name in ("update", "relay", "client_state"):
        tree = getattr(result, name) or {}
        models = {key: value for key, value in tree.items() if isinstance(value, Weights)}
        filled = _fill_nan(models if name == "client_state" else tree)
        if not all_finite(filled):
            changed: dict[str, Any] = {name: {**tree, **filled}}
            return dataclasses.replace(result, **changed)
    return result


def _fill_nan(tree: Any) -> Any:
    """Copy a tree with all floats replaced by NaN."""
    if isinstance(tree, float):
        return math.nan
    if isinstance(tree, dict):
        return {key: _fill_nan(value) for key, value in tree.items()}
    return tree_map(lambda t: t * math.nan if isinstance(t, Weights) or t.is_floating_point() else t, tree)

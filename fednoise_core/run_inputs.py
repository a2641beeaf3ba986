"""What `simulate.run` is given, checked before any work: a wrong argument is one error that names it and the cure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from pydantic import JsonValue

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.labelled import labels_digest
from fednoise_core.engine.client_store import ROOM
from fednoise_core.engine.executors.lanes import LanePool
from fednoise_core.engine.loop import Saving
from fednoise_core.engine.pool import augmentation
from fednoise_core.io import SpecError
from fednoise_core.noise.labels import Labels
from fednoise_core.params import expect, integer, nearest, seed_of, spec_of
from fednoise_core.partition.artifact import Partition
from fednoise_core.settings import check
from fednoise_core.spec import Train, parse

if TYPE_CHECKING:
    from fednoise_core.methods.fedavg import FedAvg

__all__ = ["Options", "check_augmentation", "check_data", "checked_settings", "options_of", "with_foreign"]

LARGEST_BATCH = 1 << 31
MOST_THREADS = 4096


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is carried out and what it writes; `simulate.run` says what each is."""

    device: str | torch.device = "cpu"
    executor: str = "auto"
    pool: LanePool | None = None
    threads: int = 1
    saving: Saving | None = None
    room: int = ROOM
    out: str | os.PathLike[str] | None = None
    spec: Mapping[str, Any] | None = None
    label: str = ""
    console: TextIO | None = None
    progress: Path | None = None
    on_round: Callable[[dict[str, Any]], object] | None = None
    made: FedAvg | None = None

    def __post_init__(self) -> None:
        check_device(self.device)
        integer(self.threads, "threads", 1, MOST_THREADS)
        integer(self.room, "room", 0)
        expect(self.executor, str, "executor", 'pass a name such as "auto" or "workers:4"')
        expect(self.label, str, "label", "pass a text")
        if not self.label.isprintable():
            raise SpecError(f"label: {self.label!r}: a text of one line is needed")
        expect(self.pool, (LanePool, type(None)), "pool", "pass a LanePool, or None")
        expect(self.saving, (Saving, type(None)), "saving", "pass a loop.Saving, or None")
        for name in ("out", "progress"):
            expect(getattr(self, name), (str, os.PathLike, type(None)), name, "pass a path, or None")
        if self.out is not None and (not os.fspath(self.out) or Path(self.out).is_file()):
            raise SpecError(f"out: {os.fspath(self.out)!r} is no folder")
        if self.progress is not None and self.progress.is_dir():
            raise SpecError(f"progress: {self.progress} is a folder; name a file")
        if self.console is not None and not hasattr(self.console, "write"):
            raise TypeError(f"console: got {type(self.console).__name__}; pass a stream such as sys.stdout, or None")
        if self.on_round is not None and not callable(self.on_round):
            raise TypeError(f"on_round: got {type(self.on_round).__name__}; pass a function of one dict, or None")
        if self.spec is not None:
            expect(self.spec, Mapping, "spec", "pass a mapping with the key 'spec', or None")
            check(dict[str, JsonValue], self.spec, "spec")
            if "spec" not in self.spec:
                raise SpecError("spec: the key 'spec' is missing")


def options_of(options: Mapping[str, Any]) -> Options:
    """The Options of keyword arguments. Raises TypeError naming an unknown one and the nearest that there is."""
    known = [field.name for field in dataclasses.fields(Options)]
    for name in options:
        if name not in known:
            raise TypeError(f"run: {name}: no such argument{nearest(name, known)}")
    progress = options.get("progress")
    return Options(**{**options, "progress": Path(progress) if isinstance(progress, str) else progress})


def check_device(device: Any) -> None:
    """Raise SpecError unless torch can compute on `device`: "cpu", "cuda" or "cuda:N"."""
    expect(device, (str, torch.device), "device", 'pass "cpu", "cuda" or "cuda:N"')
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise SpecError(f"device: {str(device)!r} is none of cpu, cuda, cuda:N")
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (found.index or 0) >= count:
            raise SpecError(f"device: {str(device)!r}, but torch finds {count} GPUs; use device='cpu'")


def check_data(arrays: Any, labels: Any, partition: Any, donor: Any) -> None:
    """Raise TypeError or SpecError unless labels and partition were made for these arrays."""
    expect(arrays, Arrays, "arrays", "pass what fn.dataset(…) gives, or fn.Arrays(…)")
    expect(labels, Labels, "labels", "pass what fn.inject(…) gives, or an array int [n] of your own labels")
    expect(partition, Partition, "partition", "pass what fn.partition_of(…) gives")
    expect(donor, (Arrays, type(None)), "donor", "pass the Arrays of another data set, or None")
    try:
        labels.belongs(arrays.y_train, arrays.classes, arrays.clean_known)
        labels.check()
    except SpecError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise SpecError(f"labels: {error}; make them with fn.inject") from error
    partition.belongs(arrays.n, labels_digest(arrays.y_train, arrays.classes))


def checked_settings(method: Any, train: Any, seed: Any) -> tuple[dict[str, Any], Train, int]:
    """(method's name and fields, training settings, seed). Raises SpecError naming the key that is wrong."""
    fields = spec_of(method, "name", "method")
    expect(train, (Mapping, Train, type(None)), "train", "pass a mapping like {'rounds': 10}, or a Train")
    settings = train if isinstance(train, Train) else parse(Train, train or {}, "train")
    for name in ("batch", "eval_batch"):
        integer(getattr(settings, name), f"train.{name}", 1, LARGEST_BATCH)
    return fields, settings, seed_of(seed)


def check_augmentation(settings: Train, views: Iterable[Any], shape: tuple[int, int, int]) -> None:
    """Raise SpecError if the augmentation cannot be, or not of images (C, H, W) of this `shape`; the same for the
    views of a method.
    """
    how = augmentation(settings.augment)
    if how is not None:
        how.check_shape(shape)
    for spec in views:
        try:
            if (how := augmentation(spec)) is not None:
                how.check_shape(shape)
        except SpecError as error:
            told = str(error).removeprefix("train.augment").lstrip(".: ")
            raise SpecError(f"method: a view of its own: {told}") from error


def with_foreign(arrays: Arrays, labels: Labels, donor: Arrays | None) -> Arrays:
    """The arrays with open-set noise applied: some training images show something foreign, their labels stay."""
    if labels.replaced is None:
        return arrays
    own = labels.spec["noise"].get("donor", "public") == "public"
    images = arrays.x_public if own else None if donor is None else donor.x_train
    if images is None:
        what = "public images" if own else "the donor data set's arrays"
        raise SpecError(f"these labels come with open-set noise: the run needs {what}")
    return dataclasses.replace(arrays, x_train=labels.replace_images(arrays.x_train, images))

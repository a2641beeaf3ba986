"""A planned training run: what decides its numbers, how it is shown, and where its files are."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fednoise_core.io import SpecError, digest
from fednoise_core.nets.weights import weight_files
from fednoise_core.spec import Train
from workflow_scripts import paths

if TYPE_CHECKING:
    from workflow_scripts.store import Plan, Store

SPEC_KEYS = ("dataset", "noise", "partition", "method", "train", "seed")  # all that a run's spec may say
NEEDED = ("method", "train", "seed")


@dataclass(frozen=True)
class RunFiles:
    """Where a run's files lie, and those of its setting."""

    run: Plan
    arrays: Plan
    labels: Plan
    partition: Plan
    donor: Plan | None = None


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a study, by its ids.

    root: the study's results folder. spec: what decides the run's numbers, see SPEC_KEYS; ids, labels and the study's
    name are no part of it. label: the method's name as shown. oracle_rate: whether a field of the method was told the
    noise's nominal rate. pooled: whether the method trains on all samples in one place. store: where its files lie.
    """

    root: str
    dataset: str
    noise: str
    partition: str
    method: str
    seed: int
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)
    label: str = ""
    oracle_rate: bool = False
    pooled: bool = False
    store: Store | None = field(default=None, compare=False, repr=False)

    @functools.cached_property
    def files(self) -> RunFiles:
        """The run's files; those of a finished run, if versions or a device are accepted besides the present ones."""
        assert self.store is not None
        return self.store.run(self)

    @property
    def folder(self) -> str:
        """The folder of the run's results."""
        return self.files.run.folder

    @property
    def labels_page(self) -> str:
        """The page of the run's suspect labels, made where it is asked for."""
        return paths.LABELS_PAGE.format(**{**vars(self), "root": self.root.removeprefix("results/")})

    @functools.cached_property
    def row(self) -> dict[str, Any]:
        """The run's line in the list that tables and figures are given."""
        shown = ("dataset", "noise", "partition", "method", "seed", "label", "oracle_rate", "pooled")
        here = self.files
        row = {"dir": self.folder, **{name: getattr(self, name) for name in shown}}
        row |= {"labels": f"{here.labels.folder}/{paths.LABELS}", "arrays": f"{here.arrays.folder}/{paths.ARRAYS}"}
        row["partition_file"] = f"{here.partition.folder}/{paths.PARTITION}"
        return row | ({"donor": f"{here.donor.folder}/{paths.ARRAYS}"} if here.donor else {})

    @functools.cached_property
    def row_digest(self) -> str:
        """Digest of the line."""
        return digest(self.row)


def check_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """A run's spec as a command line was given it. Raises SpecError for a missing key, and for one that decides no
    number: it would make equal runs differ.
    """
    missing, unknown = [key for key in NEEDED if key not in spec], [key for key in spec if key not in SPEC_KEYS]
    if missing:
        raise SpecError(f"--spec: the key {missing[0]!r} is missing")
    if unknown:
        raise SpecError(f"--spec: {unknown[0]}: unknown key; known: {', '.join(SPEC_KEYS)}")
    return spec


def nets_of(train: Mapping[str, Any]) -> list[str]:
    """Names of the nets that training settings name, the default's where they name none."""
    found = train.get("net", Train.net)
    nets = found if isinstance(found, list | tuple) else [found]
    return [str(net.get("name") if isinstance(net, Mapping) else net) for net in nets]


def net_code(train: Mapping[str, Any]) -> list[str]:
    """What the code of the nets starts from: their names, and the factories "module:function" of the user's own."""
    found = train.get("net", Train.net)
    nets = found if isinstance(found, list | tuple) else [found]
    own = [str(net["factory"]) for net in nets if isinstance(net, Mapping) and "factory" in net]
    return list(dict.fromkeys([*nets_of(train), *own]))


def weights_of(train: Mapping[str, Any]) -> list[str]:
    """Files of weights that the nets of training settings start from."""
    return weight_files(train.get("net"))

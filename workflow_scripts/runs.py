"""A planned training run: what decides its numbers, how it is shown, and where its files are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.nets.weights import paths as weight_files
from fednoise_core.spec import Train
from workflow_scripts import paths

__all__ = ["SPEC_KEYS", "PlannedRun", "check_spec", "net_code", "nets_of", "weights_of"]

SPEC_KEYS = ("dataset", "noise", "partition", "method", "train", "seed")  # all that a run's spec may say
NEEDED = ("method", "train", "seed")


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a study, by its ids.

    root: the study's results folder. donor: the arrays that open-set noise takes images from, if another data set's.
    spec: what decides the run's numbers, see SPEC_KEYS; ids, labels and the study's name are no part of it. label: the
    method's name as shown. oracle_rate: whether a field of the method was told the noise's nominal rate.
    pooled: whether the method trains on all samples in one place.
    """

    root: str
    dataset: str
    noise: str
    partition: str
    method: str
    seed: int
    arrays: str
    labels: str
    partition_file: str
    donor: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)
    label: str = ""
    oracle_rate: bool = False
    pooled: bool = False

    @property
    def folder(self) -> str:
        """The folder of the run's results."""
        root = self.root.removeprefix("results/")
        return paths.RUN.format(**{**vars(self), "root": root})

    @property
    def outputs(self) -> list[str]:
        """The run's result files."""
        return [f"{self.folder}/{name}" for name in paths.RUN_OUTPUTS]

    @property
    def labels_page(self) -> str:
        """The page of the run's suspect labels, made where it is asked for."""
        root = self.root.removeprefix("results/")
        return paths.LABELS_PAGE.format(**{**vars(self), "root": root})

    @property
    def work(self) -> str:
        """The folder of the run's checkpoint."""
        return paths.WORK.format(run=self.folder)

    def row(self) -> dict[str, Any]:
        """The run's line in the list that tables and figures are given."""
        return {
            "dataset": self.dataset,
            "noise": self.noise,
            "partition": self.partition,
            "method": self.method,
            "seed": self.seed,
            "label": self.label,
            "oracle_rate": self.oracle_rate,
            "pooled": self.pooled,
            "dir": self.folder,
            "labels": self.labels,
            "partition_file": self.partition_file,
            "arrays": self.arrays,
            **({"donor": self.donor} if self.donor else {}),
        }


def check_spec(spec: Any, where: str) -> dict[str, Any]:
    """A run's spec as a command line was given it. Raises SpecError for a missing key, and for one that decides no
    number: it would make equal runs differ.
    """
    if not isinstance(spec, dict):
        raise SpecError(f"{where}: not a JSON object")
    missing = [key for key in NEEDED if key not in spec]
    if missing:
        raise SpecError(f"{where}: the key {missing[0]!r} is missing")
    unknown = [key for key in spec if key not in SPEC_KEYS]
    if unknown:
        raise SpecError(f"{where}: {unknown[0]}: unknown key; known: {', '.join(SPEC_KEYS)}")
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

"""A planned training run: what decides its numbers, how it is shown, and where its files are."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fednoise_core.index import SHOWN
from fednoise_core.io import json_digest
from workflow_scripts import paths
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.store import Store


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a study, by its ids.

    Attributes:
        root: The study's results folder.
        spec: What decides the run's numbers, its settings. Ids, labels and the study's name are not in it.
        label: The method's name as shown.
        family: What the method does about noise.
        oracle_rate: Whether a field of the method was given the noise's nominal rate.
        as_told: Whether the method's own noise rate happens to be that of the noise, which nobody told it.
        pooled: Whether the method trains on all samples in one place.
        own: Whether it is the study's own method: the one it is named after, a class of the user's, or an
            entry of a leaderboard.
        store: Where its files lie.
    """

    root: str
    dataset: str
    noise: str
    partition: str
    method: str
    seed: int
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)
    label: str = ""
    family: str = ""
    oracle_rate: bool = False
    as_told: bool = False
    pooled: bool = False
    own: bool = False
    store: Store | None = field(default=None, compare=False, repr=False)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan of the run; that of a finished one, if versions are accepted besides the present ones."""
        assert self.store is not None
        return self.store.plan_run(self.dataset, self.spec, self.seed)

    @property
    def name(self) -> str:
        """The registered name of the method, or "module:Class"."""
        return str(self.spec["method"]["name"])

    @property
    def folder(self) -> str:
        """The folder of the run's results."""
        return self.plan.folder

    @property
    def labels_page(self) -> str:
        """The page of the run's suspect labels, made where it is asked for."""
        return paths.LABELS_PAGE.format(**{**vars(self), "root": self.root.removeprefix("results/")})

    @property
    def labels_title(self) -> str:
        """The title of that page: the data's name, what was made of it, and the method."""
        noise = [] if self.spec["noise"] == {"kind": "given"} else [self.noise]
        partition = [] if self.spec["partition"] == {"kind": "natural"} else [self.partition]
        return " · ".join([self.dataset, *noise, *partition, f"{self.label}, seed {self.seed}"])

    @functools.cached_property
    def row(self) -> dict[str, Any]:
        """The run's line in the list that tables and figures are given."""
        fields = ("dataset", "noise", "partition", "method", "seed", *SHOWN)
        row = {"dir": self.folder, **{name: getattr(self, name) for name in fields}}
        names = {"labels": "labels", "arrays": "arrays", "partition_file": "partition", "donor": "donor"}
        return row | {key: file for key, name in names.items() for file in self.plan.input_files(name)}

    @property
    def display_names(self) -> list[str | None]:
        """The names that tables and figures show for the kinds of its data set, noise and partition."""
        assert self.store is not None
        kinds = (("dataset", "source"), ("noise", "kind"), ("partition", "kind"))
        described = [self.store.project.schemas.load_kind(family, self.spec[family][key]) for family, key in kinds]
        return [kind.get("display_name") for kind in described]

    @functools.cached_property
    def row_digest(self) -> str:
        """Digest of the line and of what else is shown of the run."""
        return json_digest(self.row, self.display_names)

"""A planned training run: the settings that decide its numbers, its display names, and the paths of its files."""

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
        spec: The settings that decide the run's numbers. Ids, labels and the study's name are not in it.
        label: The method's name as shown.
        family: How the method handles noise.
        oracle_rate: Whether a setting of the method is the noise's nominal rate (`oracle_nominal`).
        as_told: Whether the method's own noise rate happens to equal that of the noise.
        pooled: Whether the method trains on all samples in one place.
        own: Whether the method is the study's own: the study has its name, it is a class of the user's, or it
            is entered in a leaderboard.
        store: The store, which plans the run's files.
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
        """The plan of the run. If other versions are accepted, it may be that of a run which they have finished."""
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
        """The path of the page of the run's suspect labels, which is made on request."""
        return paths.LABELS_PAGE.format(**{**vars(self), "root": self.root.removeprefix("results/")})

    @property
    def labels_title(self) -> str:
        """The title of the labels page: data set, noise and partition (unless as given), method and seed."""
        noise = [] if self.spec["noise"] == {"kind": "given"} else [self.noise]
        partition = [] if self.spec["partition"] == {"kind": "natural"} else [self.partition]
        return " · ".join([self.dataset, *noise, *partition, f"{self.label}, seed {self.seed}"])

    @functools.cached_property
    def row(self) -> dict[str, Any]:
        """The run's row in the list of runs for tables and figures."""
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
        """The digest of the row and of the run's display names."""
        return json_digest(self.row, self.display_names)

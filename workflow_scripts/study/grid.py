"""The checked file of a study at a scale, and the planned runs of its grid."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from fednoise_core.io import Problems, SpecError
from fednoise_core.settings.declare import did_you_mean
from fednoise_core.settings.variants import base_method, index_of
from workflow_scripts.config import definitions
from workflow_scripts.config.definitions import FAMILY_OF_KEY, MethodDefinition
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import ConfigPath, read_yaml
from workflow_scripts.paths import OWN
from workflow_scripts.study import compatibility
from workflow_scripts.study.compatibility import ORACLE
from workflow_scripts.study.file_at_scale import FileAtScale, read_file
from workflow_scripts.study.layers import Layer, resolve_layers
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.store import store_of

SELECTORS = ("dataset", "noise", "partition", "method", "seed")  # fields by which a table or figure may select runs
Ids = tuple[str, str, str, str, int]  # data set, noise, partition, method, seed
Runs = dict[Ids, PlannedRun]


class AllAbsent(SpecError):
    """A study has no run, because the user has supplied none of its data sets."""


class StudyGrid(FileAtScale):
    """The runs of one study at the project's scale."""

    def __init__(self, project: Project, name: str) -> None:
        self.name, self.root = name, project.results_folder(name)
        self.files = read_file(project, name)
        file = self.files[project.scale].with_overrides()
        super().__init__(project, file.place, file.data)
        self.full = self.files["paper"].data  # without the changes of the scale
        self._scaled = project.overlay, self.full.get("scales", {}).get(project.scale, {}), project.overrides
        self.dataset_substitutes: dict[str, str] = dict(self.data.get("dataset_substitutes", {}))
        self.absent: list[str] = []  # data sets of a paper that the user must supply and has not
        self._settings: set[tuple[str, str, str]] = set()  # of the grid, checked
        self._runs = _select_subset(self, self._expand_grid())

    @property
    def runs(self) -> list[PlannedRun]:
        """Every run once, in the order of the grid's blocks."""
        return list(self._runs.values())

    @functools.cache  # noqa: B019 - a study lives as long as the process
    def normalize_definition(self, key: str, name: str) -> dict[str, Any]:
        """The settings of a noise or partition in normal form (`Schemas.normalize_kind`)."""
        return self.project.schemas.normalize_kind(FAMILY_OF_KEY[key], self.find_definition(key, name)[1])

    def find_run(self, dataset: str, noise: str, partition: str, method: str, seed: int) -> PlannedRun:
        """Find a run of the study by its ids.

        Raises:
            SpecError: No block of the grid contains it.
        """
        ids = (dataset, noise, partition, method, seed)
        if ids not in self._runs:
            raise self.place.error(f"no run {'/'.join(map(str, ids))} in the grid")
        return self._runs[ids]

    def plan_setting(self, dataset: str, noise: str, partition: str, seed: int) -> tuple[Plan, Plan, Plan]:
        """Plan the artifacts of a setting, in the grid or not.

        Returns:
            The plans of its arrays, labels and partition: those of the first accepted versions for which they are
            finished, else those of the installed versions.

        Raises:
            SpecError: Data set, noise and partition are not compatible.
        """
        if (dataset, noise, partition) not in self._settings:
            self.project.find_dataset(dataset, self.place)
            self._check_setting(dataset, noise, partition, self.place)
        store, labels = store_of(self.project), self.normalize_definition("noises", noise)
        split = self.normalize_definition("partitions", partition)
        settings = [store.plan_setting(dataset, labels, split, seed, versions) for versions in store.versions]
        return next((plans for plans in settings if all(plan.is_finished for plan in plans)), settings[0])

    def select_runs(self, spec: Mapping[str, Any]) -> list[PlannedRun]:
        """Select the runs that a table or figure shows.

        Args:
            spec: Its settings. Each of the lists `datasets`, …, `seeds` restricts the runs.
        """
        if self.project.schemas.kind_flags(spec).get("without_runs"):
            return []
        allowed = {field: spec[f"{field}s"] for field in SELECTORS if spec.get(f"{field}s") is not None}
        return [run for run in self.runs if _lies_in(run, allowed)]

    def missing_data_message(self) -> str:
        """Describe the consequences of the missing data sets."""
        return (
            f'missing data sets: {", ".join(self.absent)}. Their cells read "not run (data absent)". Put them into the '
            "working folder, or below the folder that data_root in config/config.yaml or the environment variable "
            "FEDNOISE_DATA names"
        )

    @functools.cache  # noqa: B019 - a study lives as long as the process
    def _resolve_method(self, name: str, block: int) -> tuple[MethodDefinition, dict[str, ConfigPath]]:
        """Return a method with all training settings of its runs in a block, and the origin of each setting."""
        place = self.place / "grid" / block
        name, spec, where = self.find_definition("methods", name, place)
        over = (place, self.data["grid"][block]), (self.place, self.data)
        layers = [Layer(origin, data.get("settings", {}).get(base_method(name), {})) for origin, data in over]
        spec, _ = resolve_layers([Layer(where, spec), *layers])
        definition = definitions.parse_method(self.project.schemas, name, spec, where)
        train, origins = resolve_layers([*self._train_layers(block), Layer(definition.place, definition.train)])
        return replace(definition, train=train), origins

    def _train_layers(self, block: int) -> list[Layer]:
        return [
            Layer(self.place, self.full["train"]),
            Layer(self.place / "grid" / block, self.data["grid"][block].get("train", {})),
            *(Layer(self.place, data.get("train", {}), deep=True) for data in self._scaled),
        ]

    def train_settings(self, block: int) -> dict[str, Any]:
        """Resolve the training settings of a block of the grid, without those of a method.

        Args:
            block: The block's number.
        """
        return resolve_layers(self._train_layers(block))[0]

    def _expand_grid(self) -> dict[Ids, PlannedRun]:
        """Every run of the grid's blocks, once."""
        runs, problems = dict[Ids, PlannedRun](), Problems()
        scaled_seeds = next((data["seeds"] for data in reversed(self._scaled) if data.get("seeds")), None)
        for number, block in enumerate(self.data["grid"]):
            place, train = self.place / "grid" / number, block.get("train", {})
            if train:
                definitions.check_train(self.project.schemas, self.train_settings(number), place / "train")
            methods = [variant for name in block["methods"] for variant in self.expand_method(name, place)]
            named = map(self._available_dataset, block["datasets"])
            datasets = [name for name in named if name is not None]
            seeds = scaled_seeds or block.get("seeds", self.data["seeds"])
            for setting in product(datasets, block["noises"], block["partitions"]):
                with problems.catch():
                    self._check_setting(*setting, place)
                    self._settings.add(setting)
                    for method in methods:
                        with problems.catch():
                            cell = self._resolve_cell(*setting, method, number)
                            for seed in seeds:
                                self._add_run(runs, (*setting, method, seed), cell, place)
        problems.raise_all()
        if not runs:
            raise AllAbsent(str((self.place / "grid").error(f"no run is left. {self.missing_data_message()}")))
        self._check_labels(runs)
        return runs

    def _check_labels(self, runs: Runs) -> None:
        """Check that tables can tell the methods of a setting apart by their labels."""
        ids: dict[tuple[str, ...], str] = {}
        for run in runs.values():
            first = ids.setdefault((run.dataset, run.noise, run.partition, run.label), run.method)
            if first != run.method:
                raise (self.place / "methods").error(
                    f"{first} and {run.method} are both called {run.label!r}. Give one of them another label"
                )

    def _available_dataset(self, named: str) -> str | None:
        """Return the data set that replaces a grid's id at this scale.

        None if the study is a paper and the user must supply the data set but has not. The other cells of the paper can
        still be made. In other studies a missing data set is an error.
        """
        dataset = self.dataset_substitutes.get(named, named)
        if self.name not in self.project.paper_names or not self.project.is_absent(dataset):
            return dataset
        self.absent += [named] if named not in self.absent else []
        return None

    @functools.cache  # noqa: B019 - a study lives as long as the process
    def _check_setting(self, dataset: str, noise: str, partition: str, place: ConfigPath) -> None:
        """Check that a data set, a noise and a partition fit together. The message names the block of the grid."""
        defined = self.find_definition("noises", noise, place), self.find_definition("partitions", partition, place)
        compatibility.check_setting(self.project, dataset, *defined, place)

    def _resolve_cell(
        self, dataset: str, noise: str, partition: str, name: str, block: int
    ) -> tuple[dict[str, Any], str, bool, bool]:
        """Spec (without the seed), label, `oracle_rate` and `as_told` (see `PlannedRun`) of a cell of the grid."""
        (definition, origins), project = self._resolve_method(name, block), self.project
        defined, fields = self.find_definition("noises", noise), definition.fields
        oracle_keys = [key for key, value in fields.items() if value == ORACLE]
        if oracle_keys:
            rate = compatibility.oracle_rate(project, dataset, defined, self.place / "grid" / block)
            fields = fields | dict.fromkeys(oracle_keys, rate)
            project.schemas.check_kind("method", fields, definition.place)
        compatibility.check_method(project, fields, definition.train, dataset, definition.place)
        compatibility.check_nets(project, definition.train, dataset, origins.get("net", self.place) / "train" / "net")
        compatibility.check_sampling(definition.train, defined, definition.place / "train")
        spec = {
            "dataset": project.normalize_dataset(dataset),
            "noise": self.normalize_definition("noises", noise),
            "partition": self.normalize_definition("partitions", partition),
            "method": project.schemas.normalize_kind("method", fields),
            "train": project.schemas.normalize_train(definition.train),
        }
        as_told = not oracle_keys and compatibility.assumes_true_rate(project, dataset, defined, fields)
        return spec, definition.label, bool(oracle_keys), as_told

    def _add_run(self, runs: Runs, ids: Ids, cell: tuple[dict[str, Any], str, bool, bool], place: ConfigPath) -> None:
        spec, label, oracle, as_told = cell
        name, full_spec = spec["method"]["name"], {**spec, "seed": ids[-1]}
        kind = self.project.schemas.load_kind("method", name)
        is_own = ":" in name or name == self.name.split("-")[0] or ids[3].startswith(OWN)
        pooled, store = bool(kind.get("pooled")), store_of(self.project)
        run = PlannedRun(self.root, *ids, full_spec, label, kind["family"], oracle, as_told, pooled, is_own, store)
        if runs.setdefault(ids, run).spec != run.spec:
            raise (place / "train").error(
                f"another block has {'/'.join(map(str, ids))} with other training settings. Give the method another id"
            )


def _select_subset(study: StudyGrid, runs: Runs) -> Runs:
    """Select the runs of the configured subset. All runs if there is no subset, or if this study has no subsets.

    Raises SpecError for an unknown subset, for an id that the grid does not have, and if no run is left.
    """
    name, subsets = study.project.subset, study.data.get("subsets", {})
    if name is not None and name not in subsets:
        files = () if subsets else study.project.study_files.values()
        names = [*subsets, *(subset for file in files for subset in read_yaml(file).get("subsets", {}))]
        if name not in names:
            where = study.place.file if subsets else "any study"
            raise SpecError(f"subset: {name!r} is no subset of {where}{did_you_mean(name, names)}")
    if name is None or not subsets:
        return runs
    boxes = [_read_box(study, name, number) for number in range(len(subsets[name]))]
    selected = {ids: run for ids, run in runs.items() if any(_lies_in(run, box) for box in boxes)}
    if not selected:
        raise (study.place / "subsets" / name).error("no run of the grid is in this subset")
    return selected


def _read_box(study: StudyGrid, name: str, number: int) -> dict[str, list[Any]]:
    """Read a box of a subset: field of a run → allowed ids, with the data sets of the scale."""
    study.check_box(name, number)
    box = study.data["subsets"][name][number]
    selected = {key.removesuffix("s"): list(values) for key, values in box.items() if values}
    if "dataset" in selected:
        selected["dataset"] = [study.dataset_substitutes.get(dataset, dataset) for dataset in selected["dataset"]]
    return selected


def _lies_in(run: PlannedRun, box: Mapping[str, list[Any]]) -> bool:
    return all(index_of(allowed, getattr(run, field)) is not None for field, allowed in box.items())

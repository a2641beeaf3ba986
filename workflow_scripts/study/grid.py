"""A study's file with the scale's overlay, checked, and its grid spelled out into planned runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import did_you_mean as hint
from fednoise_core.settings.variants import base_method, index_of, parse_settings
from workflow_scripts.config import definitions
from workflow_scripts.config.definitions import FAMILIES, MethodDefinition
from workflow_scripts.config.project import CATALOGUE, Project
from workflow_scripts.config.yaml_file import Place, deep_merge, read_yaml
from workflow_scripts.study import compatibility
from workflow_scripts.study.compatibility import ORACLE, Defined
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.store import store_of

SELECTORS = ("dataset", "noise", "partition", "method", "seed")  # what a table or figure may choose its runs by
Ids = tuple[str, str, str, str, int]  # data set, noise, partition, method, seed
Runs = dict[Ids, PlannedRun]


class AllAbsent(SpecError):
    """A study has no run, because all its data sets are ones that the user has not supplied."""


class StudyGrid:
    """The runs of one study at the project's scale."""

    def __init__(self, project: Project, name: str) -> None:
        self.project, self.name = project, name
        self.root = project.root(name)
        self.place = Place(project.file(name))
        self.full, self.data = self._read()
        definitions.check_definitions(project.schemas, self.data, self.place)
        definitions.check_train(project.schemas, self.data["train"], self.place / "train")
        self.stand_ins: dict[str, str] = dict(self.data.get("stand_ins", {}))
        self.absent: list[str] = []  # data sets of a paper that only the user can supply, and has not
        self._settings: set[tuple[str, str, str]] = set()  # of the grid, checked
        self._runs = select_part(self, self._expand())

    @property
    def runs(self) -> list[PlannedRun]:
        """Every run once, in the order of the grid's blocks."""
        return list(self._runs.values())

    def define(self, key: str, name: str, place: Place | None = None) -> Defined:
        """Id, settings and place of definition of a noise, partition or method (`key` "noises", …).

        place: what names the id, for the message if it is unknown. A variant of a method has the place of its method.
        """
        if key == "methods" and parse_settings(name):
            found = self._variants(base_method(name), place)
            if name not in found:
                raise ((place or self.place) / key).error(f"unknown variant {name!r}{hint(name, found)}")
            return name, found[name], self.define(key, base_method(name), place)[2]
        own, shared = self.data.get(key, {}), self.project.catalogue.get(key, {})
        if name in own:
            return name, own[name], self.place / key / name
        if name in shared:
            return name, shared[name], Place(CATALOGUE, (key, name))
        raise ((place or self.place) / key).error(f"unknown {FAMILIES[key]} {name!r}{hint(name, [*own, *shared])}")

    def _variants(self, name: str, place: Place | None = None) -> dict[str, Mapping[str, Any]]:
        """Id → definition of what a method's id in a grid stands for: the variants of its `sweep`, or itself."""
        if parse_settings(name):
            return {name: self.define("methods", name, place)[1]}
        return definitions.variants(*self.define("methods", name, place))

    def noise(self, name: str) -> dict[str, Any]:
        """The noise of an id, in normal form (`Schemas.normal`)."""
        return self._normal("noises", name)

    def partition(self, name: str) -> dict[str, Any]:
        """The partition of an id, in normal form."""
        return self._normal("partitions", name)

    @functools.cache  # noqa: B019 - a study lives as long as the process
    def _normal(self, key: str, name: str) -> dict[str, Any]:
        return self.project.schemas.normal(FAMILIES[key], self.define(key, name)[1])

    def run(self, dataset: str, noise: str, partition: str, method: str, seed: int) -> PlannedRun:
        """A run of the study. Raises SpecError if no block of the grid contains it."""
        ids = (dataset, noise, partition, method, seed)
        if ids not in self._runs:
            raise self.place.error(f"no run {'/'.join(map(str, ids))} in the grid")
        return self._runs[ids]

    def setting(self, dataset: str, noise: str, partition: str, seed: int) -> tuple[Plan, Plan, Plan]:
        """Arrays, labels and partition of a setting, in the grid or not. SpecError if it cannot be."""
        if (dataset, noise, partition) not in self._settings:
            self.project.dataset(dataset, self.place)
            self._check_setting(dataset, noise, partition, self.place)
        return store_of(self.project).first_setting(dataset, self.noise(noise), self.partition(partition), seed)

    def select(self, spec: Mapping[str, Any]) -> list[PlannedRun]:
        """The runs that a table or figure shows: those allowed by its lists `datasets`, …, `seeds` (no list: all)."""
        if self.project.schemas.flags(spec).get("without_runs"):
            return []
        allowed = [(field, spec[f"{field}s"]) for field in SELECTORS if spec.get(f"{field}s") is not None]
        named = ((run, [index_of(names, getattr(run, field)) for field, names in allowed]) for run in self.runs)
        return [run for run, places in named if None not in places]

    def words_of_absence(self) -> str:
        """What the data sets that are not here mean, in words."""
        return (
            f'not here: {", ".join(self.absent)}. Cells on it read "not run (data absent)". Put it into the '
            "working folder, or below the folder that data_root in config/config.yaml or the environment variable "
            "FEDNOISE_DATA names"
        )

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The study's file; the same with the scale's overlay and the study's own word on that scale laid over it."""
        check, scale = self.project.schemas.check, self.project.scale
        data = read_yaml(self.project.folder / self.place.file)
        check("study", data, self.place)
        own = data.get("scales", {}).get(scale, {})
        self._scaled = deep_merge(self.project.overlay.get("train", {}), own.get("train", {}))
        self._scaled_seeds = own.get("seeds") or self.project.overlay.get("seeds")
        if not own and not self.project.overlay:
            return data, data
        self.place = Place(f"{self.place.file} at scale {scale}")
        merged = deep_merge(deep_merge(data, self.project.overlay), own)
        check("study", merged, self.place)
        return data, merged

    @functools.cache  # noqa: B019 - a study lives as long as the process
    def _method(self, name: str, block: int) -> MethodDefinition:
        """A method's definition, its training settings laid over those of the scale, of a block of the grid, and of the
        study.
        """
        place = self.place / "grid" / block
        name, spec, where = self.define("methods", name, place)
        for layer in (self.data["grid"][block].get("settings", {}), self.data.get("settings", {})):
            spec = {**spec, **layer.get(base_method(name), {})}
        found = definitions.method(self.project.schemas, name, spec, where)
        train = {**self.train_of(block), **found.train}
        return MethodDefinition(found.fields, found.label, train, found.place)

    def train_of(self, block: int) -> dict[str, Any]:
        """The training settings of a block of the grid, before those of a method."""
        own = self.data["grid"][block].get("train")
        return deep_merge({**self.full["train"], **own}, self._scaled) if own else self.data["train"]

    def _expand(self) -> dict[Ids, PlannedRun]:
        """Every run of the grid's blocks, once."""
        runs: dict[Ids, PlannedRun] = {}
        for number, block in enumerate(self.data["grid"]):
            place = self.place / "grid" / number
            definitions.check_train(self.project.schemas, block.get("train", {}), place / "train")
            if block.get("train"):
                definitions.check_train(self.project.schemas, self.train_of(number), place / "train")
            methods = [one for name in block["methods"] for one in self._variants(name, place)]
            for named in block["datasets"]:
                dataset = self._present(named, place / "datasets")
                if dataset is None:
                    continue
                for noise in block["noises"]:
                    for partition in block["partitions"]:
                        self._check_setting(dataset, noise, partition, place)
                        self._settings.add((dataset, noise, partition))
                        for method in methods:
                            plan = self._plan(dataset, noise, partition, method, number)
                            for seed in self._scaled_seeds or block.get("seeds", self.data["seeds"]):
                                ids = (dataset, noise, partition, method, seed)
                                run = self._run(ids, *plan)
                                if runs.setdefault(ids, run).spec != run.spec:
                                    raise (place / "train").error(
                                        f"another block has {'/'.join(map(str, ids))} with other training settings: "
                                        "give the method another id"
                                    )
        if not runs:
            raise AllAbsent(str((self.place / "grid").error(f"no run is left. {self.words_of_absence()}")))
        return runs

    def _present(self, named: str, place: Place) -> str | None:
        """The data set that a grid's id stands for at this scale; None if it is to come from the user and is not here,
        which a paper's other cells can do without. Of any other study it is an error.
        """
        dataset = self.stand_ins.get(named, named)
        self.project.dataset(named, place)
        self.project.dataset(dataset, self.place / "stand_ins" / named)
        if self.name not in self.project.papers or not self.project.absent(dataset):
            return dataset
        self.absent += [named] if named not in self.absent else []
        return None

    @functools.cache  # noqa: B019 - a study lives as long as the process
    def _check_setting(self, dataset: str, noise: str, partition: str, place: Place) -> None:
        """Whether a data set, a noise and a partition go together; the message names the block of the grid."""
        found = self.define("noises", noise, place), self.define("partitions", partition, place)
        compatibility.check_setting(self.project, dataset, *found, place)

    def _plan(
        self, dataset: str, noise: str, partition: str, name: str, block: int
    ) -> tuple[dict[str, Any], str, bool]:
        """Spec (without the seed), label, and whether a field was told the nominal rate, of a cell of the grid."""
        found, project, defined = self._method(name, block), self.project, self.define("noises", noise)
        fields = found.fields
        told = [key for key, value in fields.items() if value == ORACLE]
        if told:
            rate = compatibility.oracle_rate(project, dataset, defined, self.place / "grid" / block)
            fields = fields | dict.fromkeys(told, rate)
            project.schemas.check_kind("method", fields, found.place)
        compatibility.check_method(project, fields, found.train, dataset, found.place)
        here = self.place / "grid" / block if "net" in self.data["grid"][block].get("train", {}) else self.place
        here = found.place if "net" in self.define("methods", name)[1].get("train", {}) else here
        compatibility.check_nets(project, found.train, dataset, here / "train" / "net")
        compatibility.check_sampling(found.train, defined, found.place / "train")
        spec = {
            "dataset": project.normal_dataset(dataset),
            "noise": self.noise(noise),
            "partition": self.partition(partition),
            "method": project.schemas.normal("method", fields),
            "train": project.schemas.normal_train(found.train),
        }
        return spec, found.label, bool(told)

    def _run(self, ids: Ids, spec: Mapping[str, Any], label: str, oracle: bool) -> PlannedRun:
        pooled = bool(self.project.schemas.load("method")[spec["method"]["name"]].get("pooled"))
        return PlannedRun(self.root, *ids, {**spec, "seed": ids[-1]}, label, oracle, pooled, store_of(self.project))


def select_part(study: StudyGrid, runs: Runs) -> Runs:
    """Those of `runs` that the project's part asks for; all, if it asks for no part, or the study has none.

    Raises SpecError for a part that is none of the study's, for an id that its grid does not have, and if no run is
    left.
    """
    name, known = study.project.part, study.data.get("parts", {})
    if name is None or not known:
        return runs
    if name not in known:
        raise (study.place / "parts").error(f"--config part asks for {name!r}, which is not there{hint(name, known)}")
    boxes = [_check_box(study, name, number, box) for number, box in enumerate(known[name])]
    found = {ids: run for ids, run in runs.items() if any(_lies_in(run, box) for box in boxes)}
    if not found:
        raise (study.place / "parts" / name).error("no run of the grid lies in it")
    return found


def _check_box(study: StudyGrid, name: str, number: int, box: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A box with the data sets of the scale, by the names of a run's fields."""
    place = study.place / "parts" / name / number
    for key, wanted in box.items():
        if key == "seeds":
            continue
        used = dict.fromkeys(one for block in study.data["grid"] for one in block[key])
        for index, one in enumerate(wanted):
            if base_method(str(one)) not in used and one not in used:
                raise (place / key / index).error(f"the grid has no {one!r}{hint(one, used)}")
    datasets = {"datasets": [study.stand_ins.get(one, one) for one in box["datasets"]]} if "datasets" in box else {}
    return {key.removesuffix("s"): list(wanted) for key, wanted in {**box, **datasets}.items()}


def _lies_in(run: PlannedRun, box: Mapping[str, list[Any]]) -> bool:
    return all(index_of(allowed, getattr(run, field)) is not None for field, allowed in box.items())

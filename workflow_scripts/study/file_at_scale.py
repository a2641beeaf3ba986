"""Read and check a study's file, as it is written or with the overlay of a scale."""

from collections.abc import Iterable, Mapping
from typing import Any

from fednoise_core.io import Problems
from fednoise_core.settings.declare import did_you_mean
from fednoise_core.settings.variants import base_method, parse_settings
from workflow_scripts.config import definitions
from workflow_scripts.config.definitions import FAMILY_OF_KEY
from workflow_scripts.config.file_models import StudyFile
from workflow_scripts.config.project import CATALOGUE, SCALES, Project
from workflow_scripts.config.validation import check_model
from workflow_scripts.config.yaml_file import ConfigPath, deep_merge, format_flow, read_yaml
from workflow_scripts.paths import DEFAULT

Defined = tuple[str, Mapping[str, Any], ConfigPath]  # id, settings, where they are defined
TUNED = "config/tuned"
AXES = ("datasets", "noises", "partitions", "methods")  # lists of ids in a block of the grid


class FileAtScale:
    """Contents of a study's file at one scale."""

    def __init__(self, project: Project, place: ConfigPath, data: dict[str, Any]) -> None:
        datasets = data.get("datasets")
        self.project = project.with_datasets(datasets if isinstance(datasets, Mapping) else {}, place / "datasets")
        self.place, self.data = place, data

    def with_overrides(self) -> "FileAtScale":
        """Return the checked file with the overrides of the config's `set`, or this file if there are none."""
        project, data = self.project, self.data
        if not project.set:
            return self
        shared = {**project.catalogue, "datasets": project.datasets}
        for key, over in project.overrides.items():
            if key in shared and isinstance(over, Mapping):
                entries = data.get(key, {})
                below = {name: shared[key][name] for name in over if name in shared[key] and name not in entries}
                data = {**data, key: {**entries, **below}}
        place = ConfigPath(f"{self.place} with {' '.join(project.set)}")
        changed = FileAtScale(project, place, deep_merge(data, project.overrides))
        changed.check_contents()
        return changed

    def find_definition(self, key: str, name: str, place: ConfigPath | None = None) -> Defined:
        """Find a noise, partition or method.

        Args:
            key: "noises", "partitions" or "methods".
            name: Its id.
            place: What names the id.

        Returns:
            Id, settings, and where it is defined. A variant of a method has the place of its method.

        Raises:
            SpecError: Neither the study nor the catalogue defines it.
        """
        if key == "methods" and parse_settings(name):
            variants = self.expand_method(base_method(name), place)
            if name not in variants:
                raise ((place or self.place) / key).error(f"unknown variant {name!r}{did_you_mean(name, variants)}")
            return name, variants[name], self.find_definition(key, base_method(name), place)[2]
        definitions, shared = self.data.get(key, {}), self.project.catalogue.get(key, {})
        if name in definitions:
            return name, definitions[name], self.place / key / name
        if name in shared:
            return name, shared[name], ConfigPath(CATALOGUE, (key, name))
        hint = _suggest_definition(key, name, {**shared, **definitions}) or did_you_mean(name, [*definitions, *shared])
        kinds = self.project.schemas.load(FAMILY_OF_KEY[key])
        if name in kinds:
            definition = format_flow({name: kinds[name]["example"]})
            hint = f"; the library has it: define an id for it, such as {key}: {definition}"
        raise ((place or self.place) / key).error(f"unknown {FAMILY_OF_KEY[key]} {name!r}{hint}")

    def expand_method(self, name: str, place: ConfigPath | None = None) -> dict[str, Mapping[str, Any]]:
        """Expand a method's id in a grid.

        Args:
            name: The id.
            place: What names it.

        Returns:
            Id → definition of the variants of its `sweep`, or of itself.
        """
        if parse_settings(name):
            return {name: self.find_definition("methods", name, place)[1]}
        return definitions.expand_sweep(*self.find_definition("methods", name, place))

    def check_contents(self) -> None:
        """Check every key, definition and id.

        Raises:
            SpecError: A key, definition or id is wrong.
        """
        project, data, place = self.project, self.data, self.place
        check_model(StudyFile, data, place)
        problems = Problems()
        with problems.catch():
            definitions.check_definitions(project.schemas, data, place)
        with problems.catch():
            definitions.check_train(project.schemas, data["train"], place / "train")
        for number, block in enumerate(data["grid"]):
            where = place / "grid" / number
            with problems.catch():
                definitions.check_train(project.schemas, block.get("train", {}), where / "train")
            for key in AXES:
                for name in block[key]:
                    with problems.catch():
                        if key == "datasets":
                            project.find_dataset(name, where / key)
                        else:
                            self.find_definition(key, name, where)
        problems.raise_all()  # the next checks need valid definitions
        for number, block in enumerate(data["grid"]):
            with problems.catch():
                methods = dict.fromkeys(map(base_method, block["methods"]))
                self._check_method_settings(block, methods, place / "grid" / number)
        with problems.catch():
            every_method = [*data.get("methods", {}), *project.catalogue.get("methods", {})]
            self._check_method_settings(data, every_method, place)
        for named, used in data.get("dataset_substitutes", {}).items():
            with problems.catch():
                project.find_dataset(named, place / "dataset_substitutes")
                project.find_dataset(used, place / "dataset_substitutes" / named)
        problems.raise_all()

    def _check_method_settings(self, part: Mapping[str, Any], methods: Any, place: ConfigPath) -> None:
        """Check the settings that a study or a block of its grid changes in its methods."""
        for name, over in part.get("settings", {}).items():
            where = place / "settings" / name
            if name not in methods:
                raise where.error(f"expected the id of a method{did_you_mean(name, methods)}")
            for variant, spec in self.expand_method(name).items():
                definitions.parse_method(self.project.schemas, variant, {**spec, **over}, where)

    def check_box(self, name: str, number: int, keys: Iterable[str] = AXES) -> None:
        """Check that the grid has every id in a box of a subset.

        Args:
            name: The subset.
            number: The box.
            keys: The lists that are checked.

        Raises:
            SpecError: The grid lacks an id.
        """
        for key in keys:
            used = {value for block in self.data["grid"] for value in block.get(key, self.data.get(key))}
            if key == "seeds":
                used.update(seed for scale in self.data.get("scales", {}).values() for seed in scale.get("seeds", ()))
            for index, value in enumerate(self.data["subsets"][name][number].get(key) or ()):
                # a method without tuned settings is in the grid only at its default settings
                names = {base_method(value), f"{value}{DEFAULT}"} if key == "methods" else set()
                if not {value, *names} & used:
                    raise (self.place / "subsets" / name / number / key / index).error(
                        f"the grid has no {value!r}{did_you_mean(value, used)}"
                    )


def apply_tuned(study: FileAtScale) -> dict[str, Any]:
    """Give the methods of a study's grid their tuned settings, and add each method at its default settings.

    Args:
        study: A study with the key `tuned`. Each block of its grid has one data set.

    Returns:
        The study's contents. Each block has the tuned methods, and a second block has `<id>-default` of the methods.

    Raises:
        SpecError: A block has several data sets, or the file is missing.
    """
    data, file = study.data, f"{TUNED}/{study.data['tuned']}.yaml"
    substitutes = data.get("dataset_substitutes", {})
    by_dataset = read_yaml(study.project.folder / file)
    methods, grid = dict(data.get("methods", {})), []
    for number, block in enumerate(data["grid"]):
        if len(block["datasets"]) > 1:
            raise (study.place / "grid" / number / "datasets").error(
                f"expected one data set, as {file} has it by these"
            )
        by_method = by_dataset.get(substitutes.get(block["datasets"][0], block["datasets"][0]), {})
        chosen = {id_: by_method.get(id_) for id_ in block["methods"]}
        settings = {id_: spec for id_, spec in chosen.items() if spec is not None} | block.get("settings", {})
        if settings:
            grid.append(
                {**block, "methods": [id_ for id_ in block["methods"] if id_ in settings], "settings": settings}
            )
        for id_ in block["methods"]:
            definition = study.find_definition("methods", id_)[1]
            label = f"{definition.get('label', id_)}, default settings"
            methods[f"{id_}{DEFAULT}"] = {**definition, "label": label}
        beside = {key: value for key, value in block.items() if key != "settings"}
        default_ids = [f"{id_}{DEFAULT}" for id_ in block["methods"] if id_ not in block.get("settings", {})]
        if default_ids:
            grid.append({**beside, "methods": default_ids, "seeds": data["seeds"][:1]})
    return {**data, "methods": methods, "grid": grid}


def read_file(project: Project, name: str) -> dict[str, FileAtScale]:
    """Read a study's file, and check it at every scale that it names.

    Args:
        project: The project, which has the overlay of each scale.
        name: The study's name.

    Returns:
        Scale → the file at that scale: `paper`, the project's, and those under `scales`.

    Raises:
        SpecError: The file has an error.
    """
    file = project.study_file(name)
    data = read_yaml(project.folder / file)
    written = _check_at_scale(project, ConfigPath(file), data)
    for subset, boxes in written.data.get("subsets", {}).items():
        for number in range(len(boxes)):
            written.check_box(subset, number, (*AXES, "seeds"))  # a scale may have other seeds
    scales = written.data.get("scales", {})
    for scale, part in scales.items():
        place = written.place / "scales" / scale
        for where, named in ((place, scale), (place / "page", part.get("page", scale))):
            if named not in project.scale_names:
                raise where.error(f"unknown scale{did_you_mean(named, project.scale_names)}")
    files = {"paper": written}
    for scale in dict.fromkeys([*scales, project.scale]):
        overlay = project.overlay if scale == project.scale else project.read_overlay(f"{SCALES}/{scale}.yaml")
        files[scale] = written
        if overlay or scales.get(scale):
            scaled = deep_merge(deep_merge(data, overlay), scales.get(scale, {}))
            files[scale] = _check_at_scale(project, ConfigPath(f"{file} at scale {scale}"), scaled)
    return files


def _check_at_scale(project: Project, place: ConfigPath, data: dict[str, Any]) -> FileAtScale:
    """The checked contents of a file, with tuned settings if it asks for them."""
    study = FileAtScale(project, place, data)
    study.check_contents()
    if "tuned" in data:
        study = FileAtScale(project, place, apply_tuned(study))
        study.check_contents()
    return study


def _suggest_definition(key: str, name: str, known: Mapping[str, Mapping[str, Any]]) -> str:
    """Suggest how to define `sym50` where `sym80` is known. Without a known id that differs only in a rate: ""."""
    stem = name.rstrip("0123456789")
    digits = name.removeprefix(stem)
    for other, definition in known.items() if len(digits) in (1, 2) else ():
        number = other.removeprefix(stem)
        rate = int(number) / 100 if number.isdecimal() else None
        if other.startswith(stem) and rate in definition.values():
            changed = {k: int(digits) / 100 if v == rate else v for k, v in definition.items() if k != "label"}
            return f"; define it: {key}: {format_flow({name: changed})}"
    return ""

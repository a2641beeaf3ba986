"""The config files of a project: their definitions, the paths of results, and checks of each file.

An error raises SpecError with one message that names file and key. This module imports neither torch nor Snakemake.
"""

import copy
import functools
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednoise_core.data import sources
from fednoise_core.io import ArtifactError, Problems, SpecError, json_digest
from fednoise_core.settings.declare import describe_mismatch, did_you_mean
from workflow_scripts import paths
from workflow_scripts.config.definitions import check_definitions
from workflow_scripts.config.file_contents import hash_contents
from workflow_scripts.config.file_models import CatalogueFile, ConfigFile
from workflow_scripts.config.overrides import folder_ending, parse_overrides
from workflow_scripts.config.validation import Schemas, check_model
from workflow_scripts.config.yaml_file import ConfigPath, check_json_compatible, deep_merge, read_yaml

STUDIES, PAPERS, SCALES = "config/studies", "config/papers", "config/scales"
CATALOGUE, DATASETS = "config/catalogue.yaml", "config/datasets.yaml"
CONTENTS = "contents.json"
FILE = ".yaml"
RULES = Path(__file__).parents[2] / "rules"
TARGET_SUFFIXES = ("settings", "runs")  # a study's targets are <study>, <study>_settings, <study>_runs, <study>_<table>


class Project:
    """The config files in `folder`. `config` is the merged config of `files`. Later files override earlier ones.

    The overlay of the config's scale comes before the config's own overlay, even if its file is not among `files`.
    """

    def __init__(self, config: Mapping[str, Any], folder: str | Path = ".", files: tuple[str, ...] = ()) -> None:
        self.folder = Path(folder)
        self.schemas = Schemas(self.folder / "config/schema")
        config, files = self._with_scale(dict(config), files or ("config/config.yaml",))
        self._configured: list[str] = [study for study in config.get("studies", ()) if isinstance(study, str)]
        self._check_config(config, files)
        self.device, self.scale = str(config["device"]), str(config["scale"])
        self.overlay = dict(config.get("overlay") or {})
        self.set: list[str] = list(config.get("set") or [])
        self.overrides = parse_overrides(self.set, ConfigPath("config", ("set",)))
        self.data_root: str | None = config.get("data_root")
        self.subset: str | None = config.get("subset")
        self.accepted: list[dict[str, str]] = list(config.get("accept_versions") or [])
        self.studies: list[str] = [_study_name(study) for study in config["studies"]]
        self.facts = functools.cache(self._read_facts)
        self._dataset_places: dict[str, ConfigPath] = {}

    @classmethod
    def load(cls, folder: str | Path = ".", **config: Any) -> "Project":
        """Load the project in a folder. `config` overrides its config/config.yaml."""
        return cls({**read_yaml(Path(folder, "config/config.yaml")), **config}, folder)

    @functools.cached_property
    def study_files(self) -> dict[str, str]:
        """Map every study to its file, papers last."""
        listed = {folder: sorted((self.folder / folder).glob("*.yaml")) for folder in (STUDIES, PAPERS)}
        # studies of a calling workflow, in its working folder
        elsewhere = [os.path.abspath(study) for study in self._configured if study.endswith(FILE)]
        files: dict[str, str] = {}
        for file in (*elsewhere, *(f"{folder}/{path.name}" for folder, files in listed.items() for path in files)):
            place, name = ConfigPath(file if file.isprintable() else repr(file)), _study_name(file)
            problem = paths.name_problem(name, study=True)
            if problem or name in reserved_names():
                raise place.error(f"the file's name: {problem or f'{name!r} is a rule of the workflow'}")
            if name in files:
                raise place.error(f"{files[name]} has the same name")
            files[name] = file
        self._check_names(files)
        return files

    def _check_names(self, names: Mapping[str, str]) -> None:
        """Refuse two studies that would share a target or, at some scale, a results folder."""
        for name, file in names.items():
            for base in names:
                ending = name.removeprefix(base)
                if ending != name and ending[:1] == "_" and ending[1:] in TARGET_SUFFIXES:
                    raise ConfigPath(file).error(f"the file's name: {name!r} is also a target of study {base!r}")
                if ending != name and ending[:1] == "-" and ending[1:] in self.scale_names:
                    raise ConfigPath(file).error(
                        f"the file's name: results/{name} is also the folder of study {base!r} at scale {ending[1:]}"
                    )

    @functools.cached_property
    def scale_names(self) -> list[str]:
        """Names of the scales besides `paper`."""
        return sorted(path.stem for path in (self.folder / SCALES).glob("*.yaml"))

    @property
    def paper_names(self) -> list[str]:
        """The studies that are papers."""
        return [name for name, file in self.study_files.items() if file.startswith(PAPERS)]

    def results_folder(self, name: str) -> str:
        """Return the results folder of a study at the present scale. Its name ends with the overrides (`set`)."""
        return f"results/{name}{'' if self.scale == 'paper' else f'-{self.scale}'}{folder_ending(self.set)}"

    @functools.cached_property
    def studies_by_folder(self) -> dict[str, str]:
        """Last part of a results folder → its study."""
        return {self.results_folder(name).removeprefix("results/"): name for name in self.study_files}

    def study_file(self, study: str) -> str:
        """Find a study's file.

        Args:
            study: The study's name.

        Raises:
            SpecError: No study has this name.
        """
        if study not in self.study_files:
            raise SpecError(f"unknown study {study!r}{did_you_mean(study, self.study_files)}")
        return self.study_files[study]

    @property
    def _data_folders(self) -> list[str]:
        """The folder that is searched for data sets. Jobs find it in FEDNOISE_DATA (`export_environment`)."""
        return [place for place in (self.data_root or os.environ.get("FEDNOISE_DATA"),) if place]

    @functools.cached_property
    def datasets(self) -> dict[str, Any]:
        """Id → data set, as in config/datasets.yaml."""
        datasets = read_yaml(self.folder / DATASETS)
        check_json_compatible(datasets, ConfigPath(DATASETS))
        problems = Problems()
        for name, spec in datasets.items():
            with problems.catch():
                problem = paths.name_problem(name)
                if problem:
                    raise ConfigPath(DATASETS).error(problem)
                place = ConfigPath(DATASETS, (name,))
                if not isinstance(spec, Mapping):
                    raise place.error(describe_mismatch(spec, {"type": "object", "required": ["source"]}))
                self.schemas.check_kind("dataset", spec, place)
        problems.raise_all()
        return datasets

    @functools.cached_property
    def catalogue(self) -> dict[str, Any]:
        """Definitions shared by studies. All are checked, even those that no study uses."""
        catalogue = read_yaml(self.folder / CATALOGUE)
        check_model(CatalogueFile, catalogue, ConfigPath(CATALOGUE))
        check_definitions(self.schemas, catalogue, ConfigPath(CATALOGUE))
        return catalogue

    def find_dataset(self, name: str, place: ConfigPath) -> dict[str, Any]:
        """Find a data set by its id.

        Args:
            name: The id.
            place: What names it.

        Raises:
            SpecError: No data set has this id.
        """
        if name not in self.datasets:
            raise place.error(f"unknown data set {name!r}{did_you_mean(name, self.datasets)}")
        return self.datasets[name]

    def with_datasets(self, own: Mapping[str, Any], place: ConfigPath) -> "Project":
        """Add the data sets that a study declares itself.

        Args:
            own: Id → data set. It overrides a data set of config/datasets.yaml.
            place: Where they are declared.

        Returns:
            The project as the study sees it.
        """
        if not own:
            return self
        project = copy.copy(self)
        project.datasets = {**self.datasets, **own}
        project.facts = functools.cache(project._read_facts)
        project._dataset_places = {name: place / name for name in own}
        return project

    def _dataset_place(self, name: str) -> ConfigPath:
        return self._dataset_places.get(name, ConfigPath(DATASETS, (name,)))

    @functools.cache  # noqa: B019 - a project lives as long as the process
    def normalize_dataset(self, name: str) -> dict[str, Any]:
        """A data set's settings in normal form (`Schemas.normalize_kind`)."""
        return self.schemas.normalize_kind("dataset", self.datasets[name])

    @functools.cache  # noqa: B019
    def dataset_fingerprint(self, dataset: str) -> str:
        """Hash the contents of the user's own files of a data set.

        Args:
            dataset: The id of a data set.

        Returns:
            A digest, or "" if the data set is published. If its path is missing (in a clone), the digest that was
            recorded when the arrays were last made.

        Raises:
            SpecError: The path exists, and its files cannot be used.
        """
        try:
            digests = {
                path.name: hash_contents(path)
                for path in sources.list_files(self.datasets[dataset], self._data_folders)
            }
        except (SpecError, ArtifactError, OSError) as error:
            if self._path_is_missing(dataset):
                return self._recorded_fingerprint(dataset)
            raise self._dataset_place(dataset).error(str(error)) from error
        return json_digest(digests) if digests else ""

    def contents_folder(self, dataset: str) -> str:
        """Return the folder in which the step `download` records the digest of the user's files of a data set."""
        spec = self.normalize_dataset(dataset)
        return f"store/contents/{spec['source']}/{json_digest(spec)}"

    def _recorded_fingerprint(self, dataset: str) -> str:
        try:
            return str(json.loads(Path(self.contents_folder(dataset), CONTENTS).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return ""

    def is_absent(self, dataset: str) -> bool:
        """Return True if the user's path of a data set is missing, and no digest of its files was recorded."""
        return self._path_is_missing(dataset) and not self._recorded_fingerprint(dataset)

    def _path_is_missing(self, dataset: str) -> bool:
        """Return True if a data set is read from a path of the user that does not exist."""
        spec = self.datasets[dataset]
        path = self.schemas.load("dataset")[spec["source"]]["properties"].get("path")
        if path is None:
            return False
        try:
            return not any(
                Path(place, spec.get("path", path.get("default"))).exists() for place in ("", *self._data_folders)
            )
        except OSError:  # such as a folder without read permission, whose contents are unknown
            return False

    def export_environment(self) -> None:
        """Pass values that differ between machines to the jobs by environment variables.

        These are the device, the data folder, the `python` that runs the jobs, and the folder of this code. They must
        not be in a command or in params, where a change would make every result out of date.
        """
        os.environ["FEDNOISE_DEVICE"] = self.device
        if self.data_root:
            os.environ["FEDNOISE_DATA"] = self.data_root
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        above = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        os.environ["PYTHONPATH"] = os.pathsep.join([os.path.abspath(self.folder), *above])

    def _read_facts(self, dataset: str) -> tuple[int | None, int | None, int | None]:
        """Read (training samples, classes, shorter side of the images) of a data set.

        All are None if the user's path is missing and was read earlier.
        """
        spec = self.datasets[dataset]
        try:
            samples, classes, sides = sources.read_facts(spec, self._data_folders)
        except (SpecError, ArtifactError, OSError) as error:
            if self._path_is_missing(dataset) and self._recorded_fingerprint(dataset):
                return None, None, None
            raise self._dataset_place(dataset).error(str(error)) from error
        if samples < 1:
            raise self._dataset_place(dataset).error("test and public images leave none to train on")
        return samples, classes, min(sides)

    @functools.cache  # noqa: B019
    def missing_inputs(self, dataset: str) -> set[str]:
        """Name what a data set is known to lack (`sources.missing_inputs`). Nothing is known if its path is missing."""
        if self._path_is_missing(dataset):
            return set()
        return sources.missing_inputs(self.datasets[dataset], self._data_folders)

    def _with_scale(self, config: dict[str, Any], files: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Add the overlay and the file of the scale to config and files.

        Without them, `--config scale=smoke` would run the whole study under the name of a smoke test. The messages name
        a damaged file, which Snakemake's own message about `--configfile` does not.
        """
        file = f"{SCALES}/{config.get('scale')}.yaml"
        if file in files or config.get("scale") not in self.scale_names:
            return config, files
        overlay = deep_merge(self.read_overlay(file), config.get("overlay") or {})
        return {**config, "overlay": overlay}, (files[0], file, *files[1:])

    def read_overlay(self, file: str) -> dict[str, Any]:
        """Read the overlay of a config file."""
        # required keys may be in another file
        data = {"device": "auto", "scale": "paper", "studies": ["any"], **read_yaml(self.folder / file)}
        check_model(ConfigFile, data, ConfigPath(file))
        return data.get("overlay") or {}

    def _check_config(self, config: dict[str, Any], files: tuple[str, ...]) -> None:
        for file in files:
            self.read_overlay(file)
        place = ConfigPath("config")  # from a file, or from --config on the command line
        check_model(ConfigFile, config, place)
        problems: list[tuple[ConfigPath, str]] = []
        scales, root = ["paper", *self.scale_names], config.get("data_root")
        if config["scale"] not in scales:
            problem = f"expected paper or the name of a file in config/scales, got {config['scale']!r}"
            problems.append((place / "scale", problem + did_you_mean(config["scale"], scales)))
        if config["scale"] == "paper" and config.get("overlay"):
            cure = "Give it a scale, as config/scales does"
            problems.append((place / "overlay", f"at scale paper it would overwrite the studies' own results. {cure}"))
        for key in ("train", "settings"):  # a study's own values for the scale would hide the error
            if not isinstance(value := (config.get("overlay") or {}).get(key, {}), Mapping):
                problems.append((place / "overlay" / key, describe_mismatch(value, {"type": "object"})))
        for number, name in enumerate(config["studies"]):
            where = place / "studies" / number
            if name.endswith(FILE) and not os.path.isfile(name):
                problems.append((where, f"expected a study's file, got {name!r}, which does not exist"))
            elif _study_name(name) not in self.study_files:
                problems.append((where, f"unknown study {name!r}{did_you_mean(name, self.study_files)}"))
        if root is not None and not os.path.isdir(root):
            problems.append((place / "data_root", f"expected a folder, got {root[:100]!r}"))
        Problems(str(where.error(problem)) for where, problem in problems).raise_all()


def _study_name(study: str) -> str:
    """Return the name of a study, which may be given by its file."""
    return Path(study).stem if study.endswith(FILE) else study


@functools.cache
def reserved_names() -> frozenset[str]:
    """Names that a study cannot have: the rules, and the targets that are not studies."""
    rules = "".join(path.read_text(encoding="utf-8") for path in RULES.glob("*.smk"))
    return frozenset(re.findall(r"^rule (\w+):", rules, re.MULTILINE)) | {"all", "papers", "stage_data", "stored"}

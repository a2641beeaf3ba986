"""The code behind each step of the workflow: from which files its hash starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError
from workflow_scripts.provenance.code_hash import GPU_ONLY, closure_hash, module_file, read_registry

ROOT = Path(__file__).resolve().parents[2]
"""The project whose code this process runs."""


def user_module_path(folder: str | Path, factory: str) -> str:
    """The project's file of a net's factory "module:function". Raises SpecError if there is none."""
    where = factory.partition(":")[0]
    found = module_file(folder, where) if where else None
    if found is None:
        problem = f"there is no file {where.replace('.', '/')}.py in the project's folder"
        raise SpecError(f"train.net.factory: {factory!r}: {problem}: only its code decides what runs again")
    return found


class CodeChanged(RuntimeError):
    """The code is not the one that this job was planned with."""


class StepCode:
    """Entries and code hashes of the workflow's steps, for the project in `folder`."""

    def __init__(self, folder: str | Path = ".") -> None:
        self.folder = Path(folder)
        self._codes: dict[tuple[object, ...], str] = {}

    def download_entries(self, spec: Mapping[str, Any]) -> list[str]:
        """The step that makes the arrays of a data set, whose public images may be of another source."""
        public = spec.get("public")
        named = [spec["source"], *([public["dataset"]] if isinstance(public, Mapping) else [])]
        return ["workflow_scripts/steps/download.py", *self._registry_entries("data/__init__.py", "SOURCES", named)]

    def pretrained_entries(self, net: str) -> list[str]:
        """The step that makes a file of published weights for a net."""
        return ["workflow_scripts/steps/pretrained.py", *self._registry_entries("nets/__init__.py", "NETS", [net])]

    def noise_entries(self, kind: str) -> list[str]:
        """The step that makes noisy labels."""
        return ["workflow_scripts/steps/noise.py", *self._registry_entries("noise/registry.py", "NOISES", [kind])]

    def partition_entries(self, kind: str) -> list[str]:
        """The step that spreads samples over clients."""
        return [
            "workflow_scripts/steps/partition.py",
            *self._registry_entries("partition/registry.py", "PARTITIONS", [kind]),
        ]

    def train_entries(self, method: str, nets: Iterable[str], *, gpu: bool = False) -> list[str]:
        """A training run of `method` (a name of METHODS) with `nets` (names of NETS, and the user's own factories
        "module:function"). It starts from training.py: the command line around it, its help and its messages decide no
        number. gpu: it runs on a GPU. Raises SpecError for a factory whose file is not in the project's folder.
        """
        modules = [*self._registry_entries("methods/__init__.py", "METHODS", [method])]
        nets = list(nets)
        modules += self._registry_entries("nets/__init__.py", "NETS", nets)
        modules += [user_module_path(self.folder, net) for net in nets if ":" in net]
        return ["workflow_scripts/steps/training_run.py", *modules, *(GPU_ONLY if gpu else ())]

    def report_entries(self, script: str, figures: Iterable[str] = (), tables: Iterable[str] = ()) -> list[str]:
        """A step that makes tables, figures, summaries or pages. figures, tables: the kinds that it makes."""
        kinds = list(figures)
        drawn = [*self._figure_entries("result", kinds), *self._figure_entries("setting", kinds)]
        return [f"workflow_scripts/steps/{script}.py", *drawn, *self._table_entries(tables)]

    def setting_figure_kinds(self) -> list[str]:
        """The kinds of figures that a setting's page shows, and a study's."""
        return list(read_registry(self.folder, "fednoise_core/report/figures/settings/__init__.py", "SETTING_FIGURES"))

    def hash_entries(self, entries: Iterable[str]) -> str:
        """The hash under which results of the code reachable from `entries` are recorded."""
        key = tuple(sorted(set(entries)))
        if key not in self._codes:
            self._codes[key] = closure_hash(self.folder, *key)
        return self._codes[key]

    def check_hash(self, planned: str, *accepted: Iterable[str]) -> str:
        """The code hash under which a job records its results: `planned`, or, if that is "", that of the entries which
        are `accepted` first. Raises CodeChanged if `planned` is the hash of none of them.
        """
        codes = [self.hash_entries(entries) for entries in accepted]
        if planned and planned not in codes:
            raise CodeChanged(
                f"the code has changed since this job was planned (now {codes[0]}, then {planned}): "
                "nothing was computed; start it again (a workflow: snakemake)"
            )
        return planned or codes[0]

    def _figure_entries(self, family: str, kinds: list[str]) -> list[str]:
        return self._registry_entries(f"report/figures/{family}s/__init__.py", f"{family.upper()}_FIGURES", kinds)

    def _table_entries(self, kinds: Iterable[str]) -> list[str]:
        return self._registry_entries("report/tables/registry.py", "TABLES", kinds)

    def _registry_entries(self, file: str, name: str, keys: Iterable[str]) -> list[str]:
        """Files and objects behind a registry's lines "module:object"; a registry that holds objects imports their
        modules itself.
        """
        known = read_registry(self.folder, f"fednoise_core/{file}", name)
        lines = {known[key].partition(":") for key in keys if key in known}
        files = {(module_file(self.folder, module), found) for module, _, found in lines}
        return sorted(f"{file}:{found}" for file, found in files if file is not None)

"""The code of each step of the workflow: the files from which its hash starts."""

import ast
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError
from workflow_scripts.provenance.code_hash import closure_hash, module_file

ROOT = Path(__file__).resolve().parents[2]
"""The project whose code this process runs."""

REGISTRIES = {
    "dataset": [("fednoise_core/data/__init__.py", "SOURCES")],
    "method": [("fednoise_core/methods/__init__.py", "METHODS")],
    "net": [("fednoise_core/nets/__init__.py", "NETS")],
    "noise": [("fednoise_core/noise/registry.py", "NOISES")],
    "partition": [("fednoise_core/partition/registry.py", "PARTITIONS")],
    "table": [("workflow_scripts/report/tables/registry.py", "TABLES")],
    "figure": [
        ("workflow_scripts/report/figures/results/__init__.py", "RESULT_FIGURES"),
        ("workflow_scripts/report/figures/settings/__init__.py", "SETTING_FIGURES"),
    ],
}
"""Family of things that come in kinds → the files and dicts that name them."""


def user_module_path(folder: str | Path, named: str) -> str:
    """Find the file of the user's own method, net factory, noise model or partition.

    Args:
        folder: The project's folder.
        named: "module:Class" or "module:function".

    Raises:
        SpecError: The project's folder has no such module.
    """
    where = named.partition(":")[0]
    file = module_file(folder, where) if where else None
    if file is None:
        problem = f"expected a module in the project's folder, got {named!r} (no {where.replace('.', '/')}.py there)"
        raise SpecError(f"{problem}. Only such code decides what runs again")
    return file


@functools.cache
def read_registry(root: str | Path, file: str, name: str) -> dict[str, str]:
    """Read the literal entries of the dict `name` in `file`. Raises LookupError if `name` is no dict literal there."""
    for node in ast.parse((Path(root) / file).read_bytes()).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        table = getattr(node, "value", None)
        if isinstance(table, ast.Dict) and any(isinstance(t, ast.Name) and t.id == name for t in targets):
            pairs = zip(table.keys, table.values, strict=True)
            return {
                str(k.value): str(v.value)
                for k, v in pairs
                if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)
            }
    raise LookupError(f"{file}: no dict literal named {name}")


def list_sources(spec: Mapping[str, Any]) -> list[str]:
    """List the sources that the arrays of a data set are made from: its own, and perhaps that of its public images.

    Args:
        spec: The settings of the data set.
    """
    public = spec.get("public")
    return [spec["source"], *([public["dataset"]] if isinstance(public, Mapping) else [])]


class CodeChanged(RuntimeError):
    """The code has changed since this job was planned."""


class StepCode:
    """Entries and code hashes of the workflow's steps, for the project in `folder`."""

    def __init__(self, folder: str | Path = ".") -> None:
        self.folder = Path(folder)
        self._hash = functools.cache(functools.partial(closure_hash, self.folder))

    def step_entries(self, step: str, **names: Iterable[str]) -> list[str]:
        """List the code of a step: its module, and the code of the data sets, methods, … that it uses by name.

        A training run is the step `training_run`, because its command line does not affect any number.

        Args:
            step: The name of its module.
            names: Family of REGISTRIES → names. A name may be the user's own, "module:name".

        Raises:
            SpecError: The file of a class or factory is not in the project's folder.
        """
        entries = [f"workflow_scripts/steps/{step}.py"]
        for family, chosen in names.items():
            keys = list(chosen)
            for registry in REGISTRIES[family]:
                entries += self._registry_entries(*registry, keys)
            entries += [user_module_path(self.folder, key) for key in keys if ":" in key]
        return entries

    def hash_entries(self, entries: Iterable[str]) -> str:
        """Hash code.

        Args:
            entries: The files from which the hash starts.

        Returns:
            The hash under which results of this code are recorded.
        """
        return self._hash(*sorted(set(entries)))

    def check_hash(self, planned: str, entries: Iterable[str]) -> str:
        """Compare the code with the code with which a job was planned.

        Args:
            planned: The hash of the planned code. "" allows any code.
            entries: The files from which the hash starts.

        Returns:
            The hash under which the job records its results.

        Raises:
            CodeChanged: The hashes differ.
        """
        code = self.hash_entries(entries)
        if planned not in ("", code):
            raise CodeChanged(
                f"the code has changed since this job was planned (now {code}, then {planned}): "
                "nothing was computed. Run the command again (for a workflow: snakemake)"
            )
        return code

    def _registry_entries(self, file: str, name: str, keys: Iterable[str]) -> list[str]:
        """List the files and objects of a registry's entries "module:object".

        A registry that contains the objects themselves imports their modules.
        """
        registry = read_registry(self.folder, file, name)
        lines = {registry[key].partition(":") for key in keys if key in registry}
        files = {(module_file(self.folder, module), entry) for module, _, entry in lines}
        return sorted(f"{file}:{entry}" for file, entry in files if file is not None)

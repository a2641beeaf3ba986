"""The plan of one step: the folder of its outputs, whether they exist, and the inputs that must be made first."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from workflow_scripts import paths
from workflow_scripts.provenance.checksums import SUMS

MAIN_FILES = {  # kind of the store → the file that other steps read first
    "arrays": paths.ARRAYS,
    "labels": paths.LABELS,
    "partitions": paths.PARTITION,
    "runs": "metrics.parquet",
    "tables": "table.csv",
    "figures": "figure.svg",
}


@dataclass(frozen=True)
class Plan:
    """The outputs of one step, made or not.

    Attributes:
        folder: The folder of the outputs.
        code: The hash of the step's code.
        inputs: The plans that the step reads.
        arguments: Its command line without the hash of the code and the files that it reads and writes.
        files: Paths of other files that must exist.
        spec: The settings and runs of a table, figure or page.
    """

    folder: str
    code: str
    inputs: tuple[Plan, ...] = ()
    arguments: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    spec: Any = field(default=None, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """The last part of the address."""
        return self.folder.rsplit("/", 1)[1]

    @property
    def sums_file(self) -> str:
        """The file that exists once the step is finished."""
        return f"{self.folder}/{SUMS}"

    @property
    def is_finished(self) -> bool:
        """True if the outputs exist."""
        return os.path.exists(self.sums_file)

    @property
    def main_file(self) -> str:
        """The file that other steps read first."""
        return f"{self.folder}/{MAIN_FILES[self.folder.split('/')[1]]}"

    def input_files(self, name: str) -> list[str]:
        """List the files that the step reads under a name: "arrays", "labels", "partition", "donor" or "weights"."""
        if name == "weights":
            return list(self.files)
        kind = {"partition": "partitions", "donor": "arrays"}.get(name, name)
        plans = [plan for plan in self.inputs if plan.folder.split("/")[1] == kind]
        # the first arrays are the data set, and the second (the donor) replace images
        return [plan.main_file for plan in (plans[1:] if name == "donor" else plans[:1])]

    def missing_inputs(self, kind: str) -> list[str]:
        """List the main files of unfinished inputs of a kind of the store, such as "runs"."""
        return [plan.main_file for plan in self.inputs if plan.folder.split("/")[1] == kind and not plan.is_finished]

    def missing_files(self) -> list[str]:
        """List the files that must be made before this step."""
        missing = [plan.sums_file for plan in self.inputs if not plan.is_finished]
        return [*missing, *(file for file in self.files if not os.path.exists(file))]

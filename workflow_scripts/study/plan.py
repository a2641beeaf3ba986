"""The plan of one step: where its outputs lie, whether they are there, and what must be made before it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from workflow_scripts.provenance.checksums import SUMS


@dataclass(frozen=True)
class Plan:
    """The outputs of one step, made or not.

    Attributes:
        folder: Where they lie.
        code: The hash of the step's code.
        inputs: The plans that the step reads.
        arguments: Its command line without the hash of the code.
        files: Paths that must be there, too.
        spec: What a table, figure or page is made from.
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
        """The file that is there once the step is finished."""
        return f"{self.folder}/{SUMS}"

    @property
    def is_finished(self) -> bool:
        """True if the outputs exist."""
        return os.path.exists(self.sums_file)

    def missing_files(self) -> list[str]:
        """List what must be made before this step."""
        missing = [plan.sums_file for plan in self.inputs if not plan.is_finished]
        return [*missing, *(file for file in self.files if not os.path.exists(file))]


@dataclass(frozen=True)
class RunFiles:
    """Paths of a run's files, and of the files of its setting."""

    run: Plan
    arrays: Plan
    labels: Plan
    partition: Plan
    donor: Plan | None = None

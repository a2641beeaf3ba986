"""Definition of a kind of table: its settings, the frame of its numbers, and the layout that is shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from fednoise_core.settings.declare import Settings
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import Grid

HeadWords = dict[str, Annotated[str, Field(min_length=1, max_length=100)]]
"""Id or column → its words in a table's head."""

Spec = Mapping[str, Any]
"""The settings of one table with their defaults, and what the workflow tells of the study."""


@dataclass(frozen=True, kw_only=True)
class TableKind:
    """A kind of table: one object in one file of this folder, named in `registry.TABLES`.

    Attributes:
        settings: Model of its settings. The first paragraph of its docstring says what the table is.
        frame: Makes the numbers, one row per cell, from the chosen runs and the settings. They are written as CSV.
        layout: Makes the table that is shown from that CSV and the settings.
        example: Settings for the one-line example on the reference page.
        texts: Columns of text in its frame, beside those of `csv_files.TEXT`. Every other column must be numbers.
        context: The facts of the study that the workflow adds to the settings, with their defaults.
        without_runs: Whether it reads no run at all.
        of_a_paper: Whether it shows the cells of a paper, even those that were not run.
        of_accuracy: Whether it shows accuracies, so that it has a note on data sets without trusted test labels.
    """

    settings: type[Settings]
    frame: Callable[[Sequence[RecordedRun], Spec], pd.DataFrame]
    layout: Callable[[pd.DataFrame, Spec], Grid]
    example: Mapping[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    without_runs: bool = False
    of_a_paper: bool = False
    of_accuracy: bool = False

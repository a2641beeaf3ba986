"""What a kind of figure is, and the settings that several kinds have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fednoise_core.report.runs.selection import Metric, RunSelection, View

if TYPE_CHECKING:
    from fednoise_core.report.figures.style import Drawn

__all__ = [
    *("AccuracySettings", "FigureKind", "FigureSettings", "LineSettings", "PanelColumns", "RowSettings"),
    *("ShownMetric", "YRange"),
]

ShownMetric = Annotated[Metric, Field(description="Best round, last round, or mean of the last ten evaluations.")]
PanelColumns = Annotated[
    int | None, Field(ge=1, le=3, description="Panels side by side; null: 2 up to four panels, else 3.")
]
YRange = Annotated[
    Annotated[list[float], Field(min_length=2, max_length=2)] | None,
    Field(description="Ends of the y axis; null: as the data."),
]


class FigureSettings(RunSelection):
    """Settings of every kind of figure."""

    width: Annotated[
        Literal["page", "column"],
        Field(description="7 in, a page's text, or 3.4 in, a column of two; letters have the same size in both."),
    ] = "page"


class AccuracySettings(FigureSettings):
    """Settings of figures that show one accuracy of each run."""

    view: View = "headline"
    metric: ShownMetric = "last10_mean"


class LineSettings(AccuracySettings):
    """Settings of figures whose panels have lines of accuracies."""

    columns: PanelColumns = None
    y: YRange = None


class RowSettings(AccuracySettings):
    """Settings of figures whose rows are methods."""

    columns: Annotated[
        int | None, Field(ge=1, le=4, description="Panels side by side; null: up to 4 on a page, 2 in a column.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """A kind of figure: one object in one file, named in `RESULT_FIGURES` or `SETTING_FIGURES`.

    Attributes:
        settings: Model of its settings. The first paragraph of its docstring says what the figure is.
        draw: Draws it. A figure of results is drawn from the runs, the look of each method and the settings. A figure
            of settings is drawn from the artifacts of the settings and its own settings.
        example: Settings for the one-line example on the reference page.
        of_a_paper: Whether it is drawn from a paper's tables, which `draw` then has in the place of the looks.
    """

    settings: type[FigureSettings]
    draw: Callable[..., Drawn]
    example: Mapping[str, Any] = field(default_factory=dict)
    of_a_paper: bool = False

"""Definition of a kind of figure, and the settings that several kinds have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from workflow_scripts.report.runs.selection import Metric, RunSelection
from workflow_scripts.report.text.escape import one_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from workflow_scripts.report.runs.settings import SettingArtifacts


class FigureSettings(RunSelection):
    """Settings of every kind of figure."""

    width: Annotated[
        Literal["page", "column"],
        Field(description="7 in, a page's text, or 3.4 in, a column of two; letters have the same size in both."),
    ] = "page"


class AccuracySettings(FigureSettings):
    """Settings of figures that show one accuracy of each run."""

    metric: Annotated[Metric, Field(description="Best round, last round, or mean of the last ten evaluations.")] = (
        "last10_mean"
    )


@dataclass
class Drawn:
    """A figure, the frame that was drawn, and words about it.

    Attributes:
        figure: The figure.
        frame: The drawn data, as in the figure's CSV.
        settings: The figure's settings. If they have a title, it replaces `title`.
        title: Title on the page.
        caption: What the figure shows.
        alt: Alternative text.
        notes: The meaning of the marks. A page with several figures shows each note once.
    """

    figure: Figure
    frame: pd.DataFrame
    settings: InitVar[FigureSettings]
    title: str
    caption: str
    alt: str
    notes: Sequence[str] = ()

    def __post_init__(self, settings: FigureSettings) -> None:
        self.title = settings.title or self.title
        self.alt = f"{self.title}: {self.alt}"
        # The SVG keeps caption, alternative text and each note as a line (`read_words`).
        self.title, self.caption, self.alt = map(one_line, (self.title, self.caption, self.alt))


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """A kind of figure: one object in one file, named in `RESULT_FIGURES` or `SETTING_FIGURES`.

    Attributes:
        settings: Model of its settings. The first paragraph of its docstring says what the figure is.
        draw: Draws it. A figure of results is drawn from the runs, the look of each method and the settings. A figure
            of settings is drawn from the artifacts of the settings and its own settings.
        example: Settings for the one-line example on the reference page.
        of_a_paper: Whether it is drawn from a paper's tables, which `draw` then gets instead of the looks.
        at_top: Whether a page shows it at its top: a paper's page if it is `of_a_paper`, else other studies' pages.
        live: Whether the page of a study draws it by a script if scripts can run.
        applies: Whether a figure of settings is meaningful for a setting. Its page leaves out the other figures.
    """

    settings: type[FigureSettings]
    draw: Callable[..., Drawn]
    example: Mapping[str, Any] = field(default_factory=dict)
    of_a_paper: bool = False
    at_top: bool = False
    live: bool = False
    applies: Callable[[SettingArtifacts], bool] = lambda setting: True

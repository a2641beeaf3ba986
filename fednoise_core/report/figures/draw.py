"""All kinds of figures: of results (`result_figures`, from run folders), of settings (`setting_figures`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.report.figures.kinds import figure_function
from fednoise_core.report.figures.results import RESULT_FIGURES
from fednoise_core.report.figures.settings import SETTING_FIGURES
from fednoise_core.report.figures.style import Drawn, look, save, styled
from fednoise_core.report.runs import agreement
from fednoise_core.report.runs.csv_files import write_csv
from fednoise_core.report.runs.run import ListedRun, load, select
from fednoise_core.report.runs.settings import artifacts_of

__all__ = ["FIGURES", "draw", "make"]

FIGURES = (*RESULT_FIGURES, *SETTING_FIGURES)


def draw(found: Sequence[ListedRun], spec: Mapping[str, Any]) -> Drawn:
    """Draw one figure. `found`: all runs of the study in its order, which gives each method its colour; `spec` as in
    config/schema/figure.yaml. To be called inside `style.styled()`. Raises SpecError for an unknown kind or a choice
    that leaves no run, ArtifactError for a damaged file.
    """
    kind = spec.get("kind")
    if kind not in FIGURES:
        raise SpecError(f"figure kind {kind!r} is not one of {', '.join(FIGURES)}")
    chosen = select(found, spec)
    if not chosen:
        raise SpecError("the figure names no run")
    if kind in SETTING_FIGURES:
        return figure_function(SETTING_FIGURES[kind])(artifacts_of(chosen), spec)
    runs = load(chosen)
    drawn = figure_function(RESULT_FIGURES[kind])(runs, look([listed.method for listed in found]), spec)
    drawn.caption = f"{drawn.caption} {agreement.untrusted_note(agreement.untrusted_datasets(runs))}".rstrip()
    return drawn


def make(found: Sequence[ListedRun], spec: Mapping[str, Any], prefix: str | Path) -> None:
    """Write `prefix`.svg, .png, .pdf and .csv (what was drawn); the CSV comes last. Raises as `draw` does."""
    with styled():
        drawn = draw(found, spec)
        save(drawn, prefix)
    write_csv(f"{prefix}.csv", drawn.frame)

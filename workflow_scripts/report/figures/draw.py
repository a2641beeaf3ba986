"""Any kind of figure: of results (`RESULT_FIGURES`, from run folders) or of settings (`SETTING_FIGURES`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import check_value
from fednoise_core.settings.functions import resolve_kind
from workflow_scripts.report.figures.kind import Drawn, FigureKind
from workflow_scripts.report.figures.results import RESULT_FIGURES
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.figures.style import assign_looks, save_figure, use_house_style
from workflow_scripts.report.runs import agreement
from workflow_scripts.report.runs.csv_files import write_csv
from workflow_scripts.report.runs.run import ListedRun, load, select
from workflow_scripts.report.runs.settings import SettingArtifacts, artifacts_of

FIGURES: dict[str, str | FigureKind] = {**RESULT_FIGURES, **SETTING_FIGURES}


def draw_figure(listed: Sequence[ListedRun], spec: Mapping[str, Any]) -> Drawn:
    """Draw one figure. Call it inside `style.use_house_style()`.

    Args:
        listed: All runs of the study. Their order gives each method its colour.
        spec: `kind` and its settings, as in config/schema/figure.yaml. `of` has the tables of a paper's figure.

    Raises:
        SpecError: The kind or a setting is unknown, a value does not fit, or the settings leave no run.
        ArtifactError: A file is damaged.
    """
    kind = find_figure_kind(spec)
    settings = _check_settings(kind, spec)
    chosen = select(listed, spec)
    if not chosen:
        raise SpecError("the figure names no run")
    if spec["kind"] in SETTING_FIGURES:
        return draw_setting_figure(artifacts_of(chosen), spec)
    runs = load(chosen)
    looks = spec.get("of", {}) if kind.of_a_paper else assign_looks(listed)
    drawn = kind.draw(runs, looks, settings)
    drawn.caption = f"{drawn.caption} {agreement.untrusted_note(agreement.untrusted_datasets(runs))}".rstrip()
    return drawn


def draw_setting_figure(settings: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Draw a figure of settings, as `draw_figure` does, from their artifacts.

    Args:
        settings: The settings' artifacts.
        spec: `kind` and its settings.
    """
    kind = find_figure_kind(spec)
    return kind.draw(settings, _check_settings(kind, spec))


def find_figure_kind(spec: Mapping[str, Any]) -> FigureKind:
    """The kind of a figure. Raises SpecError with the nearest known one."""
    return resolve_kind(spec, FIGURES, "figure")


def _check_settings(kind: FigureKind, spec: Mapping[str, Any]) -> Any:
    fields = {key: value for key, value in spec.items() if key not in ("kind", "of")}
    return check_value(kind.settings, fields, "figure")


def write_figure(listed: Sequence[ListedRun], spec: Mapping[str, Any], prefix: str | Path) -> None:
    """Draw a figure and write its files. The CSV with the drawn data is written last.

    Args:
        listed: All runs of the study.
        spec: As for `draw_figure`, which also documents the exceptions.
        prefix: Path of `prefix`.svg, .png, .pdf and .csv.
    """
    with use_house_style():
        drawn = draw_figure(listed, spec)
        save_figure(drawn, prefix)
    write_csv(f"{prefix}.csv", drawn.frame)

"""Figures of settings, one file per kind. They are drawn from artifacts, so no run is needed."""

__all__ = ["SETTING_FIGURES"]

SETTING_FIGURES: dict[str, str] = {
    "histogram": "workflow_scripts.report.figures.settings.histogram:KIND",
    "transition": "workflow_scripts.report.figures.settings.transition:KIND",
    "clients": "workflow_scripts.report.figures.settings.clients:KIND",
    "samples": "workflow_scripts.report.figures.settings.samples:KIND",
}
"""Kind → its `FigureKind`. Lines are strings, so that one kind's code is no part of the others'."""

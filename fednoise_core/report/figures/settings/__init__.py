"""Figures of settings, one file a kind. They are drawn from artifacts, so no run is needed."""

__all__ = ["SETTING_FIGURES"]

SETTING_FIGURES: dict[str, str] = {
    "histogram": "fednoise_core.report.figures.settings.histogram:KIND",
    "transition": "fednoise_core.report.figures.settings.transition:KIND",
    "clients": "fednoise_core.report.figures.settings.clients:KIND",
    "samples": "fednoise_core.report.figures.settings.samples:KIND",
}
"""Kind → its `FigureKind`. Lines are strings, so that one kind's code is no part of the others'."""

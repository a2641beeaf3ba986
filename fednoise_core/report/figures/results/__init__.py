"""Figures of results, one file a kind. They are drawn from run folders."""

__all__ = ["RESULT_FIGURES"]

RESULT_FIGURES: dict[str, str] = {
    "dots": "fednoise_core.report.figures.results.dots:KIND",
    "curves": "fednoise_core.report.figures.results.curves:KIND",
    "rate": "fednoise_core.report.figures.results.rate:KIND",
    "cost": "fednoise_core.report.figures.results.cost:KIND",
    "paired_gains": "fednoise_core.report.figures.results.paired_gains:KIND",
    "sweep": "fednoise_core.report.figures.results.sweep:KIND",
    "classes": "fednoise_core.report.figures.results.classes:KIND",
    "metric": "fednoise_core.report.figures.results.metric:KIND",
    "scoreboard": "fednoise_core.report.figures.results.scoreboard:KIND",
    "gains": "fednoise_core.report.figures.results.gains:KIND",
}
"""Kind → its `FigureKind`. Lines are strings, so that one kind's code is no part of the others'."""

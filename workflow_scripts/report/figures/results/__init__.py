"""Figures of results, one file per kind. They are drawn from run folders."""

__all__ = ["RESULT_FIGURES"]

RESULT_FIGURES: dict[str, str] = {
    "dots": "workflow_scripts.report.figures.results.dots:KIND",
    "curves": "workflow_scripts.report.figures.results.curves:KIND",
    "cost": "workflow_scripts.report.figures.results.cost:KIND",
    "paired_gains": "workflow_scripts.report.figures.results.paired_gains:KIND",
    "ranks": "workflow_scripts.report.figures.results.ranks:KIND",
    "sweep": "workflow_scripts.report.figures.results.sweep:KIND",
    "classes": "workflow_scripts.report.figures.results.classes:KIND",
    "metric": "workflow_scripts.report.figures.results.metric:KIND",
    "scoreboard": "workflow_scripts.report.figures.results.scoreboard:KIND",
    "gains": "workflow_scripts.report.figures.results.gains:KIND",
}
"""Kind → its `FigureKind`. Lines are strings, so that one kind's code is no part of the others'."""

"""Figures of results: accuracy by method, over work, noise rate, bytes, cost and swept settings; any other metric
over rounds; accuracy by class, and what classes are taken for; a paper's claims and gains. One file a kind.
"""

from __future__ import annotations

__all__ = ["RESULT_FIGURES"]

RESULT_FIGURES: dict[str, str] = {
    "dots": "fednoise_core.report.figures.results.dots:dots",
    "curves": "fednoise_core.report.figures.results.curves:curves",
    "rate": "fednoise_core.report.figures.results.rate:rate",
    "bytes": "fednoise_core.report.figures.results.traffic:traffic",
    "pareto": "fednoise_core.report.figures.results.pareto:pareto",
    "differences": "fednoise_core.report.figures.results.differences:differences",
    "sweep": "fednoise_core.report.figures.results.sweep:sweep",
    "classes": "fednoise_core.report.figures.results.classes:classes",
    "confusion": "fednoise_core.report.figures.results.confusion:confusion",
    "metric": "fednoise_core.report.figures.results.metric:metric",
    "scoreboard": "fednoise_core.report.figures.results.scoreboard:scoreboard",
    "gains": "fednoise_core.report.figures.results.gains:gains",
}
"""Kind (of config/schema/figure.yaml) -> function of the runs, each method's look, and the figure's settings."""

"""Figures of results: accuracy by method, over work, noise rate, bytes, cost and swept settings; any other metric
over rounds; accuracy by class, and what classes are taken for; a paper's claims and gains. One file a kind.
"""

from __future__ import annotations

__all__ = ["RESULT_FIGURES"]

RESULT_FIGURES: dict[str, str] = {
    "dots": "fednoise_core.report.result_figures.dots:dots",
    "curves": "fednoise_core.report.result_figures.curves:curves",
    "rate": "fednoise_core.report.result_figures.rate:rate",
    "bytes": "fednoise_core.report.result_figures.traffic:traffic",
    "pareto": "fednoise_core.report.result_figures.pareto:pareto",
    "differences": "fednoise_core.report.result_figures.differences:differences",
    "sweep": "fednoise_core.report.result_figures.sweep:sweep",
    "classes": "fednoise_core.report.result_figures.classes:classes",
    "confusion": "fednoise_core.report.result_figures.confusion:confusion",
    "metric": "fednoise_core.report.result_figures.metric:metric",
    "scoreboard": "fednoise_core.report.result_figures.scoreboard:scoreboard",
    "gains": "fednoise_core.report.result_figures.gains:gains",
}
"""Kind (of config/schema/figure.yaml) -> function of the runs, each method's look, and the figure's settings."""

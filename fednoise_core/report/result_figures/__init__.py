"""Figures of results: accuracy by method, over work, noise rate, bytes, seconds and swept settings; any other metric
over rounds; accuracy by class, and what classes are taken for; a paper's claims and gains. One file a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fednoise_core.report.result_figures.classes import classes
from fednoise_core.report.result_figures.confusion import confusion
from fednoise_core.report.result_figures.curves import curves
from fednoise_core.report.result_figures.differences import differences
from fednoise_core.report.result_figures.dots import dots
from fednoise_core.report.result_figures.gains import gains
from fednoise_core.report.result_figures.metric import metric
from fednoise_core.report.result_figures.pareto import pareto
from fednoise_core.report.result_figures.prestop import prestop
from fednoise_core.report.result_figures.rate import rate
from fednoise_core.report.result_figures.scoreboard import scoreboard
from fednoise_core.report.result_figures.seconds import seconds
from fednoise_core.report.result_figures.sweep import sweep
from fednoise_core.report.result_figures.traffic import traffic
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import Drawn, Look

__all__ = ["RESULT_FIGURES"]

RESULT_FIGURES: dict[str, Callable[[Sequence[RecordedRun], Mapping[str, Look], Mapping[str, Any]], Drawn]] = {
    "dots": dots,
    "curves": curves,
    "rate": rate,
    "bytes": traffic,
    "seconds": seconds,
    "pareto": pareto,
    "differences": differences,
    "sweep": sweep,
    "prestop": prestop,
    "classes": classes,
    "confusion": confusion,
    "metric": metric,
    "scoreboard": scoreboard,
    "gains": gains,
}
"""Kind (of config/schema/figure.yaml) -> function of the runs, each method's look, and the figure's settings."""

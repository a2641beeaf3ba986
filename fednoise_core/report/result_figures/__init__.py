"""Figures of results: accuracy over work, noise rate, bytes, seconds and swept settings, one file a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fednoise_core.report.result_figures.curves import curves
from fednoise_core.report.result_figures.prestop import prestop
from fednoise_core.report.result_figures.rate import rate
from fednoise_core.report.result_figures.seconds import seconds
from fednoise_core.report.result_figures.sweep import sweep
from fednoise_core.report.result_figures.traffic import traffic
from fednoise_core.report.runs import RecordedRun
from fednoise_core.report.style import Drawn, Look

__all__ = ["RESULT_FIGURES"]

RESULT_FIGURES: dict[str, Callable[[Sequence[RecordedRun], Mapping[str, Look], Mapping[str, Any]], Drawn]] = {
    "curves": curves,
    "rate": rate,
    "bytes": traffic,
    "seconds": seconds,
    "sweep": sweep,
    "prestop": prestop,
}
"""Kind (of config/schema/figure.yaml) -> function of the runs, each method's look, and the figure's settings."""

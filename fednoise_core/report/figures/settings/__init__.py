"""Figures of settings: who holds what, how labels were flipped, how noisy each client is, samples. Drawn from
artifacts; no run is needed. One file a kind.
"""

from __future__ import annotations

__all__ = ["SETTING_FIGURES"]

SETTING_FIGURES: dict[str, str] = {
    "histogram": "fednoise_core.report.figures.settings.histogram:KIND",
    "transition": "fednoise_core.report.figures.settings.transition:KIND",
    "clients": "fednoise_core.report.figures.settings.clients:KIND",
    "samples": "fednoise_core.report.figures.settings.samples:KIND",
}
"""Kind → its `FigureKind`. Lines are strings, so that one kind's code is no part of the others'."""

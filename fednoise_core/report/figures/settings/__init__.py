"""Figures of settings: who holds what, how labels were flipped, how noisy each client is, samples. Drawn from
artifacts; no run is needed. One file a kind.
"""

from __future__ import annotations

__all__ = ["SETTING_FIGURES"]

SETTING_FIGURES: dict[str, str] = {
    "histogram": "fednoise_core.report.figures.settings.histogram:histogram",
    "transition": "fednoise_core.report.figures.settings.transition:transition",
    "clients": "fednoise_core.report.figures.settings.clients:clients",
    "samples": "fednoise_core.report.figures.settings.samples:samples",
}
"""Kind (of config/schema/figure.yaml) -> function of the settings' artifacts and the figure's settings."""

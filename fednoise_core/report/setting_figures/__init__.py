"""Figures of settings: who holds what, how labels were flipped, how noisy each client is, samples. Drawn from
artifacts; no run is needed. One file a kind.
"""

from __future__ import annotations

__all__ = ["SETTING_FIGURES"]

SETTING_FIGURES: dict[str, str] = {
    "histogram": "fednoise_core.report.setting_figures.histogram:histogram",
    "transition": "fednoise_core.report.setting_figures.transition:transition",
    "clients": "fednoise_core.report.setting_figures.clients:clients",
    "samples": "fednoise_core.report.setting_figures.samples:samples",
}
"""Kind (of config/schema/figure.yaml) -> function of the settings' artifacts and the figure's settings."""

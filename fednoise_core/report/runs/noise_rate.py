"""How noisy a run's labels are: the rate that its noise stands for, which the key `rate` need not be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fednoise_core.noise.registry import nominal_rate
from fednoise_core.report.runs.run import RecordedRun

__all__ = ["RATES", "as_told", "noise_rate", "noiseless", "stated_rate"]

RATES: dict[str, tuple[str, float | None]] = {
    "coteaching": ("forget_rate", None),
    "rofl": ("forget_rate", None),
    "fedmixcon": ("noise_rate", 0.4),
}
"""Methods that go by a noise rate: the setting that says it, and its default. They are repeated here, or every table
would be made again when a method's code changes.
"""


def noiseless(spec: Mapping[str, Any]) -> bool:
    """Whether a noise spec leaves every label as it is (the ceiling of a table). A matrix file is not opened: it is no
    input of tables.
    """
    # A nominal rate is 0 for every number of classes or for none, so any number will do.
    return spec.get("kind") == "clean" or (not spec.get("file") and _nominal(spec, 2) == 0)


def stated_rate(run: RecordedRun) -> float | None:
    """The share of wrong labels (0..1) that a run's noise stands for, as oracle methods are told it; None where nobody
    states one (labels given by people).

    The key `rate` of a noise is something else: `semantic` flips that share of some classes only, `inclusive` noise
    draws the right class, too, and `diag: printed` keeps that share.
    """
    return _nominal(run.spec.get("noise", {}), int(run.summary["classes"]))


def noise_rate(run: RecordedRun) -> float | None:
    """The stated rate, or the one that came out where none is stated; None if that is unknown, too."""
    stated = stated_rate(run)
    if stated is not None:
        return stated
    value = run.summary.get("diagnostics", {}).get("noise_rate")
    return None if value is None else float(value)


def as_told(spec: Mapping[str, Any], classes: int) -> bool:
    """Whether the rate that a run's method (`spec` has "method" and "noise") goes by is the one that its noise stands
    for: then it knows in that setting what an oracle is told, however it came by it. A matrix file is not opened.
    """
    key, default = RATES.get(str(spec.get("method", {}).get("name")), ("", None))
    rate, noise = spec.get("method", {}).get(key, default), spec.get("noise", {})
    if not isinstance(rate, int | float) or noise.get("file"):
        return False
    nominal = _nominal(noise, classes)
    return nominal is not None and nominal > 0 and abs(rate - nominal) < 1e-9


def _nominal(spec: Mapping[str, Any], classes: int) -> float | None:
    try:
        return nominal_rate(spec, classes)
    except KeyError:  # no kind, or not the settings that its rule needs: then nothing is stated
        return None

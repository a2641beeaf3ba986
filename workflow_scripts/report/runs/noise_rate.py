"""Noise rate of a run's labels. It may differ from the key `rate` of the noise."""

from collections.abc import Mapping
from typing import Any

from fednoise_core.noise.registry import nominal_rate
from workflow_scripts.report.runs.run import RecordedRun


def is_noiseless(spec: Mapping[str, Any]) -> bool:
    """Return True if a noise leaves every label as it is (the ceiling of a table).

    Args:
        spec: Its settings. A matrix file is not opened, since it is no input of tables.
    """
    # A nominal rate is 0 for every number of classes or for none, so any number will do.
    return not spec.get("file") and _nominal_or_none(spec, 2) == 0


def noise_rate(run: RecordedRun) -> float | None:
    """Return the nominal share of wrong labels of a run's noise, which oracle methods get.

    If the noise has no nominal share (labels given by people), it is the realised share. The key `rate` of a noise can
    have another meaning: `semantic` flips that share of some classes only, `inclusive` noise can also draw the right
    class, and `diag: printed` keeps that share.

    Returns:
        A share (0..1); None if it is unknown.
    """
    stated = _nominal_or_none(run.spec.get("noise", {}), int(run.summary["classes"]))
    value = run.summary.get("diagnostics", {}).get("noise_rate") if stated is None else stated
    return None if value is None else float(value)


def _nominal_or_none(spec: Mapping[str, Any], classes: int) -> float | None:
    try:
        return nominal_rate(spec, classes)
    except KeyError:  # no kind, or the settings for the rule are missing
        return None

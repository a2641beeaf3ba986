"""`sweep` in a method's definition: the variants that it stands for, and whether what compares them can do so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.variants import settings, swept_field, told, variant_id
from workflow_scripts.config_file import Place
from workflow_scripts.runs import PlannedRun

TRAIN = "train."  # begins the name of a swept training setting
LONGEST_ID = 128  # of a variant: a part of paths that file systems and people can take


def variants(name: str, spec: Mapping[str, Any], place: Place) -> dict[str, Mapping[str, Any]]:
    """Id → definition of every variant that the `sweep` of a method asks for, or, without one, of the method itself.

    A variant is an ordinary method with the values in place, and checked as one.
    """
    if "sweep" not in spec:
        return {name: spec}
    rest, sweep = {key: value for key, value in spec.items() if key != "sweep"}, spec["sweep"]
    for field in sweep:
        key = field.removeprefix(TRAIN)
        if key in (rest if key == field else rest.get("train", {})):
            raise (place / "sweep" / field).error(f"{field} has a value beside the sweep: leave it out, or add it here")
    found: dict[str, Mapping[str, Any]] = {}
    label = rest.get("label", name)
    for values in product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        try:
            made = variant_id(name, chosen)
        except SpecError as error:
            raise (place / "sweep").error(str(error)) from error
        if len(made) > LONGEST_ID:
            raise (place / "sweep").error(f"{made} is longer than {LONGEST_ID} letters")
        shown = f"{label}, {told(settings(made))}" if isinstance(label, str) else label
        found[made] = {**_with(rest, chosen), "label": shown}
    return found


def _with(spec: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A method's definition with the swept values in place: `train.lr` goes under its `train`."""
    train = {field.removeprefix(TRAIN): value for field, value in chosen.items() if field.startswith(TRAIN)}
    own = {field: value for field, value in chosen.items() if not field.startswith(TRAIN)}
    return {**spec, **own, **({"train": {**spec.get("train", {}), **train}} if train else {})}


def check_shown(spec: Mapping[str, Any], runs: Sequence[PlannedRun], place: Place) -> None:
    """Whether a figure that compares variants has some. Raises SpecError, before anything is trained."""
    if spec["kind"] == "sweep":
        try:
            swept_field([run.method for run in runs], spec.get("field"))
        except SpecError as error:
            raise place.error(str(error)) from error

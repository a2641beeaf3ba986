"""Checks of a data set's settings, so that a wrong one is named before any file is opened. Needs numpy only.

A reader names its settings in `SETTINGS`: key -> check(value, where), which raises SpecError. COMMON are those of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fednoise_core.arguments import yes_no
from fednoise_core.io import SpecError
from fednoise_core.params import integer, nearest, number

__all__ = ["COMMON", "Check", "among", "check", "holdout", "size", "text", "whole", "yes_no"]

Check = Callable[[Any, str], object]


def whole(low: int) -> Check:
    """Whole numbers from `low` on."""
    return lambda value, where: integer(value, where, low)


def among(*options: Any) -> Check:
    """One of these values."""

    def check(value: Any, where: str) -> None:
        if value not in options or isinstance(value, bool):
            raise SpecError(f"{where}: {value!r} is none of {', '.join(map(str, options))}")

    return check


def text(value: Any, where: str) -> None:
    """A text that is not empty, such as a path."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise SpecError(f"{where}: {value!r}: a text is needed")


def size(value: Any, where: str) -> None:
    """The side of an image in pixels, or [height, width]."""
    if isinstance(value, list | tuple) and len(value) != 2:
        raise SpecError(f"{where}: {value!r}: a number, or [height, width], is needed")
    for side in value if isinstance(value, list | tuple) else [value]:
        integer(side, where, 1)


def holdout(value: Any, where: str) -> None:
    """{holdout: share}: the share of the training samples that stands in for a test set."""
    if not isinstance(value, Mapping) or set(value) != {"holdout"}:
        raise SpecError(f"{where}: {value!r} is no mapping like {{holdout: 0.2}}")
    number(value["holdout"], f"{where}: holdout", 0, 1, open_low=True, open_high=True)


def _public(value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        integer(value, where, 0)
        return
    _keys(value, {"dataset": text, "n": whole(1)}, where)
    for key in ("dataset", "n"):
        if key not in value:
            raise SpecError(f"{where}: {key}: required")


def _subset(value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        raise SpecError(f"{where}: {value!r} is no mapping like {{train: 1000, test: 200}}")
    _keys(value, {"train": whole(1), "test": whole(1)}, where)


def _channels(low: float, *, open_low: bool = False) -> Check:
    """A number per channel, at most three."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list | tuple) or not value:
            raise SpecError(f"{where}: {value!r}: a list with a number per channel is needed")
        for one in value:
            number(one, where, low, float("inf"), open_low=open_low, open_high=True)

    return check


COMMON: dict[str, Check] = {
    "public": _public,
    "subset": _subset,
    "split_seed": whole(0),
    "mean": _channels(float("-inf"), open_low=True),
    "std": _channels(0, open_low=True),
}


def check(spec: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    """Raise SpecError unless every setting of `spec` is in COMMON or `known` (its reader's own) and passes its check.

    The message names the wrong key, or the nearest known one.
    """
    settings = {key: value for key, value in spec.items() if key != "source"}
    _keys(settings, {**known, **COMMON}, f"dataset {spec['source']}")


def _keys(values: Mapping[str, Any], known: Mapping[str, Check], where: str) -> None:
    for key, value in values.items():
        if key not in known:
            raise SpecError(f"{where}: {key}: unknown setting{nearest(str(key), known)}")
        known[key](value, f"{where}: {key}")

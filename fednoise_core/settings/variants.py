"""Names of the variants that a `sweep` makes of one method: `fedprox@mu=0.1`, `fedprox@mu=0.1@train.lr=0.05`.

A variant's id is a part of paths. No other id may hold an `@`, so that the id alone says which method and which values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fednoise_core.io import SpecError

__all__ = ["family", "position", "settings", "swept_field", "told", "variant_id", "without"]

MARK = "@"
WORD = re.compile(r"[A-Za-z0-9._+-]{1,32}\Z")


def variant_id(method: str, values: Mapping[str, Any]) -> str:
    """The id of the variant of `method` with these values. Raises SpecError for a value that no path could hold."""
    return MARK.join([method, *(f"{field}={_written(value)}" for field, value in values.items())])


def family(method: str) -> str:
    """The id of the method whose variant it is; of any other method its own."""
    return method.split(MARK)[0]


def settings(method: str) -> dict[str, str]:
    """Swept field -> its value as the id writes it; nothing for a method that is no variant."""
    return dict(part.split("=", 1) for part in method.split(MARK)[1:])


def position(names: Sequence[Any], value: Any) -> int | None:
    """The place of an id in a list that may name it, or the method whose variant it is; None: the list does not."""
    whole = family(value) if isinstance(value, str) else value
    return next((names.index(one) for one in (value, whole) if one in names), None)


def told(values: Mapping[str, str]) -> str:
    """Values in words, for labels: "mu 0.1, weighting uniform", "lr 0.1" for `train.lr`."""
    return ", ".join(f"{field.removeprefix('train.').replace('_', ' ')} {value}" for field, value in values.items())


def without(label: str, method: str) -> str:
    """The label of a variant's method: the variant's without the words of its values."""
    words = told(settings(method))
    return label.removesuffix(f", {words}") if words else label


def swept_field(methods: Iterable[str], asked: str | None = None) -> str:
    """The field that a figure of these methods shows: the one asked for, else the only one.

    Raises SpecError if no method is a variant by it, or if there are several to choose from.
    """
    fields = list(dict.fromkeys(field for method in methods for field in settings(method)))
    if not fields:
        raise SpecError("none of its methods has a `sweep`")
    if asked is not None and asked not in fields:
        raise SpecError(f"no method sweeps {asked!r}; swept: {', '.join(fields)}")
    if asked is None and len(fields) > 1:
        raise SpecError(f"its methods sweep {', '.join(fields)}: say which by `field`")
    return asked or fields[0]


def _written(value: Any) -> str:
    """A value in a path: numbers in the shortest way that is exact, so that 1 and 1.0 are one variant."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return repr(float(value)).removesuffix(".0") if abs(value) < 1e15 else repr(value)
    if isinstance(value, str) and WORD.match(value):
        return value
    raise SpecError(f"{str(value)[:40]!r} can stand in no path: a sweep takes numbers, true, false, null, and words")

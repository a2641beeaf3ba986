"""Ids of the variants that a `sweep` makes of one method, such as `fedprox@mu=0.1@train.lr=0.05`.

The id of a variant is part of paths. No other id may contain `@`, so method and values can be read from the id.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fednoise_core.io import SpecError

MARK = "@"
NOISE_RATE = "noise.rate"  # on the axis of a figure: the share of wrong labels
WORD = re.compile(r"[A-Za-z0-9._+-]{1,32}\Z")


def variant_id(method: str, values: Mapping[str, Any]) -> str:
    """Id of a variant.

    Args:
        method: Id of the method.
        values: Values by swept field.

    Returns:
        An id such as `fedprox@mu=0.1`.

    Raises:
        SpecError: A value cannot be part of a path.
    """
    return MARK.join([method, *(f"{field}={_path_value(value)}" for field, value in values.items())])


def base_method(method: str) -> str:
    """Id of the method that a variant belongs to.

    Args:
        method: Id of a variant or method.

    Returns:
        The part before the first `@`.
    """
    return method.split(MARK)[0]


def parse_settings(method: str) -> dict[str, str]:
    """Swept values of a variant's id.

    Args:
        method: Id of a variant or method.

    Returns:
        Values by swept field, as texts. It is empty for a method that is not a variant.
    """
    return dict(part.split("=", 1) for part in method.split(MARK)[1:])


def index_of(names: Sequence[Any], value: Any) -> int | None:
    """Find an id in a list. The list may contain the id itself, or the method that it is a variant of.

    Args:
        names: Ids and other values.
        value: Id to find.

    Returns:
        Its position, or None if it is not in the list.
    """
    method = base_method(value) if isinstance(value, str) else value
    return next((names.index(name) for name in (value, method) if name in names), None)


def format_settings(values: Mapping[str, str]) -> str:
    """Swept values as a part of a label.

    Args:
        values: Values by swept field.

    Returns:
        Text such as "mu 0.1, weighting uniform". `train.lr` is "lr", and `train.net.width` is "width".
    """
    return ", ".join(f"{field.rpartition('.')[2].replace('_', ' ')} {value}" for field, value in values.items())


def strip_settings(label: str, method: str) -> str:
    """Label of the method that a variant belongs to.

    Args:
        label: Label of the variant.
        method: Id of the variant.

    Returns:
        The label without the swept values.
    """
    text = format_settings(parse_settings(method))
    return label.removesuffix(f", {text}") if text else label


def swept_field(methods: Sequence[str], asked: str | None = None) -> str:
    """Field on the axis of a figure.

    Args:
        methods: Ids of the methods that it shows.
        asked: Field that the figure's settings name.

    Returns:
        The field that was asked for, else the only one.

    Raises:
        SpecError: No method is a variant by this field, all variants have the same value, or the field is ambiguous.
    """
    if asked == NOISE_RATE:
        return asked
    fields = list(dict.fromkeys(field for method in methods for field in parse_settings(method)))
    if not fields:
        raise SpecError("expected a method with a `sweep`, got none")
    if asked is not None and asked not in fields:
        raise SpecError(f"no method sweeps {asked!r}; swept: {', '.join(fields)}")
    if asked is None and len(fields) > 1:
        raise SpecError(f"its methods sweep {', '.join(fields)}; choose one by `field`")
    field = asked or fields[0]
    if len({dict(parse_settings(method)).get(field) for method in methods} - {None}) < 2:
        raise SpecError(f"expected methods with two values of {field!r} or more, got one")
    return field


def _path_value(value: Any) -> str:
    """Write a value as part of a path. Numbers have their shortest exact form, so 1 and 1.0 are the same variant."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return repr(float(value)).removesuffix(".0") if abs(value) < 1e15 else repr(value)
    if isinstance(value, str) and WORD.match(value):
        return value
    raise SpecError(f"{str(value)[:40]!r} cannot be part of a path; a sweep takes numbers, true, false, null and words")

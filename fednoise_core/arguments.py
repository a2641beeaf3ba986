"""Arguments of the Python interface: a wrong one is one error that names it and says what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import JsonValue

from fednoise_core.params import integer
from fednoise_core.settings import check

__all__ = ["expect", "seed_of", "spec_of"]

SEEDS = 1 << 63  # a seed goes into files as a 64-bit integer


def expect(value: Any, kind: type | tuple[type, ...], name: str, cure: str) -> None:
    """Raise TypeError `name: a list, but …` with the `cure` unless `value` is of a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: got {_called(value)}; {cure}")


def seed_of(seed: Any, name: str = "seed") -> int:
    """`seed` as an int. Raises SpecError for anything but a whole number in 0..2⁶³-1."""
    return integer(seed, name, 0, SEEDS - 1)


def spec_of(value: Any, key: str, name: str) -> dict[str, Any]:
    """The settings of `{key: …, settings…}`, or of a bare name, which stands for `{key: name}`; always a new dict.

    Settings stand in the result files: raises SpecError for what JSON cannot hold, TypeError for another type.
    """
    expect(value, (str, Mapping), name, f'pass a name, or a mapping like {{"{key}": …}}')
    return check(dict[str, JsonValue], {key: value} if isinstance(value, str) else value, name)


def _called(value: Any) -> str:
    """A value's type and, where it helps, its content, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {list(value.shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '…'}"

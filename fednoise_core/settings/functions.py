"""Functions with settings, chosen by the `kind` of a spec (noise models, partitions); arguments of the Python
interface; exact shares. No torch here."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, TypeVar, cast

import numpy as np
from pydantic import Field, JsonValue

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import check, model_of, nearest

__all__ = [
    "bind",
    "described",
    "expect",
    "integer",
    "largest_remainder",
    "nearest",
    "number",
    "resolve",
    "seed_of",
    "spec_of",
]

F = TypeVar("F", bound=Callable[..., Any])
SEEDS = 1 << 63  # a seed goes into files as a 64-bit integer


def described(*, example: Mapping[str, Any], **facts: Any) -> Callable[[F], F]:
    """Decorator of functions with settings (keyword-only parameters): a call checks them.

    example: settings for the one-line example on the reference page. facts: further things that config/schema says.
    """

    def decorate(function: F) -> F:
        model = model_of(function)

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            settings = {key: given.pop(key) for key in list(given) if key in model.model_fields}
            return function(*args, **given, **dict(check(model, settings, function.__name__)))

        checked.example, checked.facts = dict(example), facts  # type: ignore[attr-defined]
        return cast("F", checked)

    return decorate


def resolve(spec: Mapping[str, Any], registry: Mapping[str, str | Callable[..., Any]], what: str) -> Callable[..., Any]:
    """The function that a spec's `kind` names: itself, or imported from "module:name".

    Raises SpecError with the nearest known kind.
    """
    kind = spec.get("kind")
    if not isinstance(kind, str) or kind not in registry:
        raise SpecError(f"{what}.kind: {kind!r} is unknown{nearest(str(kind), registry)}")
    found = registry[kind]
    if isinstance(found, str):
        module, name = found.split(":")
        return getattr(import_module(module), name)
    return found


def bind(
    spec: Mapping[str, Any], registry: Mapping[str, str | Callable[..., Any]], what: str, *shared: type
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Function and settings of a spec, checked, with defaults. shared: dataclasses of settings beside the function's.

    Raises SpecError for an unknown kind or key (with the nearest known one), a value that does not fit and a missing
    required key.
    """
    function = resolve(spec, registry, what)
    given = {key: value for key, value in spec.items() if key != "kind"}
    return function, dict(check(model_of(function, *shared), given, what))


def number(value: Any, name: str, low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> float:
    """`value` as a finite float in a range that depends on the data. Raises SpecError otherwise."""
    ends = {"gt" if open_low else "ge": low, "lt" if open_high else "le": high}
    finite: dict[str, Any] = {end: limit for end, limit in ends.items() if math.isfinite(limit)}
    return check(Annotated[float, Field(**finite)], value, name)


def integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high], which depends on the data. Raises SpecError otherwise."""
    return check(Annotated[int, Field(ge=low, le=high)], value, name)


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


def largest_remainder(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole counts [k] (int64) that sum to `total` exactly and differ from `shares / sum(shares) * total` by less than
    1.

    Ties go to the lower position.
    """
    quota = np.asarray(shares, dtype=np.float64)
    if (mass := quota.sum()) <= 0:
        raise ValueError("shares must have a positive sum")
    quota = quota / mass * total
    counts = np.floor(quota + 1e-9).astype(np.int64)  # 1e-9: 0.3 * 10 is 3, not 2.9999…
    missing = total - int(counts.sum())
    if missing > 0:
        counts[np.argsort(counts - quota, kind="stable")[:missing]] += 1
    elif missing < 0:  # only possible through the 1e-9
        counts[np.argsort(quota - counts, kind="stable")[:-missing]] -= 1
    return counts

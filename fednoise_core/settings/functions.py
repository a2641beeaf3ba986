"""Functions with settings, checks of arguments of the Python interface, and exact shares. Does not import torch.

A spec selects a function by its `kind`. Noise models and partitions are such functions.
"""

import functools
import math
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, TypeVar, cast

import numpy as np
from pydantic import Field, JsonValue

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import check_value, did_you_mean, model_of

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
SEEDS = 1 << 63  # a seed goes into files as a 64-bit integer


def with_settings(*, example: Mapping[str, Any], display_name: str = "", **facts: Any) -> Callable[[F], F]:
    """Make a function check its settings, which are its keyword-only parameters, at each call.

    Args:
        example: Settings for the example on the reference page.
        display_name: The name in tables and figures. Without one they show the registered name.
        **facts: Further facts for config/schema.

    Returns:
        A decorator.
    """

    def decorate(function: F) -> F:
        model = model_of(function)

        @functools.wraps(function)
        def call_checked(*args: Any, **arguments: Any) -> Any:
            settings = {key: arguments.pop(key) for key in list(arguments) if key in model.model_fields}
            return function(*args, **arguments, **dict(check_value(model, settings, function.__name__)))

        vars(call_checked).update(example=dict(example), display_name=display_name, facts=facts)
        return cast("F", call_checked)

    return decorate


def import_named(where: str, place: str) -> Any:
    """Import a function or class by its name.

    Args:
        where: "module:name".
        place: Beginning of the message, such as `train.net.factory`.

    Returns:
        The function or class.

    Raises:
        SpecError: It cannot be imported, for any reason.
    """
    module, _, name = where.partition(":")
    if not module or not name:
        raise SpecError(f"{place}: {where!r}: expected module:name, such as mynets:make")
    try:
        return getattr(sys.modules.get(module) or import_module(module), name)
    except (Exception, SystemExit) as error:
        raise SpecError(f"{place}: {where!r}: {type(error).__name__}: {error}") from error


def resolve_kind(
    spec: Mapping[str, Any], registry: Mapping[str, str | K], place: str, key: str = "kind", decorator: str = ""
) -> K:
    """Find the function, class or object that a spec names.

    Args:
        spec: Settings with the key `key`.
        registry: Functions and classes by name, or "module:name" to import.
        place: Beginning of the message, such as `noise`.
        key: The key that names it.
        decorator: Decorator of a function of the user's own, "module:name", which is imported. "": registered names
            only, as for every spec that comes from a file of results.

    Returns:
        The function or class.

    Raises:
        SpecError: The kind is unknown, or the user's own function is not decorated. The message names the nearest known
            kind.
    """
    kind = spec.get(key)
    if decorator and isinstance(kind, str) and ":" in kind:
        own = import_named(kind, f"{place}.{key}")
        if getattr(own, "decorator", None) != decorator:
            raise SpecError(f"{place}.{key}: {kind!r}: write @{decorator}(…) above the function")
        return own
    if not isinstance(kind, str) or kind not in registry:
        raise SpecError(
            f"{place}.{key}: unknown {place.rpartition('.')[2]} {kind!r}{did_you_mean(str(kind), registry)}"
        )
    entry = registry[kind]
    return import_named(entry, place) if isinstance(entry, str) else entry


def parse_spec(
    spec: Mapping[str, Any], registry: Mapping[str, str | Callable[..., Any]], place: str, *shared: type, decorator: str
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Find the function of a spec and check its settings.

    Args:
        spec: Settings with the key `kind`.
        registry: Functions by kind, or "module:name" to import.
        place: Beginning of the message, such as `noise`.
        *shared: Dataclasses whose settings the spec may hold beside those of the function.
        decorator: Decorator of the user's own functions.

    Returns:
        The function, and its settings with defaults.

    Raises:
        SpecError: The kind or a key is unknown, a required key is missing, or a value does not fit.
    """
    function = resolve_kind(spec, registry, place, decorator=decorator)
    values = {key: value for key, value in spec.items() if key != "kind"}
    return function, dict(check_value(model_of(function, *shared), values, place))


def check_float(
    value: Any, name: str, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> float:
    """Check a number whose range depends on the data.

    Args:
        value: Number to check.
        name: Beginning of the message.
        low: Smallest value.
        high: Largest value.
        open_low: Whether `low` itself is refused.
        open_high: Whether `high` itself is refused.

    Returns:
        `value` as a float.

    Raises:
        SpecError: It is not a finite number in this range.
    """
    ends = {"gt" if open_low else "ge": low, "lt" if open_high else "le": high}
    finite: dict[str, Any] = {end: limit for end, limit in ends.items() if math.isfinite(limit)}
    return check_value(Annotated[float, Field(**finite)], value, name)


def check_int(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Check a whole number whose range depends on the data.

    Args:
        value: Number to check.
        name: Beginning of the message.
        low: Smallest value.
        high: Largest value, if there is one.

    Returns:
        `value` as an int.

    Raises:
        SpecError: It is not a whole number in this range.
    """
    return check_value(Annotated[int, Field(ge=low, le=high)], value, name)


def expect_type(value: Any, kind: type | tuple[type, ...], name: str, cure: str) -> None:
    """Check the type of an argument of the Python interface.

    Args:
        value: The argument.
        kind: Types that are allowed.
        name: Name of the argument.
        cure: What to pass instead.

    Raises:
        TypeError: `name: got …; cure`.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name}: got {_describe_value(value)}; {cure}")


def seed_of(seed: Any, name: str = "seed") -> int:
    """Check a seed.

    Args:
        seed: Number to check.
        name: Beginning of the message.

    Returns:
        `seed` as an int.

    Raises:
        SpecError: It is not a whole number in 0..2⁶³-1.
    """
    return check_int(seed, name, 0, SEEDS - 1)


def spec_of(value: Any, key: str, name: str) -> dict[str, Any]:
    """Settings in their long form.

    Args:
        value: `{key: …, settings…}`, or a bare name, which stands for `{key: name}`.
        key: Key of the name.
        name: Beginning of the message.

    Returns:
        A new dict.

    Raises:
        SpecError: A value cannot be stored as JSON. Settings are part of the result files.
        TypeError: `value` is neither a name nor a mapping.
    """
    expect_type(value, (str, Mapping), name, f'pass a name, or a mapping like {{"{key}": …}}')
    return check_value(dict[str, JsonValue], {key: value} if isinstance(value, str) else value, name)


def _describe_value(value: Any) -> str:
    """Describe the type of a value in a few words, and its content if it helps."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {list(value.shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '…'}"


def largest_remainder(shares: np.ndarray, total: int) -> np.ndarray:
    """Round shares to whole counts with an exact sum (largest remainder method). Ties go to the lower position.

    Args:
        shares: Numbers [k] with a positive sum.
        total: Sum of the counts.

    Returns:
        Counts int64 [k]. They differ from `shares / sum(shares) * total` by less than 1.

    Raises:
        ValueError: The shares do not have a positive sum.
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

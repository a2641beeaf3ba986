"""Training settings of a run, and a method's fields: parsed, checked, defaults filled in. No torch here."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fednoise_core.io import SpecError

__all__ = ["Train", "check", "parse", "stage"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Train:
    """How every client trains. A method reads it as `self.train`; methods.md 1.1 has the symbols.

    net: a net's name, a dict {name, options…}, or a list of these that clients take in turn (client c gets net[c %
    len]). last_batch: "short" keeps the smaller last batch, "drop" leaves it out (never a client's only one), "wrap"
    fills it up from the same client's epoch. sampling: cohorts are "keyed" to seed and round, or "continued" from the
    generator that drew the labels (FedEFC's code).
    """

    net: Any = "small_cnn"
    rounds: int = 100  # R
    fraction: float = 0.1  # lambda, of all clients per round
    sampling: str = "keyed"
    epochs: int = 5  # E
    batch: int = 32  # B
    lr: float = 0.05  # eta_l
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0  # gradient norm, 0 = off
    optimiser: str = "sgd"
    last_batch: str = "short"
    augment: Any = "none"
    precision: str = "fp32"
    eval_every: int = 1
    eval_batch: int = 1000

    def __post_init__(self) -> None:
        check("train", "rounds", self.rounds, low=1)
        check("train", "fraction", self.fraction, low=0, high=1, open_low=True)
        check("train", "sampling", self.sampling, among=("keyed", "continued"))
        check("train", "epochs", self.epochs, low=1)
        check("train", "batch", self.batch, low=1)
        check("train", "lr", self.lr, low=0)
        check("train", "momentum", self.momentum, low=0, high=1, open_high=True)
        check("train", "weight_decay", self.weight_decay, low=0)
        check("train", "clip", self.clip, low=0)
        check("train", "eval_every", self.eval_every, low=1)
        check("train", "eval_batch", self.eval_batch, low=1)
        check("train", "optimiser", self.optimiser, among=("sgd", "adam"))
        check("train", "last_batch", self.last_batch, among=("short", "drop", "wrap"))
        check("train", "precision", self.precision, among=("fp32", "tf32", "bf16"))


def check(
    place: str,
    key: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    open_high: bool = False,
    among: tuple[Any, ...] | None = None,
) -> None:
    """Raise SpecError naming `place.key` unless `value` lies in the range (or among the given values)."""
    if among is not None:
        if value not in among:
            raise SpecError(f"{place}.{key}: {value!r} is not one of {', '.join(map(repr, among))}")
        return
    below = low is not None and (value <= low if open_low else value < low)
    above = high is not None and (value >= high if open_high else value > high)
    if below or above or value != value:
        left = "" if low is None else f"{low} {'<' if open_low else '<='} "
        right = "" if high is None else f" {'<' if open_high else '<='} {high}"
        raise SpecError(f"{place}.{key}: {value!r} is out of range ({left}{key}{right})")


def parse(cls: type[T], values: Mapping[str, Any], place: str, **fixed: Any) -> T:
    """Build a dataclass from plain values. Unknown keys and wrong types raise SpecError naming place, key and the
    nearest known key.
    """
    known = {f.name: f for f in dataclasses.fields(cls) if f.init and f.name not in fixed}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    ready: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known)) or 'none'}"
            raise SpecError(f"{place}.{key}: unknown key{hint}")
        ready[key] = _typed(hints[key], value, f"{place}.{key}")
    for name, field in known.items():
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SpecError(f"{place}.{name}: missing; it has no default")
    return cls(**ready, **fixed)


def _typed(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for option in options:
        if option is Any or (option is type(None) and value is None):
            return value
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if option is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if option in (bool, str) and isinstance(value, option):
            return value
        origin = typing.get_origin(option) or option
        if origin in (list, dict, tuple) and isinstance(value, list | dict | tuple):
            return value
    names = " or ".join(getattr(o, "__name__", str(o)) for o in options)
    raise SpecError(f"{where}: {value!r} is of type {type(value).__name__}, expected {names}")


def stage(rounds: int, share: float, at_least: int = 1) -> int:
    """A source's absolute round number, given as a share of its R, in a run of `rounds` rounds (methods.md 5.0,
    phases).
    """
    return max(at_least, int(rounds * share + 0.5))

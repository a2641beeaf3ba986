"""Settings: stated once, where they are used, and checked, told and listed from there. Standard library only.

    mu: Annotated[float, at_least(0), "Weight of the proximal term."] = 0.01

A field of a dataclass, or a keyword-only parameter of a function, is a setting if its annotation holds a sentence. The
type, bounds, default and sentence make the check and its message, config/schema (`python -m workflow_scripts.schema`),
docs/reference.md, and what `help()` says. Types: float, int, bool, str, None, Literal[…], list[…], dict[str, …], a
dataclass of settings, unions of these; Any for what is checked elsewhere. Numbers are finite, always.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar

from fednoise_core.io import SpecError

__all__ = [
    "REQUIRED",
    "DeclaredSetting",
    "Rounds",
    "Share",
    "above",
    "at_least",
    "at_most",
    "below",
    "default_of",
    "json_schema",
    "nearest",
    "or_word",
    "parse",
    "settings_of",
    "summary",
    "unknown",
    "with_settings",
    "without",
]

T = TypeVar("T")
REQUIRED: Any = inspect.Parameter.empty  # stands for the default of a setting that has none
_NO = object()  # a value of another type
_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", type(None): "null"}
_WORDS |= {list: "a list", Any: "anything"}
_COMPARE = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Bound:
    """One end of a range: `value <sign> limit` holds."""

    sign: str
    limit: float


def at_least(limit: float) -> Bound:
    """value >= limit."""
    return Bound(">=", limit)


def above(limit: float) -> Bound:
    """value > limit."""
    return Bound(">", limit)


def at_most(limit: float) -> Bound:
    """value <= limit."""
    return Bound("<=", limit)


def below(limit: float) -> Bound:
    """value < limit."""
    return Bound("<", limit)


Share = Annotated[float, at_least(0), at_most(1)]  # of a whole
# a stretch of rounds: so many, or a share of the run's (`spec.stage`). 1.0 is refused: one round, or all?
Rounds = Annotated[int, at_least(0)] | Annotated[float, above(0), below(1)]


@dataclass(frozen=True)
class or_word:
    """A word that a config file may hold instead of the value; the workflow replaces it before anything is made."""

    word: str


class json_schema(dict[str, Any]):
    """Further keywords of the setting's JSON schema, such as minItems; they bind config files only."""


@dataclass(frozen=True)
class DeclaredSetting:
    """One setting. `hint`: its type; `default` is REQUIRED if it has none."""

    name: str
    hint: Any
    sentence: str = ""
    default: Any = REQUIRED
    bounds: tuple[Bound, ...] = ()
    words: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, annotation: Any, default: Any = REQUIRED) -> DeclaredSetting:
        """The setting that an evaluated annotation declares; its last text is the sentence, "" if there is none."""
        told = getattr(annotation, "__metadata__", ())
        return cls(
            name,
            annotation.__origin__ if told else annotation,
            next((one for one in reversed(told) if isinstance(one, str)), ""),
            default,
            tuple(one for one in told if isinstance(one, Bound)),
            tuple(one.word for one in told if isinstance(one, or_word)),
            {key: value for one in told if isinstance(one, json_schema) for key, value in one.items()},
        )

    def check(self, value: Any, where: str) -> Any:
        """`value` in the setting's type (an int given for a float becomes one).

        Raises SpecError, beginning with `where`, if it has another type, is not finite or is out of range.
        """
        taken = _taken(self.hint, value, where)
        if taken is _NO:
            raise SpecError(f"{where}: {value!r} is not {_words(self.hint)}")
        if isinstance(taken, int | float) and not isinstance(taken, bool):
            if isinstance(taken, float) and not math.isfinite(taken):
                raise SpecError(f"{where}: {taken} is no finite number")
            for bound in self.bounds:
                if not _COMPARE[bound.sign](taken, bound.limit):
                    told = f"is outside {self.range}"
                    if isinstance(taken, int):
                        told = f"is {'below' if bound.sign[0] == '>' else 'above'} {bound.limit:g}"
                    raise SpecError(f"{where}: {value!r} {told}")
        return taken

    @property
    def range(self) -> str:
        """The bounds as an interval, such as `[0, 1)`."""
        ends = {bound.sign[0]: f"{bound.limit:g}" for bound in self.bounds}
        signs = {bound.sign for bound in self.bounds}
        left, right = "[" if ">=" in signs else "(", "]" if "<=" in signs else ")"
        return f"{left}{ends.get('>', '-inf')}, {ends.get('<', 'inf')}{right}"


def _taken(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint` has it; _NO if it is of another."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if hint in (bool, str, type(None)):
        return value if isinstance(value, hint) else _NO
    if hint is int:
        return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else _NO
    if hint is float:
        return _float(value) if isinstance(value, Real) and not isinstance(value, bool) else _NO
    if origin is typing.Literal:
        return _one_of(parts, value, where)
    if origin is Annotated:  # one of several types, with bounds of its own
        fits = _taken(parts[0], value, where) is not _NO
        return DeclaredSetting.of("", hint).check(value, where) if fits else _NO
    if origin in (typing.Union, types.UnionType):
        for part in sorted(parts, key=lambda part: typing.get_origin(part) is typing.Literal):  # its message is final
            if (taken := _taken(part, value, where)) is not _NO:
                return taken
        return _NO
    if origin is list:
        items = value.tolist() if hasattr(value, "tolist") else value
        fits = isinstance(items, list | tuple)
        return [_part(parts[0], one, f"{where}[{number}]") for number, one in enumerate(items)] if fits else _NO
    if origin is dict:
        fits = isinstance(value, Mapping)
        return {key: _part(parts[1], one, f"{where}.{key}") for key, one in value.items()} if fits else _NO
    if _has_settings(hint):
        return parse(hint, value, where) if isinstance(value, Mapping) else value if isinstance(value, hint) else _NO
    raise TypeError(f"{where}: {hint!r} is no type that a setting can have (see fednoise_core.settings)")


def _float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:  # an int with more than 308 digits
        return math.inf


def _part(hint: Any, value: Any, where: str) -> Any:
    """An element of a list or a mapping, checked as a setting of its own."""
    return DeclaredSetting.of("", hint).check(value, where)


def _one_of(options: tuple[Any, ...], value: Any, where: str) -> Any:
    for option in options if isinstance(value, str | int | float | None) else ():  # an array equals nothing in one word
        if value == option and isinstance(value, bool) == isinstance(option, bool):
            return option
    near = nearest(value, options, or_all=False) if isinstance(value, str) else ""
    raise SpecError(f"{where}: {value!r} is not one of {', '.join(map(repr, options))}{near}")


def _words(hint: Any) -> str:
    """A type in words, for messages."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_words, parts))
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin is Annotated:
        return _words(parts[0]) + _in_range(DeclaredSetting.of("", hint))
    return _WORDS.get(origin or hint, "a mapping")


def _has_settings(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)


def settings_of(owner: Any) -> Mapping[str, DeclaredSetting]:
    """The settings of a dataclass (those of its bases first), or of a function: name → DeclaredSetting.

    What has no sentence is no setting: it is handed over by the caller.
    """
    return _found(owner)


@functools.cache
def _found(owner: Any) -> Mapping[str, DeclaredSetting]:
    hints = typing.get_type_hints(owner, include_extras=True)
    if _has_settings(owner):
        fields = [one for one in dataclasses.fields(owner) if one.init and one.name not in without(owner)]
        defaults = {one.name: default_of(one) for one in fields}
    else:
        parameters = inspect.signature(owner).parameters.values()
        defaults = {one.name: one.default for one in parameters}
    found = (DeclaredSetting.of(name, hints[name], default) for name, default in defaults.items() if name in hints)
    return types.MappingProxyType({one.name: one for one in found if one.sentence})


def default_of(one: dataclasses.Field[Any]) -> Any:
    """The default of a field, REQUIRED if it has none."""
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return REQUIRED if one.default is dataclasses.MISSING else one.default


def without(cls: type) -> dict[str, type]:
    """Inherited settings that a class drops (its `without`, see spec.Checked) → the class that says so."""
    gone: dict[str, type] = {}
    for base in reversed(cls.__mro__):
        gone = {name: at for name, at in gone.items() if name not in inspect.get_annotations(base)}
        gone |= dict.fromkeys(vars(base).get("without", ()), base)
    return gone


def parse(cls: type[T], values: Mapping[str, Any], place: str, **handed: Any) -> T:
    """Build a dataclass from plain values and what is `handed` over beside them. SpecError names place, key and the
    nearest known key for unknown and missing keys and for values that do not fit.
    """
    known = settings_of(cls)
    for key in values:
        if key not in known:
            raise SpecError(f"{place}.{key}: {unknown(cls, key)}")
    ready = {key: known[key].check(value, f"{place}.{key}") for key, value in values.items()}
    for name, one in known.items():
        if name not in values and one.default is REQUIRED:
            raise SpecError(f"{place}.{name}: missing; it has no default")
    return cls(**ready, **handed)


def unknown(cls: type, key: str) -> str:
    """What is wrong with a key that is no setting of `cls`, in words."""
    if key in without(cls):
        return f"unknown key: it does nothing in {cls.__name__}, so it is no setting there"
    if key in getattr(cls, "__dataclass_fields__", {}):
        return "unknown key: the field has no sentence, so it is no setting (see fednoise_core.settings)"
    return f"unknown key{nearest(key, settings_of(cls))}"


def nearest(word: object, known: Iterable[object], *, or_all: bool = True) -> str:
    """The words "; did you mean 'x'?", or, if none is near and `or_all`, "; known: …"."""
    from difflib import get_close_matches

    words = sorted(str(item) for item in known)
    near = get_close_matches(str(word), words, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(words) or 'none'}" if or_all else ""


def with_settings(text: str | None, owner: Any) -> str:
    """A docstring followed by the settings of `owner`."""
    text = inspect.cleandoc(text or "")
    told = [f"{one.name}: {_words(one.hint)}{_told(one)}. {one.sentence}" for one in settings_of(owner).values()]
    return "\n".join([text, "", "Settings", *(f"    {line}" for line in told)]) if told else text


def _told(one: DeclaredSetting) -> str:
    ranged = _in_range(one)
    return f"{ranged}, required" if one.default is REQUIRED else f"{ranged}, default {one.default!r}"


def _in_range(one: DeclaredSetting) -> str:
    return f" in {one.range}" if one.bounds else ""


def summary(owner: Any) -> str:
    """What a class or function is: the first paragraph of its docstring, on one line."""
    return " ".join((owner.__doc__ or "").partition("\n\n")[0].split())

"""Settings, declared once, where they are used, and checked, listed and documented from there by pydantic.

    mu: Annotated[float, Field(ge=0, description="Weight of the proximal term.")] = 0.01

A field of a dataclass, or a keyword-only parameter of a function, is a setting if it has a description. Types are
strict: no "5" for 5, no true for 1, no 5.0 for a whole number; 5 is taken for 5.0. Numbers are finite. From the
declarations come the checks and their messages, config/schema (`fednoise schema`) and
docs/reference.md.
"""

from __future__ import annotations

import functools
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from fednoise_core.io import SpecError
from fednoise_core.settings.words import shown, words

__all__ = [
    "AlsoAccepts",
    "NoBool",
    "Rounds",
    "Settings",
    "Share",
    "check",
    "json_schema",
    "key_text",
    "mismatch",
    "model_of",
    "nearest",
    "parse",
    "problem",
    "settings_of",
    "summary",
    "unknown_key",
]

T = TypeVar("T")
Schema = Mapping[str, Any]
CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, regex_engine="python-re")

Share = Annotated[float, Field(ge=0, le=1)]  # of a whole
# a stretch of rounds: so many, or a share of the run's (`spec.stage`). 1.0 is refused: one round, or all?
Rounds = Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)]


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError
    return value


NoBool = BeforeValidator(_no_bool)  # beside a Literal of numbers, which takes True for 1


class Settings(BaseModel):
    """Base of models of settings."""

    model_config = CONFIG


@dataclass(frozen=True)
class AlsoAccepts:
    """A word that a config file may hold instead of the value; the workflow replaces it before anything is made."""

    word: str

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"const": self.word}]}


# declarations


def model_of(*owners: Any) -> type[Settings]:
    """The model of the settings of a dataclass or function, or of several together; a model is its own.

    What has no description is no setting: the caller hands it over.
    """
    if len(owners) == 1 and isinstance(owners[0], type) and issubclass(owners[0], Settings):
        return owners[0]
    return _merged(owners)


@functools.cache
def _merged(owners: tuple[Any, ...]) -> type[Settings]:
    found: dict[str, Any] = {}
    for owner in owners:
        hints = typing.get_type_hints(owner, include_extras=True)
        for name, one in inspect.signature(owner).parameters.items():
            if FieldInfo.from_annotation(hints.get(name, Any)).description:
                found[name] = (hints[name], ... if one.default is one.empty else one.default)
    return create_model(owners[0].__name__, __base__=Settings, **found)


def settings_of(owner: Any) -> dict[str, FieldInfo]:
    """The settings of a dataclass, those of its bases first, or of a function, by name."""
    return model_of(owner).model_fields


def json_schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type or model, without titles and references."""
    whole = _adapter(hint).json_schema()
    return _plain(whole, whole.get("$defs", {}))


def _plain(value: Any, defs: Schema, named: bool = False) -> Any:
    """named: the keys of `value` are names of settings."""
    if isinstance(value, list):
        return [_plain(one, defs) for one in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value and not named:
        inner = {key: one for key, one in defs[value["$ref"].rpartition("/")[2]].items() if key != "description"}
        value = {**inner, **{key: one for key, one in value.items() if key != "$ref"}}
    left_out = () if named else ("title", "$defs")
    order = value if named else sorted(value, key=("default", "description").__contains__)  # these last
    return {key: _plain(value[key], defs, key == "properties") for key in order if key not in left_out}


# checks


def check(hint: Any, value: Any, place: str) -> Any:
    """`value` in the type `hint`, or as the settings of a model.

    Raises SpecError `place.key: expected …, got …` for the first value that does not fit.
    """
    value = _python(value)
    try:
        return _adapter(hint).validate_python(value)
    except ValidationError as error:
        keys, text = problem(error, value, json_schema(hint))
        raise SpecError(f"{place}{key_text(keys)}: {text}") from None


def parse(cls: type[T], values: Mapping[str, Any], place: str, **handed: Any) -> T:
    """Build a dataclass from the values of its settings and what is `handed` over beside them. SpecError as `check`."""
    return cls(**dict(check(model_of(cls), values, place)), **handed)


def _adapter(hint: Any) -> TypeAdapter[Any]:
    model = isinstance(hint, type) and issubclass(hint, BaseModel)
    return TypeAdapter(hint, config=None if model else CONFIG)


def _python(value: Any) -> Any:
    """numpy's numbers and arrays, and tuples, as Python's numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _python(one) for key, one in value.items()}
    return [_python(one) for one in value] if isinstance(value, list | tuple) else value


# messages


def problem(error: ValidationError, value: Any, schema: Schema) -> tuple[list[str | int], str]:
    """The keys that lead to the first wrong value, and what is wrong with it. schema: of the type that is expected."""
    every = error.errors(include_url=False)
    unknown = [one for one in every if one["type"] == "extra_forbidden"]  # says more than that another key is missing
    about_first = unknown or [one for one in every if one["loc"][:1] == every[0]["loc"][:1]]
    # of the branches of a union the one that fits best
    found, keys = max(((one, _keys(one, value)) for one in about_first), key=lambda pair: len(pair[1]))
    last = keys[-1] if keys else ""
    if found["type"] == "missing":
        return keys[:-1], f"the key {last!r} is missing"
    if found["type"] == "invalid_key" or "[key]" in found["loc"]:
        return keys[:-1], f"expected texts as keys, got {last!r}"
    if found["type"] == "extra_forbidden":
        inner = _inner(schema, keys[:-1])
        known = (one["properties"] for one in (inner, *inner.get("anyOf", [])) if "properties" in one)
        return keys, unknown_key(last, next(known, {}))
    return keys, mismatch(functools.reduce(operator.getitem, keys, value), _inner(schema, keys))


def unknown_key(key: object, known: Iterable[object]) -> str:
    """What is wrong with a key that is not among the `known` ones."""
    return f"unknown key{nearest(key, known)}"


def mismatch(value: Any, schema: Schema) -> str:
    """What is wrong with a value that does not fit its JSON schema."""
    near = nearest(value, schema["enum"], or_all=False) if "enum" in schema and isinstance(value, str) else ""
    return f"expected {words(schema)}, got {shown(value)}{near}"


def key_text(keys: Iterable[str | int]) -> str:
    """Keys as they stand in a message: `.train.nets[0]`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)


def _keys(error: Any, value: Any) -> list[str | int]:
    """The keys of `value` in the place of an error, without the names of a union's branches."""
    keys: list[str | int] = []
    for key in error["loc"]:
        listed = isinstance(value, list) and isinstance(key, int)
        if listed or (isinstance(value, Mapping) and key in value):
            keys, value = [*keys, key], value[key]
    return [*keys, error["loc"][-1]] if error["type"] == "missing" else keys


def _inner(schema: Schema, keys: Iterable[str | int]) -> Schema:
    """The schema of the value at `keys`."""
    for key in keys:
        for one in (schema, *schema.get("anyOf", [])):
            part = "items" if isinstance(key, int) else "properties" if key in one.get("properties", {}) else ""
            inner = one.get(part or "additionalProperties")
            if isinstance(inner, Mapping):
                schema = inner[key] if part == "properties" else inner
                break
    return schema


# words


def nearest(word: object, known: Iterable[object], *, or_all: bool = True) -> str:
    """The words "; did you mean 'x'?", or, if none is near and `or_all`, "; known: …"."""
    names = sorted(str(item) for item in known)
    near = get_close_matches(str(word), names, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names) or 'none'}" if or_all else ""


# documentation


def summary(owner: Any) -> str:
    """What a class or function is: the first paragraph of its docstring, on one line."""
    return " ".join((owner.__doc__ or "").partition("\n\n")[0].split())

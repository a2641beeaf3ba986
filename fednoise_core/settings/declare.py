"""Declarations of settings. Each setting is declared once, where it is used.

    mu: Annotated[float, Field(ge=0, description="Weight of the proximal term.")] = 0.01

A field of a dataclass, or a keyword-only parameter of a function, is a setting if it has a description. Types are
strict: "5" is not accepted for 5, true not for 1, and 5.0 not for a whole number. 5 is accepted for 5.0. Numbers must
be finite. The checks, their messages, config/schema (`fednoise schema`) and docs/reference.md are generated from the
declarations by pydantic.
"""

import functools
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import (
    MISSING,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo

from fednoise_core.io import SpecError
from fednoise_core.settings.words import describe_schema, short_repr

T = TypeVar("T")
Schema = Mapping[str, Any]
CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, regex_engine="python-re")

Share = Annotated[float, Field(ge=0, le=1)]
# a number of rounds, or a share of the run's rounds (`resolve_rounds`); 1.0 is refused because it is ambiguous
Rounds = Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)]


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError
    return value


NoBool = BeforeValidator(_refuse_bool)  # for a Literal of numbers, which would accept True for 1


def _refuse_repeats(values: list[T]) -> list[T]:
    if any(value in values[:place] for place, value in enumerate(values)):
        raise ValueError
    return values


# a list without repeated values: Distinct[str]
Distinct = Annotated[list[T], AfterValidator(_refuse_repeats), Field(json_schema_extra={"uniqueItems": True})]


class Settings(BaseModel):
    """Base class of models of settings."""

    model_config = CONFIG


@dataclass(frozen=True)
class AlsoAccepts:
    """A word that is allowed in config files instead of a value. The workflow replaces it before any job starts.

    Attributes:
        word: The word.
        overridden_by: Setting that, if given, is used instead of this one.
    """

    word: str
    overridden_by: str = ""

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        note = {"overridden_by": self.overridden_by} if self.overridden_by else {}
        return {"anyOf": [handler(core), {"const": self.word, **note}]}


@dataclass(frozen=True)
class Shown:
    """Display of a setting in the headings of tables and figures. By default, they show its name and value.

    Attributes:
        display_name: Text in which {} stands for the value, or one text for each value.
        in_headings: Whether headings always show the setting. If not, they show it only when two headings would
            otherwise be equal.
    """

    display_name: str | Mapping[Any, str] = ""
    in_headings: bool = True


# declarations


def model_of(*owners: Any) -> type[Settings]:
    """Return the pydantic model of the settings of a dataclass or function.

    A field or parameter without a description is not a setting. It is an ordinary argument.

    Args:
        *owners: A model, which is returned unchanged, objects that have their model as `settings`, or dataclasses and
            functions whose settings are combined.

    Returns:
        The pydantic model.
    """
    owners = tuple(getattr(owner, "settings", owner) for owner in owners)
    if len(owners) == 1 and isinstance(owners[0], type) and issubclass(owners[0], Settings):
        return owners[0]
    return _merged_model(owners)


@functools.cache
def _merged_model(owners: tuple[Any, ...]) -> type[Settings]:
    declared: dict[str, Any] = {}
    for owner in owners:
        hints = typing.get_type_hints(owner, include_extras=True)
        for name, parameter in inspect.signature(owner).parameters.items():
            if FieldInfo.from_annotation(hints.get(name, Any)).description:
                declared[name] = (hints[name], ... if parameter.default is parameter.empty else parameter.default)
    return create_model(owners[0].__name__, __base__=Settings, **declared)


def settings_of(owner: Any) -> dict[str, FieldInfo]:
    """Settings of a dataclass or function.

    Args:
        owner: Dataclass, function or model.

    Returns:
        pydantic's fields by name. Those of base classes come first.
    """
    return model_of(owner).model_fields


def with_defaults(owner: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of missing settings to `values`."""
    defaults = {
        name: setting.get_default() for name, setting in settings_of(owner).items() if not setting.is_required()
    }
    return {name: setting for name, setting in defaults.items() if setting is not MISSING} | dict(values)


def json_schema(hint: Any) -> dict[str, Any]:
    """JSON schema of a type or model.

    Args:
        hint: Type or model.

    Returns:
        The schema, without titles and references.
    """
    schema = _type_adapter(hint).json_schema()
    return _inline_refs(schema, schema.get("$defs", {}))


def _inline_refs(value: Any, defs: Schema, named: bool = False) -> Any:
    """Replace references in a schema by the definitions. `named`: the keys of `value` are names of settings."""
    if isinstance(value, list):
        return [_inline_refs(part, defs) for part in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value and not named:
        inner = {key: part for key, part in defs[value["$ref"].rpartition("/")[2]].items() if key != "description"}
        value = {**inner, **{key: part for key, part in value.items() if key != "$ref"}}
    left_out = () if named else ("title", "$defs")
    order = value if named else sorted(value, key=("default", "description").__contains__)  # these last
    return {key: _inline_refs(value[key], defs, key == "properties") for key in order if key not in left_out}


# checks


def check_value(hint: Any, value: Any, place: str) -> Any:
    """Check a value against a type or model.

    Args:
        hint: Type or model.
        value: Value to check. numpy's numbers and arrays are converted to Python's.
        place: Beginning of the message, such as `train`.

    Returns:
        The value in this type, or the settings as a model.

    Raises:
        SpecError: `place.key: expected …, got …` for each key whose value does not fit.
    """
    value = _to_python(value)
    try:
        return _type_adapter(hint).validate_python(value)
    except ValidationError as error:
        problems = describe_problems(error, value, json_schema(hint))
        text = "\n".join(f"{place}{_format_key(keys)}: {problem}" for keys, problem in problems)
        raise SpecError(text) from None


def check_keys(hints: Mapping[str, Any], values: Mapping[str, Any], place: str) -> None:
    """Check some keys of a mapping. The mapping may have further keys, which are ignored.

    Args:
        hints: Type of each key.
        values: The mapping.
        place: Beginning of the message.

    Raises:
        SpecError: `place.key: expected …, got …` for the first value that does not fit. A missing value is None.
    """
    for key, hint in hints.items():
        check_value(hint, values.get(key), f"{place}.{key}")


def build_settings(cls: type[T], values: Mapping[str, Any], place: str, **fields: Any) -> T:
    """Build a dataclass from the values of its settings.

    Args:
        cls: The dataclass.
        values: Settings by name.
        place: Beginning of the message, such as `train`.
        **fields: Fields that are not settings.

    Returns:
        The checked object.

    Raises:
        SpecError: `place.key: expected …, got …` for the first value that does not fit.
    """
    return cls(**dict(check_value(model_of(cls), values, place)), **fields)


def _type_adapter(hint: Any) -> TypeAdapter[Any]:
    model = isinstance(hint, type) and issubclass(hint, BaseModel)
    return TypeAdapter(hint, config=None if model else CONFIG)


def _to_python(value: Any) -> Any:
    """Convert numpy's numbers and arrays, and tuples, to Python's numbers and lists. Whole-number keys become texts."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        texts = {_to_text(key): _to_python(item) for key, item in value.items()}
        if len(texts) < len(value):
            raise SpecError(f"the keys {', '.join(map(repr, value))} are not all different when written as texts")
        return texts
    return [_to_python(item) for item in value] if isinstance(value, list | tuple) else value


def _to_text(key: Any) -> Any:
    """Convert a key to text, as in JSON: `{3: 5}` becomes `{"3": 5}`."""
    return str(key) if isinstance(key, int | np.integer) and not isinstance(key, bool) else key


# messages


def describe_problems(error: ValidationError, value: Any, schema: Schema) -> list[tuple[list[str | int], str]]:
    """Describe the wrong values of a failed check.

    Args:
        error: pydantic's error.
        value: Value that was checked.
        schema: JSON schema of the expected type.

    Returns:
        For each key of the value with a problem, the path of keys to the wrong value, and the problem in words.
    """
    problems = error.errors(include_url=False)
    if isinstance(value, Mapping) and "anyOf" not in schema:
        # an unknown key is more informative than a missing key, because it may be a misspelling
        names_key = any(
            entry["type"] in ("extra_forbidden", "invalid_key") and len(entry["loc"]) <= 2 for entry in problems
        )
        shown = [entry for entry in problems if not (names_key and entry["type"] == "missing")] or problems
        firsts = dict.fromkeys(entry["loc"][:1] for entry in shown)
        groups = [[entry for entry in shown if entry["loc"][:1] == first] for first in firsts]
    else:  # the first items of places are branches of a union
        groups = [problems]
    return [_describe_group(group, value, schema) for group in groups]


def _describe_group(problems: Sequence[Any], value: Any, schema: Schema) -> tuple[list[str | int], str]:
    """Describe the first wrong value of errors that concern one key."""
    unknown = [entry for entry in problems if entry["type"] == "extra_forbidden"]
    about_first = unknown or [entry for entry in problems if entry["loc"][:1] == problems[0]["loc"][:1]]
    # of the branches of a union the one that fits best
    problem, keys = max(((entry, _error_keys(entry, value)) for entry in about_first), key=lambda pair: len(pair[1]))
    last = keys[-1] if keys else ""
    if problem["type"] == "missing":
        return keys[:-1], missing_key(last, _schema_at(schema, keys))
    if problem["type"] == "invalid_key" or "[key]" in problem["loc"]:
        return keys[:-1], f"expected texts as keys, got {last!r}"
    if problem["type"] == "extra_forbidden":
        inner = _schema_at(schema, keys[:-1])
        properties = (entry["properties"] for entry in (inner, *inner.get("anyOf", [])) if "properties" in entry)
        return keys, unknown_key(last, next(properties, {}))
    return keys, describe_mismatch(functools.reduce(operator.getitem, keys, value), _schema_at(schema, keys))


def unknown_key(key: object, allowed: Iterable[object]) -> str:
    """Message for an unknown key.

    Args:
        key: The key.
        allowed: Keys that are allowed.

    Returns:
        Text with the nearest known key.
    """
    return f"unknown key{did_you_mean(key, allowed)}"


def missing_key(key: object, schema: Schema) -> str:
    """Message for a missing key.

    Args:
        key: The key.
        schema: What its value would be.

    Returns:
        Text with the key's description.
    """
    return ": ".join([f"the key {key!r} is missing", *filter(None, [schema.get("description")])])


def describe_mismatch(value: Any, schema: Schema) -> str:
    """Message for a value that does not fit its JSON schema.

    Args:
        value: The wrong value.
        schema: What is expected.

    Returns:
        `expected …, got …`.
    """
    hint = did_you_mean(value, schema["enum"], or_all=False) if "enum" in schema and isinstance(value, str) else ""
    shares = any(
        1 in (part.get("maximum"), part.get("exclusiveMaximum")) for part in (schema, *schema.get("anyOf", ()))
    )
    if shares and not isinstance(value, bool) and isinstance(value, int | float) and 5 <= value <= 100:
        hint = f"; {value:g} % is {value / 100:g}"
    return f"expected {describe_schema(schema)}, got {short_repr(value)}{hint}"


def _format_key(keys: Iterable[str | int]) -> str:
    """Keys in the form of a message.

    Args:
        keys: Keys and positions that lead to a value.

    Returns:
        Text such as `.train.nets[0]`.
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)


def _error_keys(error: Any, value: Any) -> list[str | int]:
    """Return the path of keys to an error in `value`, without the names of a union's branches."""
    keys: list[str | int] = []
    for key in error["loc"]:
        listed = isinstance(value, list) and isinstance(key, int)
        if listed or (isinstance(value, Mapping) and key in value):
            keys, value = [*keys, key], value[key]
    return [*keys, error["loc"][-1]] if error["type"] == "missing" else keys


def _schema_at(schema: Schema, keys: Iterable[str | int]) -> Schema:
    """The schema of the value at `keys`."""
    for key in keys:
        for branch in (schema, *schema.get("anyOf", [])):
            part = "items" if isinstance(key, int) else "properties" if key in branch.get("properties", {}) else ""
            inner = branch.get(part or "additionalProperties")
            if isinstance(inner, Mapping):
                schema = inner[key] if part == "properties" else inner
                break
    return schema


# words


def flatten_settings(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting with its keys joined by dots. A list is one setting."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten_settings(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", tuple(value) if isinstance(value, list) else value


def did_you_mean(word: object, allowed: Iterable[object], *, or_all: bool = True) -> str:
    """Suggest the known word that is nearest to a wrong word.

    Args:
        word: The wrong word.
        allowed: Words that are allowed.
        or_all: Whether to list the known words if none is near.

    Returns:
        `; did you mean 'x'?`, `; known: …` or an empty text.
    """
    names = sorted(str(item) for item in allowed)
    matches = [name for name in names if name.lower() == str(word).lower()]
    matches = matches or get_close_matches(str(word), names, n=1, cutoff=0.5)
    if matches:
        return f"; did you mean {matches[0]!r}?"
    return f"; known: {', '.join(names) or 'none'}" if or_all else ""


# documentation


def doc_summary(owner: Any) -> str:
    """First paragraph of a docstring.

    Args:
        owner: Class or function.

    Returns:
        The paragraph on one line.
    """
    return " ".join((owner.__doc__ or "").partition("\n\n")[0].split())

"""Check settings against their declarations, and bring them into one normal form.

An error raises a SpecError with file, key and problem. For data sets, noises, partitions, methods, tables and figures,
which come in kinds, planning reads config/schema, since the declarations of methods and nets would import torch. The
files of config/schema map each kind to {description, properties, required}.
"""

import dataclasses
import functools
import json
import operator
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError

from fednoise_core.index import FAMILIES
from fednoise_core.io import Problems, SpecError, canonical_json
from fednoise_core.noise import registry as noises
from fednoise_core.partition import registry as partitions
from fednoise_core.settings.declare import (
    Settings,
    describe_mismatch,
    describe_problems,
    did_you_mean,
    doc_summary,
    json_schema,
    missing_key,
    model_of,
    unknown_key,
)
from workflow_scripts.config.yaml_file import ConfigPath, check_json_compatible, read_yaml
from workflow_scripts.provenance.step_code import REGISTRIES, ROOT, read_registry

_CHECKER = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
_VALIDATOR = validators.extend(Draft202012Validator, type_checker=_CHECKER)  # 100.0 is not an integer here

Schema = Mapping[str, Any]
# family → the key that names the kind; "kind" for the others
KIND_KEYS = {"dataset": "source", "method": "name", "net": "name", "augment": "name"}

FACTS = {
    "dataset": ("display_name",),
    "noise": ("display_name",),
    "partition": ("display_name",),
    "method": ("needs_public", "several_nets", "above_chance", "needs_train", "pooled", "family"),
    "table": ("without_runs", "of_a_paper"),
    "figure": ("of_a_paper",),
}


def check_model(model: type[Settings], value: Any, place: ConfigPath) -> None:
    """Compare settings with their declaration.

    Args:
        model: The declaration.
        value: The settings.
        place: Where they stand.

    Raises:
        SpecError: A setting is wrong.
    """
    check_json_compatible(value, place)
    try:
        model.model_validate(value)
    except pydantic.ValidationError as error:
        problems = describe_problems(error, value, json_schema(model))
        errors = [
            str(functools.reduce(operator.truediv, keys, place).error(f"{problem}{_hint_at_indentation(problem)}"))
            for keys, problem in problems
        ]
        raise SpecError("\n".join(errors)) from None


def _hint_at_indentation(problem: str) -> str:
    """Return a hint for a key without a value, whose lines are probably not indented below it."""
    empty = re.fullmatch(r"expected (\{|list ).*, got null", problem)
    return "; indent the lines that belong to it, or leave it out" if empty else ""


class Schemas:
    """The schemas in a folder, read when first needed."""

    def __init__(self, folder: str | Path) -> None:
        self.load = functools.cache(lambda name: read_yaml(Path(folder, f"{name}.yaml")))
        self._validators: dict[tuple[str, ...], Any] = {}  # family, kind and other keys → validator

    def check_kind(self, family: str, value: Mapping[str, Any], place: ConfigPath, beside: Sequence[str] = ()) -> None:
        """Compare a {kind: …, settings…} with the settings that its kind has.

        Args:
            family: The name of the schema, such as "noise".
            value: The settings. Those that the schema does not list are refused.
            place: Where they stand.
            beside: Further allowed keys, which are checked elsewhere.

        Raises:
            SpecError: The kind is unknown, or a setting is wrong.
        """
        key, kinds = KIND_KEYS.get(family, "kind"), self.load(family)
        if key not in value:
            raise place.error(f"the key {key!r} is missing. Its value is one of {', '.join(kinds)}")
        kind = value[key]
        if not isinstance(kind, str):
            raise (place / key).error(f"expected the name of a {family}, got {json.dumps(kind)}")
        if kind not in kinds and not _is_own(family, kind):
            raise (place / key).error(_describe_unknown_kind(family, kind, kinds))
        try:
            about = self.load_kind(family, kind)
        except (SpecError, TypeError, NameError) as error:  # NameError: of the type of a setting
            problem = str(error).removeprefix(f"{family}.{key}: ").removeprefix(f"{family}: ")
            raise (place / key).error(f"{kind!r}: {error!r}" if isinstance(error, NameError) else problem) from error
        if (family, kind, *beside) not in self._validators:
            properties = {key: {"const": kind}, **about.get("properties", {}), **{name: {} for name in beside}}
            if "train" in beside:
                keys = self.load("train")["properties"]
                properties["train"] = {"properties": dict.fromkeys(keys, True)}  # for hints; check_train checks them
            schema = {"type": "object", "properties": properties, "required": about.get("required", [])}
            self._validators[family, kind, *beside] = _VALIDATOR({**schema, "additionalProperties": False})
        problems, unknown = Problems(), False
        for mistake in _list_errors(value, self._validators[family, kind, *beside]):
            unknown = unknown or (mistake.validator == "additionalProperties" and not mistake.path)
            if not (unknown and mistake.validator == "required" and not mistake.path):  # the unknown key says more
                wrong = functools.reduce(operator.truediv, mistake.absolute_path, place)
                problems.append(str(_to_spec_error(mistake, wrong)))
        problems.raise_all()

    def load_kind(self, family: str, kind: str) -> Schema:
        """Load the description and settings of a kind. The user's own class or function, "module:name", provides them.

        Args:
            family: The name of the schema.
            kind: A known kind.

        Raises:
            SpecError: The class or function cannot be imported, or has no description.
            TypeError: The class is no dataclass.
            NameError: The type of a setting is unknown.
        """
        return _describe_own(family, kind) if _is_own(family, kind) else self.load(family)[kind]

    def kind_flags(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the flags of a table's or figure's kind, such as `without_runs`; none for a bare selection."""
        kind = str(spec.get("kind"))
        return self.load("table").get(kind) or self.load("figure").get(kind) or {}

    def normalize_kind(self, family: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Bring checked settings of a kind into normal form, so that equal settings are equal however they are written.

        Args:
            family: The name of the schema.
            value: The settings.

        Returns:
            The settings without those at their default. Where any number is allowed, 1 is written as 1.0.
        """
        key = KIND_KEYS.get(family, "kind")
        properties = self.load_kind(family, value[key]).get("properties", {})
        return {key: value[key], **_without_defaults({k: v for k, v in value.items() if k != key}, properties)}

    def normalize_train(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Bring checked training settings into normal form.

        Args:
            value: The settings.

        Returns:
            The same as `normalize_kind`. A net or augmentation without options is its bare name.
        """
        nets = value.get("net", [])
        short_nets = [
            _short_form(self.normalize_kind("net", expand_name(net)))
            for net in (nets if isinstance(nets, list) else [nets])
        ]
        parts: dict[str, Any] = {}
        if short_nets:
            parts["net"] = short_nets[0] if len(short_nets) == 1 else short_nets
        if "augment" in value:
            parts["augment"] = _short_form(self.normalize_kind("augment", expand_name(value["augment"])))
        return _without_defaults({**value, **parts}, self.load("train")["properties"])


def _is_own(family: str, kind: str) -> bool:
    return family in ("method", "noise", "partition") and ":" in kind


@functools.cache
def _describe_own(family: str, name: str) -> Schema:
    if str(ROOT) not in sys.path:  # as in the step that uses it
        sys.path.insert(0, str(ROOT))
    if family == "noise":
        return describe_kind(family, name, noises.load_model({"kind": name}), noises.Shared)
    if family == "partition":
        scheme = partitions.load_scheme({"kind": name})
        return describe_kind(family, name, scheme, partitions.shared_settings(name))
    from fednoise_core.methods import method_class, own

    return describe_kind(family, name, own.check_class(method_class(name)))


def _describe_unknown_kind(family: str, kind: str, kinds: Mapping[str, Any]) -> str:
    """Describe the problem with a kind that the schema lacks: no such kind, or an old schema."""
    if any(kind in read_registry(ROOT, *registry) for registry in REGISTRIES.get(family, ())):
        return f"config/schema/{family}.yaml does not know {kind!r} yet. Run `fednoise schema`"
    return f"unknown {family} {kind!r}{did_you_mean(kind, kinds)}"


def expand_name(setting: Any) -> Mapping[str, Any]:
    """Write a net or augmentation that may be a bare name as {name, options…}."""
    return setting if isinstance(setting, Mapping) else {"name": setting}


def _short_form(setting: Mapping[str, Any]) -> Any:
    return setting["name"] if len(setting) == 1 else dict(setting)


def _without_defaults(values: Mapping[str, Any], properties: Mapping[str, Schema]) -> dict[str, Any]:
    changed = {}
    for key, value in values.items():
        schema = properties.get(key, {})
        normalized = _normalize_value(value, schema)
        if "default" not in schema or canonical_json(normalized) != canonical_json(
            _normalize_value(schema["default"], schema)
        ):
            changed[key] = normalized
    return changed


def _normalize_value(value: Any, schema: Schema) -> Any:
    """Convert integers to floats where the schema allows any number."""
    options = [schema, *schema.get("anyOf", [])]
    if isinstance(value, int) and not isinstance(value, bool):
        kinds = {option.get("type") for option in options}
        return float(value) if "number" in kinds and "integer" not in kinds else value
    if isinstance(value, list):
        inner: Schema = next((option["items"] for option in options if "items" in option), {})
        return [_normalize_value(item, inner) for item in value]
    if isinstance(value, Mapping):
        properties: Mapping[str, Schema] = next(
            (option["properties"] for option in options if "properties" in option), {}
        )
        return _without_defaults(value, properties)
    return value


def _list_errors(value: Any, validator: Any) -> list[ValidationError]:
    """List the first error of each key."""
    errors: dict[Any, ValidationError] = {}
    # an unknown key is more informative than a missing one
    for error in sorted(validator.iter_errors(value), key=lambda problem: problem.validator != "additionalProperties"):
        errors.setdefault(tuple(error.path)[:1] or error.validator, error)
    return [_innermost_error(error) for error in errors.values()]


def _innermost_error(error: ValidationError) -> ValidationError:
    """Return the error in the best matching branch of a union, or the union's own error if no branch matches best."""
    for branch_error in error.context if error.validator == "anyOf" else ():
        if len(branch_error.path) or branch_error.validator in ("required", "additionalProperties"):
            return _innermost_error(branch_error)
    return error


def _to_spec_error(error: ValidationError, place: ConfigPath) -> SpecError:
    """Convert a validation error to the message that pydantic gives in a run (`settings.declare.describe_problems`).

    The message for an unknown key also names the section that has this key.
    """
    value, expected, schema = error.instance, error.validator_value, error.schema
    if error.validator == "additionalProperties":
        properties = schema.get("properties", {})
        unknown = [key for key in value if key not in properties]
        return SpecError("\n".join(str((place / key).error(_hint_at_key(key, properties))) for key in unknown))
    if error.validator == "required":
        key = next(key for key in expected if key not in value)
        return place.error(missing_key(key, schema["properties"][key]))
    return place.error(describe_mismatch(value, schema))


def _hint_at_key(key: str, properties: Mapping[str, Schema]) -> str:
    """Return a hint for an unknown key: the section that has this key, such as `train` for `lr`, or the nearest key."""
    sections = [name for name, schema in properties.items() if key in schema.get("properties", {})]
    return f"unknown key; did you mean '{sections[0]}.{key}'?" if sections else unknown_key(key, properties)


def describe_kind(family: str, name: str, owner: Any, *shared: Any) -> dict[str, Any]:
    """Describe one kind as config/schema does.

    Args:
        family: The name of the schema.
        name: The kind.
        owner: Its class or function.
        shared: Declarations of settings that it shares with other kinds.

    Raises:
        SpecError: Its class or function has no description.
    """
    declared = getattr(owner, "settings", owner)
    summary, where = doc_summary(declared), f"{declared.__module__}.{declared.__name__}"
    # `dataclass` writes "Name(…)" if there is no docstring
    if not summary or summary.startswith(f"{declared.__name__}("):
        raise SpecError(f"{where}: the first paragraph of its docstring says what it is")
    if family == "method" and owner.family not in FAMILIES:
        raise SpecError(f"{where}.family: expected one of {', '.join(FAMILIES)}, got {owner.family!r}")
    for field in dataclasses.fields(declared) if dataclasses.is_dataclass(declared) else ():
        if field.name not in {*model_of(declared).model_fields, "train"}:
            cure = f"write Field(description=…), or, for a constant, `{field.name} = …` without a type"
            raise SpecError(f"{where}.{field.name}: a setting says what it means: {cure}")
    facts = {fact: getattr(owner, fact) for fact in FACTS.get(family, ()) if getattr(owner, fact, None)}
    facts["example"] = {KIND_KEYS.get(family, "kind"): name, **getattr(owner, "example", {})}
    return describe_settings(summary, model_of(owner, *shared), facts | getattr(owner, "facts", {}))


def describe_settings(description: str, model: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Describe settings as config/schema does.

    Args:
        description: Description of the kind.
        model: Declaration of its settings.
        facts: Other facts about the kind.
    """
    schema = {"properties": {}, "required": []} | json_schema(model)
    plain = json.loads(json.dumps(facts))  # plain mappings and lists, for YAML
    return {"description": description, "properties": schema["properties"], "required": schema["required"], **plain}

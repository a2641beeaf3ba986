"""Describe a kind of data set, noise, method or the like as config/schema does."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from fednoise_core.index import FAMILIES
from fednoise_core.io import SpecError
from fednoise_core.settings.declare import doc_summary, json_schema, model_of

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


def describe_kind(family: str, name: str, owner: Any, *shared: Any) -> dict[str, Any]:
    """Describe one kind as config/schema does.

    Args:
        family: The name of the schema.
        name: The kind.
        owner: Its class or function.
        shared: Where the settings are declared that it has beside its own.

    Raises:
        SpecError: Its class or function does not say what it is.
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
        description: What they are.
        model: Their declaration.
        facts: What else is said of the kind.
    """
    schema = {"properties": {}, "required": []} | json_schema(model)
    plain = json.loads(json.dumps(facts))  # mappings and lists that YAML knows
    return {"description": description, "properties": schema["properties"], "required": schema["required"], **plain}

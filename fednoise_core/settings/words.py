"""Values and types of settings in words. Standard library only: the site is built without pydantic and numpy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["shown", "words"]

SHOWN = 60  # letters of a wrong value in a message


def shown(value: Any) -> str:
    """A value on one line, cut after SHOWN letters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def words(schema: Mapping[str, Any], quote: Callable[[Any], str] = shown) -> str:
    """Type and range that a JSON schema asks for, in words. quote: how a value is written."""
    if "enum" in schema or "const" in schema:
        return " | ".join(map(quote, schema.get("enum", [schema.get("const")])))
    if "anyOf" in schema:
        return ", or ".join(words(one, quote) for one in schema["anyOf"])
    kind = schema.get("type", "a finite number, text, list or mapping")
    if isinstance(kind, list):
        return ", or ".join(words({**schema, "type": one}, quote) for one in kind)
    if kind in ("integer", "number"):
        return kind + _range(schema)
    if kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        many = f"{least} " if least == most else f"{least}–{most} " if most else f"{least} or more " if least else ""
        plural = re.sub(r"^(integer|number|text|list)\b", r"\1s", words(schema.get("items", {}), quote))
        return f"list of {many}{plural}"
    if kind == "object":
        names = [*schema.get("properties", schema.get("required", []))]
        return "{" + ", ".join(names if "properties" in schema else [*names, "…"]) + "}"
    named = {"string": "text", "boolean": " | ".join(map(quote, (True, False))), "null": quote(None)}
    return str(named.get(kind, kind))


def _range(schema: Mapping[str, Any]) -> str:
    """The bounds of a number: " ≥ 1", ", 0 ≤ x < 1", or nothing."""
    signs = {
        "minimum": ("≥", "≤"),
        "exclusiveMinimum": (">", "<"),
        "maximum": ("≤", "≤"),
        "exclusiveMaximum": ("<", "<"),
    }
    ends = [(f"{schema[key]:g}", *signs[key]) for key in signs if key in schema]
    if len(ends) == 2:
        (low, _, left), (high, _, right) = ends
        return f", {low} {left} x {right} {high}"
    return f" {ends[0][1]} {ends[0][0]}" if ends else ""

"""Values and types of settings in words. Needs the standard library only, so that the site builds without pydantic."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

SHOWN = 60  # longest text of a wrong value in a message


def short_repr(value: Any) -> str:
    """Write a value on one line.

    Args:
        value: Any value.

    Returns:
        JSON, or Python's repr for what JSON cannot hold, cut after SHOWN letters.
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def describe_schema(schema: Mapping[str, Any], quote: Callable[[Any], str] = short_repr) -> str:
    """Describe the type and range that a JSON schema requires.

    Args:
        schema: JSON schema.
        quote: Writes a value.

    Returns:
        Text such as "integer ≥ 1".
    """
    if "enum" in schema or "const" in schema:
        return " | ".join(map(quote, schema.get("enum", [schema.get("const")])))
    if "anyOf" in schema:
        return ", or ".join(describe_schema(branch, quote) for branch in schema["anyOf"])
    kind = schema.get("type", "a finite number, text, list or mapping")
    if isinstance(kind, list):
        return ", or ".join(describe_schema({**schema, "type": branch}, quote) for branch in kind)
    if kind in ("integer", "number"):
        return kind + _describe_range(schema)
    if kind == "array":
        size = _describe_size(schema, "Items")
        plural = re.sub(r"^(integer|number|text|list)\b", r"\1s", describe_schema(schema.get("items", {}), quote))
        example = f", such as {quote(schema['examples'][0])}" if "examples" in schema else ""
        return f"list of {size}{'different ' * bool(schema.get('uniqueItems'))}{plural}{example}"
    if kind == "object":
        names = [*schema.get("properties", schema.get("required", []))]
        keys = "{" + ", ".join(names if "properties" in schema else [*names, "…"]) + "}"
        return f"{keys} with {size}keys" if (size := _describe_size(schema, "Properties")) else keys
    if kind == "string" and "pattern" in schema:
        return (
            f"text such as {schema['examples'][0]}" if "examples" in schema else f"text that fits {schema['pattern']}"
        )
    if kind == "string" and (size := _describe_size(schema, "Length")):
        return f"text of {size}letters"
    named = {"string": "text", "boolean": " | ".join(map(quote, (True, False))), "null": quote(None)}
    return str(named.get(kind, kind))


def _describe_size(schema: Mapping[str, Any], of: str) -> str:
    """Write how many there may be of "Items", "Properties" or "Length": "3 ", "1–3 ", "1 or more ", or nothing."""
    least, most = schema.get(f"min{of}", 0), schema.get(f"max{of}")
    return f"{least} " if least == most else f"{least}–{most} " if most else f"{least} or more " if least else ""


def _describe_range(schema: Mapping[str, Any]) -> str:
    """Write the bounds of a number: " ≥ 1", ", 0 ≤ x < 1", or nothing."""
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

"""Read one config file as strict YAML. Every error in it raises a SpecError that names the file.

`ConfigPath` is the place of a setting, so that a message can name file and key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.io import SpecError

LARGEST = 2**63  # larger integers fit in no array
DEEPEST = 100  # levels of nesting; tens of thousands of levels would crash the process without a message
NODES = 200_000  # values of a file with all aliases expanded
LONGEST = 1000  # characters of a message


@dataclass(frozen=True)
class ConfigPath:
    """Place of a setting: its file, the scale that changes the file, if any, and the path of keys."""

    file: str
    keys: tuple[str | int, ...] = ()

    def __truediv__(self, key: str | int) -> ConfigPath:
        return ConfigPath(self.file, (*self.keys, key))

    def __str__(self) -> str:
        text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{self.file}: {text.removeprefix('.')}" if text else self.file

    def error(self, problem: str) -> SpecError:
        """Make the exception for a problem at this place."""
        text = f"{self}: {problem}"
        return SpecError(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
UNCLEAR = re.compile(r"[:_]|^[-+]?0\d+[0-7]$")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML that refuses a repeated key and, as YAML 1.2, reads 1e-4 as a number and on, off, yes, no as words."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Name the line of a value that PyYAML cannot construct, such as `!!bool many` or a key that is a list.

        Misleading numbers of YAML 1.1 are refused: 1:30 would be 90, 010 would be 8, and 1_0 would be 10.
        """
        if node.tag in NUMBERS and UNCLEAR.search(str(node.value)):
            problem = f"YAML reads {node.value} as another number. Write the plain number, or put it in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            text = _shorten_text(node.value if isinstance(node, yaml.ScalarNode) else error)
            problem = f"not readable as {node.tag.rpartition(':')[2]} ({text})"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):  # the others are refused below
            if key.value in seen:
                problem = f"the key {key.value!r} is repeated"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
    loader.flatten_mapping(node)  # `<<` puts merged keys first, so that the mapping's own keys override them
    return {loader.construct_object(k, deep=True): loader.construct_object(v, deep=True) for k, v in node.value}


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file strictly.

    Args:
        path: The file.

    Returns:
        The mapping in it.

    Raises:
        SpecError: The file is missing, or is not a YAML mapping. The message names file and line.
    """
    place = ConfigPath(str(path))
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise place.error("no such file") from error
    except OSError as error:  # a folder, a link to itself, no permission
        raise place.error(f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # no UTF-8
        raise place.error(f"not readable as YAML ({_shorten_text(error)})") from error
    value = parse_yaml(text, place)
    if not isinstance(value, dict):
        raise place.error("expected keys and values")
    return value


def parse_yaml(text: str, place: ConfigPath) -> Any:
    """Parse YAML strictly.

    Args:
        text: The YAML.
        place: Where it stands.

    Returns:
        The value in it.

    Raises:
        SpecError: It is not YAML. The message names place and line.
    """
    try:
        return _load_text(text, place)
    except SpecError:
        raise
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        tab = "; indent with spaces, not with tabs" if "any token" in str(error.problem) and "\t" in text else ""
        raise place.error(f"{line}{error.problem}{tab}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise place.error(f"not readable as YAML ({_shorten_text(error)})") from error


def _load_text(text: str, place: ConfigPath) -> Any:
    """Parse YAML. Limits on nesting and aliases are checked before nodes are built and aliases are expanded."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):  # libyaml reads events one by one, and only its nodes recurse
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise place.error(f"values are nested deeper than {DEEPEST} levels")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_nodes(node, {}) > NODES:
            raise place.error(f"expected at most {NODES:,} values with all aliases (*name) written out")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count_nodes(node: yaml.Node, counts: dict[int, int]) -> int:
    """Count the values of a node with all aliases expanded. PyYAML refuses a node that contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in counts:
        counts[id(node)] = 0
        children = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        counts[id(node)] = 1 + sum(_count_nodes(child, counts) for child in children)
    return counts[id(node)]


def check_json_compatible(value: Any, place: ConfigPath) -> None:
    """Refuse values that JSON cannot represent or that settings do not need.

    Args:
        value: A value from a YAML file.
        place: Where it stands.

    Raises:
        SpecError: It is or holds NaN, infinity, a whole number of more than 63 bits, a date, or a key that is not text.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                hint = " (an unquoted on, off, yes or no may be read so)" if isinstance(key, bool) else ""
                raise place.error(f"the key {_shorten_text(key)}{hint} is not text. Put it in quotes")
            check_json_compatible(part, place / key)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            check_json_compatible(part, place / number)
    elif isinstance(value, float) and not math.isfinite(value):
        raise place.error(f"expected a finite number, got {value}")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= LARGEST:
        raise place.error("expected a whole number of at most 63 bits")
    elif value is not None and not isinstance(value, int | float | str):
        raise place.error(f"{_shorten_text(value)} is a {type(value).__name__}. Put it in quotes")


def _shorten_text(value: object) -> str:
    text = " ".join((str(value) if isinstance(value, Exception) else repr(value)).split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def deep_merge(base: Any, over: Any) -> Any:
    """Override a value with another one.

    Args:
        base: The value to override.
        over: The overriding value.

    Returns:
        Two mappings merged key by key. Otherwise `over`.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: deep_merge(base.get(key), value) for key, value in over.items()}}
    return over


def format_flow(value: Mapping[str, Any]) -> str:
    """Write settings as one line of YAML, with the keys in their order."""
    return str(yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9)).strip()

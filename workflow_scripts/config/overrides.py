"""Command-line overrides of a study's settings: `train.lr=0.05`, `seeds=[3]`, `methods.fedprox.mu=1`."""

import re
from collections.abc import Iterable
from typing import Any

from fednoise_core.io import json_digest
from workflow_scripts.config.yaml_file import ConfigPath, deep_merge, parse_yaml

LONGEST_ENDING = 100  # characters added to the name of a results folder


def parse_overrides(texts: Iterable[str], place: ConfigPath) -> dict[str, Any]:
    """Parse overrides.

    Args:
        texts: Each `key=value`: the keys of a study's file joined by dots, and YAML.
        place: Where they stand.

    Returns:
        The values as a study's file has them, nested.

    Raises:
        SpecError: A value is not YAML.
    """
    nested: dict[str, Any] = {}
    for text in texts:
        keys, _, value = text.partition("=")
        nested = deep_merge(nested, nest_value(keys, parse_yaml(value, place / keys)))
    return nested


def nest_value(keys: str, value: Any) -> dict[str, Any]:
    """Write a value as a study's file has it: "train.lr" and 0.1 as {"train": {"lr": 0.1}}."""
    for key in reversed(keys.split(".")):
        value = {key: value}
    return value


def folder_ending(texts: Iterable[str]) -> str:
    """The ending of the results folder of studies with overrides, such as `@train.lr=0.05`."""
    parts = sorted(re.sub(r"[^\w.+=-]+", "-", re.sub(r"[][{}'\"\s]", "", text)) for text in texts)
    ending = "".join(f"@{word}" for word in parts)
    return ending if len(ending) <= LONGEST_ENDING else f"@set-{json_digest(parts)}"

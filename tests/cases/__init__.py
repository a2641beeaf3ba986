"""What the contract suite needs to know of each method: one file each, found by the method's name.

FIELDS: settings under which three short rounds on the toy world do all that the method can do. traffic(run): bytes
(down, up) of round 0 (what `init` exchanged) and of every round, worked out from methods.md 1.4: 4 clients a round of
7 with samples, 5 classes. NEEDED, where there is one: settings with which every field alone may take any value, beside
those of the schema's example that are required.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.methods import METHODS

MODEL = 4 * (64 * 6 + 6 + 6 * 5 + 5)  # bytes of the toy's perceptron
SCHEMA = yaml.safe_load((Path(__file__).parents[2] / "config/schema/method.yaml").read_text(encoding="utf-8"))


def case(name: str) -> Any:
    """The facts of a method."""
    return import_module(f"cases.{name}")


def several_nets(name: str) -> bool:
    """Whether its clients may run different architectures, and do on the toy world."""
    return bool(SCHEMA[name].get("several_nets"))


def needed(name: str) -> dict[str, Any]:
    """Fields that any settings of the method must have."""
    given = {key: SCHEMA[name]["example"][key] for key in SCHEMA[name]["required"]}
    return {**given, **getattr(case(name), "NEEDED", {})}


FIELDS = {name: case(name).FIELDS for name in METHODS}

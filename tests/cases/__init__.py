"""What the tests of all methods need to know of each: a file named as the method, where the defaults do not do.

FIELDS: settings under which three short rounds on the toy world do all that the method can do; none by default.
traffic(run): bytes (down, up) of round 0 (what `init` exchanged) and of every round, worked out by hand: 4 clients a
round of 7 with samples, 5 classes. By default every round sends what the method's `wire` names, by the sizes below.
NEEDED: settings with which every field alone may take any value, beside the required ones of the schema's example.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from fednoise_core.methods import METHODS, method_class

MODEL = 4 * (64 * 6 + 6 + 6 * 5 + 5)  # bytes of the toy's perceptron
SIZES = {
    **dict.fromkeys(["model", "one", "two", "control", "shift"], MODEL),  # as large as the model
    **dict.fromkeys(["divide", "keep", "ramp", "unlabelled"], 8),  # a number
    "centroids": 4 * 5 * 6,  # 5 classes, 6 features
}
SCHEMA = yaml.safe_load((Path(__file__).parents[2] / "config/schema/method.yaml").read_text(encoding="utf-8"))


def case(name: str) -> Any:
    """The facts of a method: FIELDS, traffic, NEEDED."""
    known = vars(import_module(f"cases.{name}")) if find_spec(f"cases.{name}") else {}
    return SimpleNamespace(**{"FIELDS": {}, "NEEDED": {}, "traffic": lambda run: alike(name), **known})


def alike(name: str) -> list[tuple[int, int]]:
    """Traffic of a method whose three rounds all send everything that it declares, but what is optional (`name?`)."""
    wire = method_class(name).wire
    down, up = (sum(SIZES[one] for one in wire[side] if not one.endswith("?")) for side in ("down", "up"))
    return [(0, 0)] + [(4 * down, 4 * up)] * 3


def several_nets(name: str) -> bool:
    """Whether its clients may run different architectures, and do on the toy world."""
    return bool(SCHEMA[name].get("several_nets"))


def needed(name: str) -> dict[str, Any]:
    """Fields that any settings of the method must have."""
    given = {key: SCHEMA[name]["example"][key] for key in SCHEMA[name]["required"]}
    return {**given, **case(name).NEEDED}


FIELDS = {name: case(name).FIELDS for name in METHODS}

"""Traps for clean labels, and the search for forbidden access in source code."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

UNSEEDED = ("rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "rand_like", "randn_like")
# names that give access to labels or global state; those in the first line are for the engine only
DOORS = (
    *("relabelled", "clients", "store", "relay", "world", "executor"),
    *("manual_seed", "__dict__", "load", "loadtxt", "memmap"),
)
CALLS = ("getattr", "vars", "eval", "exec", "open", "__import__", "globals")


class Trap:
    """The clean labels, readable only while `open`."""

    open = False

    def __init__(self, values: np.ndarray):
        self.__dict__["values"] = values

    def _read_values(self) -> np.ndarray:
        if not Trap.open:
            raise AssertionError("the clean labels were read")
        return self.__dict__["values"]

    def __getitem__(self, index: Any) -> Any:
        return self._read_values()[index]

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return self._read_values()

    def __len__(self) -> int:
        return len(self._read_values())

    def __eq__(self, other: object) -> Any:
        return self._read_values() == other

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._read_values(), name)


def allow_clean(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it may read the clean labels while it runs.

    Args:
        inner: A function of the evaluation.

    Returns:
        The wrapped function, with the same arguments and result.
    """

    def opened(*args: Any, **kwargs: Any) -> Any:
        Trap.open, before = True, Trap.open
        try:
            return inner(*args, **kwargs)
        finally:
            Trap.open = before

    return opened


def reachable_ids(start: Any) -> set[int]:
    """Collect the ids of all objects that are reachable through attributes and items, including private ones.

    Args:
        start: The object to start from.

    Returns:
        The ids, including that of `start`.
    """
    seen: set[int] = set()
    todo = [start]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type | None):
            continue
        seen.add(id(thing))
        todo += list(getattr(thing, "__dict__", {}).values())
        if isinstance(thing, dict):
            todo += list(thing.values())
        elif isinstance(thing, list | tuple | set):
            todo += list(thing)
        elif callable(getattr(thing, "__func__", None)):
            todo.append(thing.__self__)
    return seen


def find_reaches(source: str) -> list[str]:
    """List the violations in a method's source code.

    The code must not use private attributes or labels, and must not draw random numbers without a seed.

    Args:
        source: Text of the module.

    Returns:
        One line for each place, with its line number.
    """
    tree = ast.parse(source)
    seeded = {
        call.lineno for call in ast.walk(tree)
        if isinstance(call, ast.Call) and any(k.arg == "generator" for k in call.keywords)
    }  # fmt: skip
    return [where for node in ast.walk(tree) for where in _find_in_node(node, seeded)]


def _find_in_node(node: ast.AST, seeded: set[int]) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        code = ast.unparse(node)
        on_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if node.attr.startswith("_") and not on_self and not node.attr.startswith("__"):
            yield f"line {node.lineno}: private {code}"
        if node.attr in DOORS or code.startswith(("np.random", "torch.random")):
            yield f"line {node.lineno}: {code}"
        if node.attr in UNSEEDED and ast.unparse(node.value) == "torch" and node.lineno not in seeded:
            yield f"line {node.lineno}: unseeded {code}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        code = ast.unparse(node)
        if not code.startswith("getattr(self, "):
            yield f"line {node.lineno}: {code}"

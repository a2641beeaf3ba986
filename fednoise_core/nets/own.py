"""Nets of one's own, given as a function instead of its name."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.spec import Train

__all__ = ["with_named_nets"]


def with_named_nets(train: Any) -> Any:
    """Training settings whose nets all have names: a function becomes `{"name": "module", "factory": "file:function"}`.

    Worker processes and result files know a net by name. Raises SpecError for a function that no name leads to.
    """
    if isinstance(train, Train):
        return dataclasses.replace(train, net=_named(train.net))
    if isinstance(train, Mapping) and "net" in train:
        return {**train, "net": _named(train["net"])}
    return train


def _named(net: Any) -> Any:
    if isinstance(net, list | tuple):
        return [_named(one) for one in net]
    if isinstance(net, Mapping) and callable(net.get("factory")):
        return {**net, "factory": _name(net["factory"])}
    return {"name": "module", "factory": _name(net)} if callable(net) else net


def _name(factory: Any) -> str:
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    found = getattr(sys.modules.get(str(module)), str(name), None)
    if found is not factory:
        raise SpecError(f"train.net: {factory!r} has no name; define a function at the top level of a module")
    return f"{module}:{name}"

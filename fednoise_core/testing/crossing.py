"""What crosses between clients and server while a method runs: its names, to compare with what the class declares
(`wire`), its bytes, and whether it tells a client's labels.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fednoise_core.engine.federation import SERVER, Federation
from fednoise_core.engine.relay import Relayed
from fednoise_core.ops.weights import Weights, count_bytes

__all__ = ["SIDES", "Crossed", "differences", "tells_labels", "watched"]

SIDES = ("down", "up", "relay")  # to clients, to the server, and up for other clients
FEW = 5  # a client with fewer samples is not looked at: its labels could stand in a tensor by chance


@dataclass
class Crossed:
    """names: side -> name -> the round in which it first crossed. labels: where a client's labels went up. bytes_down,
    bytes_up: of all that was seen, to compare with what the engine counts.
    """

    names: dict[str, dict[str, int]] = field(default_factory=lambda: {side: {} for side in SIDES})
    labels: list[str] = field(default_factory=list)
    bytes_down: int = 0
    bytes_up: int = 0

    def sent(self, state: Any, down: Mapping[str, Any]) -> None:
        """The server sent this to one client."""
        for name, value in down.items():
            self.names["down"].setdefault(name, state.round)
            self.bytes_down += state._relay.size(value) if isinstance(value, Relayed) else count_bytes(value)

    def said(self, fed: Federation, state: Any, client: int, what: Any, source: str) -> None:
        """A client sent this up; what is no dict has the name `source`."""
        up = dict(what) if isinstance(what, Mapping) else {} if what is None else {source: what}
        for side, part in (("relay", up.pop("relay", {})), ("up", up)):
            for name, value in part.items():
                self.names[side].setdefault(name, state.round)
                self.bytes_up += count_bytes(value)
                if tells_labels(value, fed._world.given[fed._world.index[client]]):
                    self.labels.append(f"round {state.round}, client {client}: {side} {name!r}")

    def handed_over(self, fed: Federation) -> None:
        """What clients gave away before there was a federation of one client (`pooled`)."""
        if fed._world.handed_over and "labels" not in self.names["up"]:
            self.names["up"] |= {"images": 0, "labels": 0}
            self.bytes_up += fed._world.handed_over

    def declaration(self) -> str:
        """What crossed, as a class would declare it."""
        sides = {side: tuple(sorted(names)) for side, names in self.names.items() if names or side != "relay"}
        return f"wire: ClassVar = {sides}".replace("'", '"')


def differences(wire: Mapping[str, Sequence[str]], crossed: Crossed) -> list[str]:
    """How a declaration differs from what crossed, a line each; docs/add_a_method.md has its form."""
    found = [f"{side!r} is none of {', '.join(SIDES)}" for side in wire if side not in SIDES]
    for side in SIDES:
        seen, declared = crossed.names[side], wire.get(side, ())
        for name, round in seen.items():
            if not any(fnmatchcase(name, pattern.removesuffix("?")) for pattern in declared):
                found.append(f"{side} {name!r} crossed in round {round} and is not declared")
        for pattern in declared:
            if not pattern.endswith("?") and not any(fnmatchcase(name, pattern) for name in seen):
                found.append(f"{side} {pattern!r} is declared and never crossed in this run")
    return found


def tells_labels(value: Any, y: Tensor) -> bool:
    """Whether a tensor, an entry of weights, or a list or dict of numbers in `value` holds exactly the labels y [n], in
    whatever order and shape, or one row [K] per sample with a single number other than 0 in the label's place. Parts of
    longer tensors, and counts, are not found.
    """
    if isinstance(value, Weights):
        value = dict(value.views)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        numbers = len(value) == len(y) and all(isinstance(part, int | float) for part in value)
        return tells_labels(torch.tensor(value), y) if numbers else any(tells_labels(part, y) for part in value)
    tensor = value
    if not isinstance(tensor, Tensor) or len(y) < FEW:
        return False
    there = tensor != 0
    if tensor.dim() == 2 and len(tensor) == len(y) > 0 and tensor.shape[1] > 1 and bool((there.sum(1) == 1).all()):
        tensor = there.int().argmax(1)
    if tensor.numel() != len(y):
        return False
    return torch.equal(tensor.flatten().double().sort().values, y.double().sort().values)


@contextlib.contextmanager
def watched() -> Iterator[Crossed]:
    """Record what crosses in every federation that runs in this process, on the executor `sequential`."""
    crossed = Crossed()
    requests_of, collect, on_clients, lockstep = (
        getattr(Federation, name) for name in ("_requests", "_collect", "on_clients", "lockstep")
    )

    def seen_requests(self: Federation, local: Any, state: Any, who: Any, down: Any, each: Any, *rest: Any) -> Any:
        made = requests_of(self, local, state, who, down, each, *rest)
        crossed.handed_over(self)
        for c, extra in zip(who, each or [{}] * len(who), strict=True):
            if c != SERVER:
                crossed.sent(state, {**down, **extra})
        return made

    def seen_results(self: Federation, state: Any, requests: Any, sent: Any, results: Any) -> Any:
        def one(request: Any, result: Any) -> Any:
            if request.client != SERVER:
                crossed.said(self, state, request.client, {**result.up, "relay": result.relay}, "")
                crossed.bytes_up -= result.twice  # what is sent and handed on crosses once
            return result

        return collect(self, state, requests, sent, (one(*pair) for pair in zip(requests, results, strict=True)))

    def seen_calls(self: Federation, state: Any, who: Any, fn: Any, down: Any = None, *, each: Any = None) -> Any:
        if fn.__name__ == "suspects":  # the run's last question, whose answers stay with the clients' owners
            return on_clients(self, state, who, fn, down, each=each)

        @functools.wraps(fn)
        def one(me: Any, heard: Any) -> Any:
            said = fn(me, heard)
            crossed.said(self, state, me.id, said, f"{fn.__name__}()")
            return said

        for extra in each or [{}] * len(who):
            crossed.sent(state, {**(down or {}), **extra})
        return on_clients(self, state, who, one, down, each=each)

    def seen_lockstep(self: Federation, local: Any, state: Any, who: Any, down: Any, combine: Any, **how: Any) -> Any:
        def combined(said: Any) -> Any:
            heard = list(combine(said))
            for c, up, answer in zip(who, said, heard, strict=False):
                crossed.said(self, state, c, up, "")
                crossed.sent(state, answer)
            return heard

        return lockstep(self, local, state, who, down, combined, **how)

    with (
        patch.object(Federation, "_requests", seen_requests),
        patch.object(Federation, "_collect", seen_results),
        patch.object(Federation, "on_clients", seen_calls),
        patch.object(Federation, "lockstep", seen_lockstep),
    ):
        yield crossed

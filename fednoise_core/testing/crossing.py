"""Record the values that clients and server exchange while a method runs.

Their names are compared with the class's declaration (`wire`), and their bytes with the engine's count. Values that
reveal a client's labels are detected.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fednoise_core.engine.federation import Federation
from fednoise_core.engine.relay import Relayed
from fednoise_core.engine.world import SERVER
from fednoise_core.ops.weights import Weights, count_bytes

SIDES = ("broadcast", "update", "relay")  # to clients, to the server, and through the server to other clients
FEW = 5  # clients with fewer samples are not checked, because a tensor could contain their labels by chance


@dataclass
class Crossed:
    """Record of all values that clients and server exchanged in a run.

    Attributes:
        names: side -> name -> the first round in which it was sent.
        labels: Descriptions of values that revealed a client's labels.
        bytes_down: Bytes of all recorded broadcasts, to compare with the engine's count.
        bytes_up: Bytes of all recorded updates.
    """

    names: dict[str, dict[str, int]] = field(default_factory=lambda: {side: {} for side in SIDES})
    labels: list[str] = field(default_factory=list)
    bytes_down: int = 0
    bytes_up: int = 0

    def record_broadcast(self, state: Any, broadcast: Mapping[str, Any]) -> None:
        """Record the values that the server sends to one client.

        Args:
            state: The run's state, for the round and the size of relayed messages.
            broadcast: Values by name.
        """
        for name, value in broadcast.items():
            self.names["broadcast"].setdefault(name, state.round)
            self.bytes_down += state.relay.size(value) if isinstance(value, Relayed) else count_bytes(value)

    def record_update(self, fed: Federation, state: Any, client: int, values: Any, source: str) -> None:
        """Record the values that a client sends.

        Args:
            fed: The federation, for the client's labels.
            state: The run's state, for the round.
            client: The client's number.
            values: Values by name, or one value.
            source: The name of such a single value.
        """
        update = dict(values) if isinstance(values, Mapping) else {} if values is None else {source: values}
        for side, part in (("relay", update.pop("relay", {})), ("update", update)):
            for name, value in part.items():
                self.names[side].setdefault(name, state.round)
                self.bytes_up += count_bytes(value)
                if tells_labels(value, fed.world.labels[fed.world.index[client]]):
                    self.labels.append(f"round {state.round}, client {client}: {side} {name!r}")

    def count_pooling(self, fed: Federation) -> None:
        """Count the bytes that clients sent for pooling, before the federation of one client (`pooled`).

        Only the first call has an effect, and only with pooling.
        """
        if fed.world.pooling_bytes and "labels" not in self.names["update"]:
            self.names["update"] |= {"images": 0, "labels": 0}
            self.bytes_up += fed.world.pooling_bytes

    def format_wire(self) -> str:
        """Write the recorded names in the form of a class's declaration."""
        sides = {side: tuple(sorted(names)) for side, names in self.names.items() if names or side != "relay"}
        return f"wire: ClassVar = {sides}".replace("'", '"')


def compare_wire(wire: Mapping[str, Sequence[str]], crossed: Crossed) -> list[str]:
    """Compare a declaration with the recorded names.

    Args:
        wire: side -> names, in the form of docs/method_reference.md.
        crossed: The record.

    Returns:
        One line for each difference.
    """
    problems = [f"{side!r} is none of {', '.join(SIDES)}" for side in wire if side not in SIDES]
    for side in SIDES:
        seen, declared = crossed.names[side], wire.get(side, ())
        for name, round in seen.items():
            if not any(fnmatchcase(name, pattern.removesuffix("?")) for pattern in declared):
                problems.append(f"{side} {name!r} crossed in round {round} and is not declared")
        for pattern in declared:
            if not pattern.endswith("?") and not any(fnmatchcase(name, pattern) for name in seen):
                problems.append(f"{side} {pattern!r} is declared and never crossed in this run")
    return problems


def tells_labels(value: Any, y: Tensor) -> bool:
    """Return True if a value reveals a client's labels.

    This is so if a tensor, an entry of weights, or a list or dict of numbers in it contains exactly the labels, in any
    order and shape. It is also so if it has one row [K] per sample whose only nonzero number is at the label's
    position. Parts of longer tensors, and counts, are not detected.

    Args:
        value: The value that was sent.
        y: The labels [n].
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
def watch_crossing() -> Iterator[Crossed]:
    """Record the exchange in every federation that runs in this process with the executor `sequential`.

    Yields:
        The record, which is updated during the run.
    """
    crossed = Crossed()
    requests_of, collect = Federation._make_requests, Federation._collect_results
    on_clients, lockstep = Federation.run_on_clients, Federation.fit_lockstep

    def seen_requests(self: Federation, state: Any, common: Any, clients: Any, per_client: Any, *arguments: Any) -> Any:
        made = requests_of(self, state, common, clients, per_client, *arguments)
        crossed.count_pooling(self)
        for c, extra in zip(clients, per_client or [{}] * len(clients), strict=True):
            if c != SERVER:
                crossed.record_broadcast(state, {**common.broadcast, **extra})
        return made

    def seen_results(self: Federation, state: Any, requests: Any, sent: Any, results: Any) -> Any:
        def one(request: Any, result: Any) -> Any:
            if request.client != SERVER:
                crossed.record_update(self, state, request.client, {**result.update, "relay": result.relay}, "")
                crossed.bytes_up -= result.twice  # bytes in both update and relay are sent once
            return result

        return collect(self, state, requests, sent, (one(*pair) for pair in zip(requests, results, strict=True)))

    def seen_calls(
        self: Federation, state: Any, clients: Any, fn: Any, broadcast: Any = None, *, per_client: Any = None
    ) -> Any:
        if fn.__name__ in ("predict_held_out", "suspect_labels"):  # their results stay with the owners
            return on_clients(self, state, clients, fn, broadcast, per_client=per_client)

        @functools.wraps(fn)
        def one(client: Any, broadcast: Any) -> Any:
            answer = fn(client, broadcast)
            crossed.record_update(self, state, client.id, answer, f"{fn.__name__}()")
            return answer

        for extra in per_client or [{}] * len(clients):
            crossed.record_broadcast(state, {**(broadcast or {}), **extra})
        return on_clients(self, state, clients, one, broadcast, per_client=per_client)

    def seen_lockstep(
        self: Federation, local: Any, state: Any, clients: Any, broadcast: Any, combine: Any, **fit_options: Any
    ) -> Any:
        def combined(messages: Any) -> Any:
            replies = list(combine(messages))
            for c, update, answer in zip(clients, messages, replies, strict=False):
                crossed.record_update(self, state, c, update, "")
                crossed.record_broadcast(state, answer)
            return replies

        return lockstep(self, local, state, clients, broadcast, combined, **fit_options)

    seen: dict[str, Any] = {"_make_requests": seen_requests, "_collect_results": seen_results}
    with patch.multiple(Federation, **seen, run_on_clients=seen_calls, fit_lockstep=seen_lockstep):
        yield crossed

"""Client: what client-side code may see of one client. Handed to `prepare`, `after` and the functions of
`fed.on_clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.client_store import KeptSource, WireError, fetched
from fednoise_core.engine.world import World
from fednoise_core.nets.net import Net
from fednoise_core.ops.weights import Weights, tree_map
from fednoise_core.rng import stream

__all__ = ["Client", "call_on", "refuse_changed", "versions"]


class Client:
    """One client's side: its samples, its labels, what it keeps. Row k of every tensor here is its k-th sample.

    id: its number. n: its training samples. classes: K. net: its architecture. round: the run's round.
    """

    def __init__(self, world: World, number: int, kept: KeptSource, targets: Tensor | None, round: int):
        self._world, self.kept = world, kept
        self.relabelled = targets  # None: its targets are its given labels
        self._mine: dict[str, Any] | None = None
        self._had: dict[str, Any] | None = None  # what `mine` was when it was fetched
        self._versions: list[tuple[str, Tensor, int]] = []  # of the tensors in it then
        self.id, self.round = number, round
        self.n, self.classes, self.net = world.sizes[number], world.classes, world.net(number)
        self.changed = False  # whether `targets` was written

    @property
    def mine(self) -> dict[str, Any]:
        """What it keeps between rounds. Fetched when first asked for: it may lie in a file. Replace its entries; never
        change a tensor of it in place (`take` raises then).
        """
        if self._mine is None:
            self._mine = tree_map(lambda leaf: leaf, fetched(self.kept))  # lists and dicts of its own
            self._had = dict(self._mine)
            self._versions = versions(self._mine)
        return self._mine

    @mine.setter
    def mine(self, value: dict[str, Any]) -> None:
        self._mine = value

    def take(self, who: str = "client-side code") -> dict[str, Any] | None:
        """Hand over what this client keeps; None if nothing was replaced since it was fetched. The Client is empty
        afterwards.

        Raises WireError, naming `who`, the client and the entry, if a tensor kept was changed in place: on some
        executors the client has a copy, and the change would be lost.
        """
        mine, had, were = self._mine, self._had, self._versions
        self._mine, self._had, self.kept, self._versions = None, None, {}, []
        refuse_changed(who, self.id, were)
        if mine is None or had is None:  # never fetched: what was put in its place is new, also if it is empty
            return mine
        # lists and dicts may have been changed in place
        same = mine.keys() == had.keys() and all(mine[k] is had[k] and not isinstance(had[k], dict | list) for k in had)
        return None if same else mine

    @property
    def labels(self) -> Tensor:
        """Its given labels [n] int64, never changed."""
        return self._world.given[self._world.index[self.id]]

    @property
    def targets(self) -> Tensor:
        """What it trains on now, [n] int64 or [n, K]; starts as the given labels."""
        return self.labels if self.relabelled is None else self.relabelled

    @targets.setter
    def targets(self, value: Tensor) -> None:
        """Raises ValueError for another number of rows."""
        if len(value) != self.n:
            raise ValueError(f"client {self.id} has {self.n} samples, got {len(value)} targets")
        self.relabelled, self.changed = value, True

    def stream(self, *words: str | int) -> torch.Generator:
        """A random stream for (run seed, words, round, client): a torch CPU generator. No other code draws from it; the
        same words in one round give the same stream again.
        """
        return self._world.stream("client", *words, self.round, self.id)

    def rng(self, *words: str | int) -> np.random.Generator:
        """The same for numpy code (a stream of its own)."""
        return stream(self._world.seed, "client", *words, self.round, self.id)

    def seed(self, *words: str | int) -> int:
        """A number below 2^31 from the stream of these words, for libraries that want a seed."""
        return int(self.rng(*words).integers(2**31))

    def predict(self, w: Weights, *, on: str = "train", ids: Tensor | None = None, net: Net | None = None) -> Tensor:
        """Logits [n, K] of a model (default: of its own architecture) on its samples, in evaluation mode.

        on: "train", "valid", or "public" (then `ids` picks images of the public pool).
        """
        rows = self._world.rows(self.id, on)
        rows = rows if ids is None else rows[ids]
        return self._world.evaluate(net or self.net, w, self._world.pool(on), rows).clone()

    def features(self, w: Weights, *, on: str = "train", ids: Tensor | None = None) -> Tensor:
        """Penultimate features [n, d], evaluation mode."""
        rows = self._world.rows(self.id, on)
        rows = rows if ids is None else rows[ids]
        return self._world.evaluate(self.net, w, self._world.pool(on), rows, "features").clone()


def versions(held: Mapping[str, Any], what: str = "mine") -> list[tuple[str, Tensor, int]]:
    """Each tensor among the values of `held`: where it stands (`what[name]`), itself, and its number of changes."""
    return [(f"{what}[{name!r}]", t, t._version) for name, value in held.items() for t in _tensors(value)]


def refuse_changed(who: str, client: int, were: Iterable[tuple[str, Tensor, int]]) -> None:
    """Raise WireError if one of these was changed in place since `versions` looked at them."""
    for where, tensor, version in were:
        if tensor._version != version:
            cure = "which other clients would see: make a new tensor of it"
            if where.startswith("mine"):
                cure = f"which some executors would lose: put a new one in its place, me.{where} = …"
            raise WireError(f"{who}: client {client}: {where} was changed in place, {cure}")


def call_on(me: Client, fn: Callable[[Client, Any], Any], down: Mapping[str, Any]) -> Any:
    """fn(me, down). Raises WireError if it changes what came down."""
    were = versions(down, "down")
    said = fn(me, down)
    refuse_changed(getattr(fn, "__qualname__", "client-side code"), me.id, were)
    return said


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in something kept, those of weights as their one flat tensor."""
    if isinstance(value, Weights):
        value = value.flat
    if isinstance(value, Tensor) and not value.is_inference():
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)

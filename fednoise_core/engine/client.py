"""Client: what client-side code may see of one client. Handed to `prepare_fit`, `after_fit` and the functions of
`fed.run_on_clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.client_store import MappingSource, WireError, load_mapping
from fednoise_core.engine.world import World
from fednoise_core.nets.net import Net
from fednoise_core.ops.weights import Weights, tree_map
from fednoise_core.rng import stream

__all__ = ["Client", "call_on", "record_versions", "refuse_changed"]


class Client:
    """One client's side: its samples, its labels, what it keeps. Row k of every tensor here is its k-th sample.

    id: its number. n: its training samples. classes: K. net: its architecture. round: the run's round.
    """

    def __init__(self, world: World, number: int, kept: MappingSource, targets: Tensor | None, round: int):
        self._world, self.kept = world, kept
        self.relabelled = targets  # None: its targets are its given labels
        self._state: dict[str, Any] | None = None
        self._had: dict[str, Any] | None = None  # what `state` was when it was fetched
        self._versions: list[tuple[str, Tensor, int]] = []  # of the tensors in it then
        self.id, self.round = number, round
        self.n, self.classes, self.net = world.sizes[number], world.classes, world.net(number)
        self.changed = False  # whether `targets` was written

    @property
    def state(self) -> dict[str, Any]:
        """What it keeps between rounds. Fetched when first asked for: it may lie in a file. Replace its entries; never
        change a tensor of it in place (`release_state` raises then).
        """
        if self._state is None:
            self._state = tree_map(lambda leaf: leaf, load_mapping(self.kept))  # lists and dicts of its own
            self._had = dict(self._state)
            self._versions = record_versions(self._state)
        return self._state

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        self._state = value

    def release_state(self, source: str = "client-side code") -> dict[str, Any] | None:
        """Hand over what this client keeps; None if nothing was replaced since it was fetched. The Client is empty
        afterwards.

        Raises WireError, naming `source`, the client and the entry, if a tensor kept was changed in place: on some
        executors the client has a copy, and the change would be lost.
        """
        state, had, were = self._state, self._had, self._versions
        self._state, self._had, self.kept, self._versions = None, None, {}, []
        refuse_changed(source, self.id, were)
        if state is None or had is None:  # never fetched: what was put in its place is new, also if it is empty
            return state
        # lists and dicts may have been changed in place
        same = state.keys() == had.keys() and all(
            state[k] is had[k] and not isinstance(had[k], dict | list) for k in had
        )
        return None if same else state

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

    def random_stream(self, *words: str | int) -> torch.Generator:
        """A random stream for (run seed, words, round, client): a torch CPU generator. No other code draws from it; the
        same words in one round give the same stream again.
        """
        return self._world.random_stream("client", *words, self.round, self.id)

    def numpy_rng(self, *words: str | int) -> np.random.Generator:
        """The same for numpy code (a stream of its own)."""
        return stream(self._world.seed, "client", *words, self.round, self.id)

    def derive_seed(self, *words: str | int) -> int:
        """A number below 2^31 from the stream of these words, for libraries that want a seed."""
        return int(self.numpy_rng(*words).integers(2**31))

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


def record_versions(held: Mapping[str, Any], what: str = "state") -> list[tuple[str, Tensor, int]]:
    """Each tensor among the values of `held`: where it stands (`what[name]`), itself, and its number of changes."""
    return [(f"{what}[{name!r}]", t, t._version) for name, value in held.items() for t in _iterate_tensors(value)]


def refuse_changed(source: str, client: int, were: Iterable[tuple[str, Tensor, int]]) -> None:
    """Raise WireError if one of these was changed in place since `versions` looked at them."""
    for where, tensor, version in were:
        if tensor._version != version:
            cure = "which other clients would see: make a new tensor of it"
            if where.startswith("state"):
                cure = f"which some executors would lose: put a new one in its place, client.{where} = …"
            raise WireError(f"{source}: client {client}: {where} was changed in place, {cure}")


def call_on(client: Client, fn: Callable[[Client, Any], Any], broadcast: Mapping[str, Any]) -> Any:
    """fn(client, broadcast). Raises WireError if it changes what came down."""
    were = record_versions(broadcast, "broadcast")
    answer = fn(client, broadcast)
    refuse_changed(getattr(fn, "__qualname__", "client-side code"), client.id, were)
    return answer


def _iterate_tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in something kept, those of weights as their one flat tensor."""
    if isinstance(value, Weights):
        value = value.flat
    if isinstance(value, Tensor) and not value.is_inference():
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _iterate_tensors(part)

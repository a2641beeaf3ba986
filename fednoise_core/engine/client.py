"""Client: the data of one client that client-side code may access.

It is an argument of `prepare_fit`, `after_fit` and the functions of `fed.run_on_clients`.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.client_store import MappingSource, WireError, load_mapping
from fednoise_core.engine.world import World
from fednoise_core.nets.net import Net
from fednoise_core.ops.weights import Weights, iterate_leaves, tree_map
from fednoise_core.rng import stream


class Client:
    """Samples, labels and client state of one client.

    Row k of every tensor here belongs to the client's k-th sample.

    Attributes:
        id: The client's number.
        n: Number of its training samples.
        classes: K, the number of classes.
        net: Its architecture.
        round: The run's round, from 1.
        changed: Whether `targets` was assigned.
    """

    def __init__(self, world: World, number: int, kept: MappingSource, targets: Tensor | None, round: int):
        self._world, self.kept = world, kept
        self.relabelled = targets  # None: its targets are its given labels
        self._state: dict[str, Any] | None = None
        self._had: dict[str, Any] | None = None  # content of `state` when it was loaded
        self._versions: list[tuple[str, Tensor, int]] = []  # versions of its tensors at that time
        self.id, self.round = number, round
        self.n, self.classes, self.net = world.sizes[number], world.classes, world.net(number)
        self.changed = False  # whether `targets` was assigned

    @property
    def state(self) -> dict[str, Any]:
        """Values that the client stores between rounds, by name.

        It may be in a file, so it is loaded on first access. Replace its entries, and never change a tensor in place.
        `release_state` raises an error for a tensor that was changed in place.
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
        """Return the client state and remove it from this object.

        Args:
            source: The method or function to name in an error.

        Returns:
            The client state, or None if it has not changed since it was loaded.

        Raises:
            WireError: A tensor of the client state was changed in place. On some executors the client has a copy, and
                the change would be lost.
        """
        state, had, were = self._state, self._had, self._versions
        self._state, self._had, self.kept, self._versions = None, None, {}, []
        refuse_changed(source, self.id, were)
        if state is None or had is None:  # never loaded: an assigned state is new, even if it is empty
            return state
        # lists and dicts may have been changed in place
        same = state.keys() == had.keys() and all(
            state[k] is had[k] and not isinstance(had[k], dict | list) for k in had
        )
        return None if same else state

    @property
    def labels(self) -> Tensor:
        """The client's given labels, [n] int64. They never change."""
        return self._world.labels[self._world.index[self.id]]

    @property
    def corrected(self) -> Tensor:
        """True for each given label that was corrected after it was collected, bool [n]."""
        return (self._world.first != self._world.labels)[self._world.index[self.id]]

    @property
    def targets(self) -> Tensor:
        """The targets that the client trains on now, [n] int64 or [n, K].

        They start as the given labels. Assigning other targets relabels the client.
        Raises ValueError for another number of rows.
        """
        return self.labels if self.relabelled is None else self.relabelled

    @targets.setter
    def targets(self, value: Tensor) -> None:
        """Raises ValueError for another number of rows."""
        if len(value) != self.n:
            raise ValueError(f"client {self.id} has {self.n} samples, got {len(value)} targets")
        self.relabelled, self.changed = value, True

    def random_stream(self, *key: str | int) -> torch.Generator:
        """Make the random stream of (run seed, words, round, client).

        It belongs to this client and round only. The same words in one round give the same stream again.

        Returns:
            A torch CPU generator.
        """
        return self._world.random_stream("client", *key, self.round, self.id)

    def numpy_rng(self, *key: str | int) -> np.random.Generator:
        """Make the random stream of (run seed, words, round, client) for numpy code.

        Its numbers differ from those of `random_stream` with the same words.
        The same words in one round give the same stream again.
        """
        return stream(self._world.seed, "client", *key, self.round, self.id)

    def derive_seed(self, *key: str | int) -> int:
        """Draw a number below 2^31 from the stream of these words, as a seed for other libraries.

        The same words in one round give the same number again.
        """
        return int(self.numpy_rng(*key).integers(2**31))

    def deal_folds(self, folds: int) -> Tensor:
        """Assign the client's samples to folds at random. Equal images are in the same fold.

        If clients share samples, the fold depends only on the seed and the image, so it is the same at all clients.
        Otherwise the folds have equal numbers of distinct images, up to 1.

        Args:
            folds: Number of folds.

        Returns:
            int64 [n], from 0.
        """
        raw = self._world.pool("train").raw(self._world.index[self.id]).cpu().numpy()
        digests = [hashlib.sha256(image).digest() for image in raw]
        if self._world.max_label_copies > 1:
            key = str(self._world.seed).encode()
            drawn = [int.from_bytes(hashlib.sha256(key + digest).digest()[:8], "big") for digest in digests]
            return torch.tensor([number % folds for number in drawn])
        seen: dict[bytes, int] = {}
        image = torch.tensor([seen.setdefault(digest, len(seen)) for digest in digests])
        return torch.from_numpy(self.numpy_rng("folds").permutation(np.arange(len(seen)) % folds))[image]

    def predict(self, w: Weights, *, on: str = "train", ids: Tensor | None = None, net: Net | None = None) -> Tensor:
        """Compute logits of a model on the client's samples, in evaluation mode.

        Args:
            w: The model's weights.
            on: "train", "valid", or "public".
            ids: Positions in that pool. Default: all.
            net: The architecture of `w`. Default: the client's own.

        Returns:
            float32 [n, K].
        """
        rows = self._world.rows(self.id, on)
        rows = rows if ids is None else rows[ids]
        return self._world.evaluate(net or self.net, w, self._world.pool(on), rows).clone()

    def features(self, w: Weights, *, on: str = "train", ids: Tensor | None = None) -> Tensor:
        """Compute the penultimate features of a model on the client's samples, in evaluation mode.

        Args:
            w: Weights of the client's own architecture.
            on: "train", "valid", or "public".
            ids: Positions in that pool. Default: all.

        Returns:
            float32 [n, d].
        """
        rows = self._world.rows(self.id, on)
        rows = rows if ids is None else rows[ids]
        return self._world.evaluate(self.net, w, self._world.pool(on), rows, "features").clone()


def record_versions(values: Mapping[str, Any], title: str = "state") -> list[tuple[str, Tensor, int]]:
    """Record torch's version counter of each tensor in `values`, which counts changes in place.

    Args:
        values: Values by name. Tensors are found inside dicts, lists, tuples and weights.
        title: The name of `values` in errors.

    Returns:
        (place of the tensor as `title[name]`, the tensor, its version) for each tensor.
    """
    leaves = [(f"{title}[{name!r}]", leaf) for name, value in values.items() for leaf in iterate_leaves(value)]
    return [(where, t, t._version) for where, t in leaves if isinstance(t, Tensor) and not t.is_inference()]


def refuse_changed(source: str, client: int, were: Iterable[tuple[str, Tensor, int]]) -> None:
    """Raise an error if a tensor was changed in place since `record_versions` was called.

    Args:
        source: The method or function to name in the error.
        client: The client's number, also for the error.
        were: The result of `record_versions`.

    Raises:
        WireError: A tensor was changed. The change would be lost on some executors, or visible to other clients.
    """
    for where, tensor, version in were:
        if tensor._version != version:
            cure = "which other clients would see: make a new tensor of it"
            if where.startswith("state"):
                cure = f"which some executors would lose: put a new one in its place, client.{where} = …"
            raise WireError(f"{source}: client {client}: {where} was changed in place, {cure}")


def call_on(client: Client, fn: Callable[[Client, Any], Any], broadcast: Mapping[str, Any]) -> Any:
    """Call `fn(client, broadcast)` and return its result.

    Raises:
        WireError: `fn` changed a tensor of the broadcast in place. Other clients would see the change.
    """
    were = record_versions(broadcast, "broadcast")
    answer = fn(client, broadcast)
    refuse_changed(getattr(fn, "__qualname__", "client-side code"), client.id, were)
    return answer

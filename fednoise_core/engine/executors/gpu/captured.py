"""The buffers that captured steps read and write, and what decides whether a captured step can be used again."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fednoise_core.engine.client import record_versions, refuse_changed
from fednoise_core.engine.fit import ClientFit
from fednoise_core.engine.local import Batch, Local
from fednoise_core.engine.plan import Plan
from fednoise_core.ops.weights import Weights


def compute_signature(fit: ClientFit) -> Any:
    """Describe what a captured step depends on beside numbers in buffers.

    These are the method's fields, the net, and the shapes of all that goes in.

    Returns:
        A key. Fits with equal keys can use one captured step.
    """
    return (
        freeze_value(fit.local),
        id(fit.net),
        fit.request.on,
        fit.size,
        _describe_shape(fit.broadcast),
        _describe_shape(fit.step_client_state),
        tuple((name, trained.w.layout) for name, trained in fit.carry.items()),
        _describe_rows(fit.x),
        _describe_rows(fit.y),
        tuple((n, _describe_rows(v)) for n, v in sorted(fit.aux.items())),
        tuple((n, _describe_rows(v)) for n, v in sorted(fit.state.items())),
        tuple(fit.more),
        fit.plan.u.shape[1],
        fit.plan.masks.shape[1],
    )


def freeze_value(value: Any) -> Any:
    """Turn a value into something to compare and to hash.

    It tells two values apart wherever a step could: a Local by its fields, a tensor by its numbers (their text leaves
    out all but the first and last of a thousand).
    """
    if isinstance(value, Mapping):
        return tuple((k, freeze_value(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return (type(value), *map(freeze_value, value))
    if isinstance(value, Weights):
        return "weights", value.layout, freeze_value(value.flat)
    if isinstance(value, Tensor):
        numbers = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
        return "tensor", value.shape, value.dtype, hashlib.sha256(numbers.tobytes()).digest()
    if isinstance(value, Local) or dataclasses.is_dataclass(value):
        return type(value), *((k, freeze_value(v)) for k, v in vars(value).items())
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value), value  # the type, too: 1 == 1.0 == True


def _describe_rows(tensor: Tensor) -> Any:
    return tensor.shape[1:], tensor.dtype


def _describe_shape(tree: Any) -> Any:
    """A tree's structure: shapes of tensors, values of everything that stays a Python constant in the graph."""
    if isinstance(tree, Mapping):
        return tuple((k, _describe_shape(v)) for k, v in sorted(tree.items()))
    if isinstance(tree, list | tuple):
        return tuple(_describe_shape(v) for v in tree)
    if isinstance(tree, Weights):
        return ("weights", tree.layout)
    if isinstance(tree, Tensor):
        return (tree.shape, tree.dtype)
    return "number" if isinstance(tree, float) else ("constant", tree)


def _make_buffers(tree: Any, device: torch.device) -> Any:
    """Buffers of a tree's structure; floats become tensors, because they may change from round to round."""
    if isinstance(tree, Mapping):
        return {k: _make_buffers(v, device) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [_make_buffers(v, device) for v in tree]
    if isinstance(tree, Weights):
        return tree.like(torch.empty_like(tree.flat, device=device))
    if isinstance(tree, Tensor):
        return torch.empty_like(tree, device=device)
    return torch.tensor(tree, dtype=torch.float64, device=device) if isinstance(tree, float) else tree


def _load_buffers(buffer: Any, tree: Any) -> None:
    if isinstance(tree, Mapping):
        for k, v in tree.items():
            _load_buffers(buffer[k], v)
    elif isinstance(tree, list | tuple):
        for b, v in zip(buffer, tree, strict=True):
            _load_buffers(b, v)
    elif isinstance(tree, Weights):
        buffer.flat.copy_(tree.flat, non_blocking=True)
    elif isinstance(tree, Tensor):
        buffer.copy_(tree, non_blocking=True)
    elif isinstance(tree, float):
        buffer.fill_(tree)


def _make_rows(like: Tensor, rows: int) -> Tensor:
    """An empty buffer of `rows` rows as those of `like`."""
    return like.new_empty((rows, *like.shape[1:]))


class _PlanBuffers:
    """Room for one pool's plan, and where its cursor stands."""

    def __init__(self, plan: Plan, rows: int):
        self.order, self.u, self.masks = (_make_rows(t, rows) for t in (plan.order, plan.u, plan.masks))

    def can_hold(self, plan: Plan) -> bool:
        return len(self.order) >= len(plan.order)

    def load(self, plan: Plan) -> None:
        for buffer, its in ((self.order, plan.order), (self.u, plan.u), (self.masks, plan.masks)):
            buffer[: len(its)].copy_(its, non_blocking=True)


class StepBuffers:
    """The buffers of one signature, which captured steps read and write, and these steps by their batch sizes."""

    def __init__(self, fit: ClientFit):
        device = fit.world.device
        self.fit = fit  # for its views, net and method; its own tensors are not read
        self.captured: dict[tuple[int, ...], Callable[[], None]] = {}
        self.met: Counter[tuple[int, ...]] = Counter()  # steps of these sizes before their capture
        self.carry = fit.carry
        self.broadcast, self.client_state = (
            _make_buffers(fit.broadcast, device),
            _make_buffers(fit.step_client_state, device),
        )
        # Allocate for twice this client (at most the largest client): growing the buffers later means capturing again.
        batch, largest = fit.size, max(fit.world.sizes)
        rows = max(len(fit.x), min(2 * len(fit.x), largest))
        places = max(len(fit.plan.order), min(2 * len(fit.plan.order), fit.request.epochs * (largest + batch)))
        self.x, self.y = _make_rows(fit.x, rows), _make_rows(fit.y, rows)
        self.aux = {name: _make_rows(values, rows) for name, values in fit.aux.items()}
        self.state = {name: _make_rows(values, rows) for name, values in fit.state.items()}
        self.plan = _PlanBuffers(fit.plan, places)
        self.more = {name: _PlanBuffers(plan, 2 * len(plan.order)) for name, plan in fit.more.items()}
        self.cursors = torch.zeros(1 + len(self.more), dtype=torch.int64, device=device)
        self.count = torch.arange(batch, device=device)
        self.at = [0] * (1 + len(self.more))  # where the cursors stand, as the host knows

    def can_hold(self, fit: ClientFit) -> bool:
        """Return True if a client's data fit into the buffers."""
        plans = all(self.more[name].can_hold(plan) for name, plan in fit.more.items())
        return len(self.x) >= len(fit.x) and self.plan.can_hold(fit.plan) and plans

    def load(self, fit: ClientFit) -> None:
        """Copy a fit's inputs in. Its weights lie in the workspace already.

        From here on the fit's per-sample state is what lies in these buffers.
        Call it at the start of every stretch.
        """
        self.fit = fit
        _load_buffers(self.broadcast, fit.broadcast)
        _load_buffers(self.client_state, fit.step_client_state)
        for buffer, its in (
            (self.x, fit.x),
            (self.y, fit.y),
            *((self.aux[n], v) for n, v in fit.aux.items()),
            *((self.state[n], v) for n, v in fit.state.items()),
        ):
            buffer[: len(its)].copy_(its, non_blocking=True)
        fit.state = {name: self.state[name][: len(values)] for name, values in fit.state.items()}
        self.plan.load(fit.plan)
        for name, plan in fit.more.items():
            self.more[name].load(plan)
        self.cursors.zero_()
        self.at = [0] * len(self.at)

    def seek_step(self, k: int) -> tuple[int, ...]:
        """Put the cursors where step k begins, if they are not there already, and set the step's learning rate.

        Returns:
            The step's batch sizes, of the main pool first.
        """
        steps = [self.fit.plan.steps[k], *(plan.steps[k] for plan in self.fit.more.values())]
        for j, (start, _) in enumerate(steps):
            if start != self.at[j]:
                self.cursors[j].fill_(start)
        self.at = [end for _, end in steps]
        rate = self.fit.get_rate(k)
        if rate is not None:
            self.broadcast["lr"].fill_(rate)
        return tuple(end - start for start, end in steps)

    def step(self, sizes: tuple[int, ...]) -> None:
        """Run what is captured: build the batch at the cursors, run the method's step, move the cursors on.

        Args:
            sizes: Batch sizes of all pools.

        Raises:
            WireError: The method changed a tensor of broadcast or client state in place.
        """
        fit = self.fit
        batch = self._build_batch(self.plan, 0, sizes[0])
        for j, (name, plan) in enumerate(self.more.items(), start=1):
            batch.more[name] = self._build_batch(plan, j, sizes[j])
        # copies of the broadcast and of the client state: a change in place would reach later steps, and nobody else
        were = [*record_versions(self.client_state), *record_versions(self.broadcast, "broadcast")]
        fit.advance_carry(batch, self.carry, self.broadcast, self.client_state, self.state)
        refuse_changed(type(fit.local).__name__, fit.request.client, were)
        for j, size in enumerate(sizes):
            self.cursors[j].add_(size)

    def _build_batch(self, plan: _PlanBuffers, cursor: int, size: int) -> Batch:
        positions = self.cursors[cursor] + self.count[:size]
        i, numbers, masks = (t.index_select(0, positions) for t in (plan.order, plan.u, plan.masks))
        views, u = self.fit.make_views(self.x.index_select(0, i), numbers)
        aux, state = ({n: v.index_select(0, i) for n, v in rows.items()} for rows in (self.aux, self.state))
        return Batch(views, self.y.index_select(0, i), i, u, masks, aux, state)

    def _list_written(self) -> list[Tensor]:
        weights = (t for trained in self.carry.values() for t in (trained.w.flat, trained.grad, *trained.memory))
        return [self.cursors, *weights, *self.state.values()]

    def take_snapshot(self) -> list[Tensor]:
        """Copy all that a step writes: cursors, weights, gradients, optimiser memory, per-sample state.

        Returns:
            The copies, for `restore_snapshot`.
        """
        return [t.detach().clone() for t in self._list_written()]

    def restore_snapshot(self, snapshot: list[Tensor]) -> None:
        """Undo the steps since a snapshot.

        Args:
            snapshot: The answer of `take_snapshot`.
        """
        with torch.no_grad():
            for buffer, was in zip(self._list_written(), snapshot, strict=True):
                buffer.copy_(was)

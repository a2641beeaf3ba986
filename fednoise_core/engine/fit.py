"""ClientFit: local training of one client in one fit.

Every executor calls its functions `open`, `iterate_stretches`, `step` and `close` in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fednoise_core.engine.client import Client, record_versions, refuse_changed
from fednoise_core.engine.client_store import MappingSource, load_mapping
from fednoise_core.engine.local import Batch, Local, Work
from fednoise_core.engine.plan import Columns, Plan, batch_boundaries, make_plan, make_side_plan
from fednoise_core.engine.pool import build_augmentation
from fednoise_core.engine.world import SERVER, World
from fednoise_core.ops.optim import Trained
from fednoise_core.ops.weights import all_finite, count_bytes

Workspace = dict[Any, Trained]  # buffers of one executor by (name, layout, rule), which all clients reuse
Rate = float | Callable[[int, int], float]  # learning rate, or a function of (step, steps) with steps from 0


@dataclass(frozen=True)
class FitRequest:
    """Request to train on one client. It includes the client's own `client_state` and `targets`."""

    local: Local
    client: int
    round: int
    epochs: int
    broadcast: MappingSource  # including messages from other clients
    client_state: MappingSource = field(default_factory=dict)
    targets: Tensor | None = None  # its current targets; None: the given labels
    on: str = "train"
    ids: Tensor | None = None  # positions in the pool, for on="public"
    pool_targets: Tensor | None = None  # [len(ids), …], for on="public"
    tag: str = "fit"
    batch: int = 0  # samples of a step; 0: train.batch
    net_of: int | None = None  # the client whose architecture is trained; None: its own
    rate: Rate | None = None  # schedule of `broadcast["lr"]`; None: `broadcast["lr"]` does not change
    together: bool = False  # lockstep: all clients see the same images in the same order, without a choice of samples
    single_ok: bool = True  # whether the nets of all clients in a lockstep fit take a batch of one sample


@dataclass
class FitResult:
    """Result of a fit.

    Attributes:
        update: Values that are sent to the server.
        client_state: New client state, which stays with the client. None: unchanged.
        targets: The client's targets after relabelling. None: unchanged.
        steps: Number of steps.
        passes: Samples times forward-backward passes, over all steps.
        relay: Message to other clients.
        finite: Whether all weights that were trained are finite.
        twice: Bytes that are in both `relay` and `update`. They are sent once.
    """

    update: dict[str, Any]
    client_state: dict[str, Any] | None
    targets: Tensor | None
    steps: int
    passes: int = 0
    relay: dict[str, Any] = field(default_factory=dict)
    finite: bool = True
    twice: int = 0  # bytes that are in both `relay` and `update`, which are sent once


class ClientFit:
    """One FitRequest in progress in one Workspace.

    fit.open()
    for steps in fit.iterate_stretches():   # client-side code runs between two stretches
        for k in steps:
            fit.step(k)
    result = fit.close()
    """

    def __init__(self, world: World, request: FitRequest, workspace: Workspace):
        self.world, self.request, self.workspace = world, request, workspace
        self.net = world.net(request.client if request.net_of is None else request.net_of)
        self.local = request.local
        self.size = request.batch or world.train.batch
        self.scheduled = callable(request.rate)
        self.done = self.passes = 0  # steps of earlier plans; samples times passes in total

    def open(self) -> ClientFit:
        """Run the client-side preparation, plan the steps and load the weights.

        Returns:
            The fit itself.

        Raises:
            ValueError: `prepare_fit` returns a Work that does not fit the client's samples.
        """
        request, world, local = self.request, self.world, self.local
        self.broadcast = load_mapping(request.broadcast)
        self.client = (
            None
            if request.client == SERVER
            else Client(world, request.client, request.client_state, request.targets, request.round)
        )
        self._were = record_versions(self.broadcast, "broadcast")
        rows = world.rows(request.client, request.on)
        rows = rows if request.ids is None else rows[request.ids]
        pool = world.pool(request.on)
        self.augmentations = [build_augmentation(spec) for spec in local.get_augmentations()]
        self.plain = not any(self.augmentations)
        self.x = pool.take(rows) if self.plain else pool.raw(rows)  # a client's images, gathered once a fit
        self.state: dict[str, Tensor] = {}
        if self.scheduled:  # `prepare_fit` may change the number of steps
            _, steps = batch_boundaries(
                len(rows), request.epochs, self.size, world.train.last_batch, self.net.single_ok
            )
            self.broadcast["lr"] = self._scheduled_rate(0, len(steps))
        work = local.prepare_fit(self.client, self.broadcast) if self.client is not None else None
        self._take_work(work or Work(), request.epochs, ())
        if self.scheduled:  # the rate of the first step, for all hooks except `train_step`, which gets its step's rate
            self.broadcast["lr"] = self._get_rate(0)
        self.carry: dict[str, Trained] = {}
        for name, start in local.init_carry(self.net, self.broadcast, self.client_state).items():
            rule = local.make_optimiser(name)
            key = (name, start.layout, rule)
            if key not in self.workspace:
                self.workspace[key] = Trained(start.layout, rule, world.device)
            self.carry[name] = self.workspace[key]
            self.carry[name].load(start, local.restore_optimiser(name, self.broadcast, self.client_state))
        for trained in self.carry.values():
            trained.alone = len(self.carry) == 1
        return self

    def _take_work(self, work: Work, epochs: int, key: tuple[str | int, ...]) -> None:
        """Plan `epochs` epochs of this work. `key` makes its random streams differ from those of the first plan."""
        self._check_work(work)
        self._refresh_state(work)
        self.aux = work.aux
        self.state |= {name: values.clone() for name, values in work.state.items()}
        self._make_plans(work, epochs, key)
        self.epoch, self.length = -1, max(1, len(self.plan.order) // max(1, epochs))

    def _check_work(self, work: Work) -> None:
        """Check that tensors have a row per sample, and that positions are among the samples. Raises ValueError."""
        n, place = len(self.x), f"{type(self.local).__name__}: client {self.request.client}: Work"
        if self.request.together and (work.samples is not None or work.more):
            raise ValueError(f"{place}.samples: clients that take each step together see the same images")
        rows = {f"aux[{k!r}]": v for k, v in work.aux.items()} | {f"state[{k!r}]": v for k, v in work.state.items()}
        for name, values in {"targets": work.targets, **rows}.items():
            if values is not None and len(values) != n:
                raise ValueError(f"{place}.{name} has {len(values)} rows; it needs one for each of the {n} samples")
        chosen = {"samples": work.samples, **{f"more[{k!r}]": v for k, v in work.more.items()}}
        for name, positions in chosen.items():
            if positions is not None and len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < n:
                raise ValueError(f"{place}.{name} names a position that is not among the {n} samples")

    def _refresh_state(self, work: Work) -> None:
        """Update targets and client state from this work."""
        self._work = work
        self._set_targets(work)
        stored = self.client.state if self.client is not None else {}
        self.client_state = {**stored, **work.facts}  # what hooks and steps see

    def _set_targets(self, work: Work) -> None:
        request = self.request
        if work.targets is not None:
            self.y = work.targets
        elif request.on == "train":
            assert self.client is not None  # the server holds no training samples
            self.y = self.client.targets
        elif request.pool_targets is not None:
            self.y = request.pool_targets
        else:
            self.y = torch.zeros(len(self.x), dtype=torch.int64, device=self.world.device)

    def _make_plans(self, work: Work, epochs: int, more_key: tuple[str | int, ...]) -> None:
        request, net, local, world = self.request, self.net, self.local, self.world
        key = (request.tag, request.round, request.client, *more_key)
        columns = [augmentation.draws if augmentation else 0 for augmentation in self.augmentations]
        self.splits = [*columns, local.draws]

        def numbers(*pool: str) -> tuple[Columns, Columns]:
            """Make the streams of augmentation and method, and those of dropout. Each pool has its own streams."""
            draws = [(k, world.random_stream("augment", v, *pool, *key)) for v, k in enumerate(columns) if k]
            if local.draws:
                draws.append((local.draws, world.random_stream("step", *pool, *key)))
            passes = range(local.passes if net.draws else 0)
            return draws, [(net.draws, world.random_stream("dropout", p, *pool, *key)) for p in passes]

        samples = torch.arange(len(self.x), device=world.device) if work.samples is None else work.samples
        ordered = (request.tag, request.round, *more_key) if request.together else key
        order = world.random_stream("batches", *ordered)
        single_ok = net.single_ok and request.single_ok
        self.plan = make_plan(samples, epochs, self.size, world.train.last_batch, single_ok, order, *numbers())
        self.more: dict[str, Plan] = {
            name: make_side_plan(rows, self.plan.steps, world.random_stream("batches", name, *key), *numbers(name))
            for name, rows in sorted(work.more.items())
            if len(rows) > (0 if net.single_ok else 1)
        }

    def iterate_stretches(self) -> Iterator[range]:
        """Yield ranges of steps. Client-side code runs between two ranges.

        A range has all steps, or the steps of one epoch if the method has code between epochs.
        The fit ends early once its weights are not finite, because its result is then dropped.
        """
        epochs, local, client = self.request.epochs, self.local, self.client
        if client is None or type(local).between_epochs is Local.between_epochs:
            yield self._count_passes(range(len(self.plan.steps)))
            return
        start, planned = 0, epochs  # first epoch and number of epochs of the current plan
        for epoch in range(epochs):
            a_epoch = len(self.plan.steps) // max(planned, 1)
            first = (epoch - start) * a_epoch
            yield self._count_passes(range(first, first + a_epoch))
            if epoch + 1 < epochs:
                if not self._is_finite():
                    return  # the result will be dropped
                self._keep_written()
                work = local.between_epochs(client, self.carry, self.broadcast, epoch + 1)
                if work is None:
                    self._refresh_state(self._work)  # the hook may have relabelled or replaced client state
                else:
                    self.done += first + a_epoch
                    start, planned = epoch + 1, epochs - epoch - 1
                    self._take_work(work, planned, ("epoch", start))

    def _count_passes(self, steps: range) -> range:
        for plan in (self.plan, *self.more.values()):
            self.passes += self.local.passes * sum(plan.steps[k][1] - plan.steps[k][0] for k in steps)
        return steps

    def _keep_written(self) -> None:
        """Store the per-sample values that steps have written in the client state."""
        if self.client is not None and self.state:
            written = {name: values.clone() for name, values in self.state.items()}
            self.client.state = {**self.client.state, **written}
            self.client_state = {**self.client_state, **written}

    def _get_rate(self, k: int) -> float:
        """Compute the scheduled learning rate of step k of the current plan."""
        return self._scheduled_rate(self.done + k, self.done + len(self.plan.steps))

    def _scheduled_rate(self, step: int, steps: int) -> float:
        schedule = self.request.rate
        assert callable(schedule)
        return float(schedule(step, max(steps, 1)))

    def _gather_rows(self, order: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Gather images, targets and per-sample data in this order."""
        return (
            self.x.index_select(0, order),
            self.y.index_select(0, order),
            {name: values.index_select(0, order) for name, values in self.aux.items()},
        )

    def _split_epoch(self, epoch: int) -> list[tuple[Tensor, ...]]:
        """Split images, targets, positions, random numbers, masks and per-sample data of an epoch into batches."""
        plan, steps = self.plan, slice(epoch * self.length, (epoch + 1) * self.length)
        order = plan.order[steps]
        x, y, aux = self._gather_rows(order)
        tensors = (x, y, order, plan.u[steps], plan.masks[steps], *aux.values())
        return [tensor.split(self.size) for tensor in tensors]

    def _make_views(self, x: Tensor, numbers: Tensor) -> tuple[list[Tensor], Tensor]:
        """Make the views [B, C, H, W] of images x [B, H, W, C], which are normalised without augmentation, else uint8.

        The second result is the method's own columns of the uniform numbers [B, …].
        """
        if self.plain:
            return [x.permute(0, 3, 1, 2)] * len(self.augmentations), numbers
        *drawn, u = numbers.split(self.splits, 1)
        pool = self.world.pool(self.request.on)
        views = [
            pool.normalise(x).permute(0, 3, 1, 2) if augmentation is None else pool.augmented(x, augmentation, columns)
            for augmentation, columns in zip(self.augmentations, drawn, strict=True)
        ]
        return views, u

    def make_batch(self, k: int) -> Batch:
        """Make the batch of step k. Batches of further pools are in its `more`.

        A whole epoch is gathered and split in one call, instead of one slice per step and tensor.
        """
        a = self.plan.steps[k][0]
        epoch = a // self.length
        if epoch != self.epoch:
            self.epoch, self.pieces = epoch, self._split_epoch(epoch)
        index = (a - epoch * self.length) // self.size
        x, y, i, numbers, masks, *extras = (pieces[index] for pieces in self.pieces)
        views, u = self._make_views(x, numbers)
        state = self._rows_of_state(i) if self.state else {}
        batch = Batch(views, y, i, u, masks, dict(zip(self.aux, extras, strict=True)), state, {})
        for name, plan in self.more.items():
            rows = slice(*plan.steps[k])
            i = plan.order[rows]
            x, y, aux = self._gather_rows(i)
            views, u = self._make_views(x, plan.u[rows])
            batch.more[name] = Batch(views, y, i, u, plan.masks[rows], aux, self._rows_of_state(i))
        return batch

    def _rows_of_state(self, i: Tensor) -> dict[str, Tensor]:
        return {name: values.index_select(0, i) for name, values in self.state.items()}

    def step(self, k: int) -> None:
        """Take step k of the current plan."""
        self.train_batch(k, self.make_batch(k), {})

    def train_batch(self, k: int, batch: Batch, reply: Mapping[str, Any]) -> None:
        """Run the method's step in the run's precision, and store the per-sample values that it writes.

        Args:
            k: The step of the current plan.
            batch: Its batch, from `make_batch`.
            reply: Further entries of `broadcast` for this step.
        """
        broadcast = {**self.broadcast, **reply}
        if self.scheduled:
            broadcast["lr"] = self._get_rate(k)
        entries = _list_state_rows(batch) if self.state else ()
        precision: Any = contextlib.nullcontext()
        if self.world.train.precision == "bf16":  # with cached casts, gradients of several passes would add up in bf16
            precision = torch.autocast(self.world.device.type, torch.bfloat16, cache_enabled=False)
        with precision:
            self.local.train_step(self.net, self.carry, batch, broadcast, self.client_state)
        for pool, name, rows, version in entries:
            new = pool.state[name]
            if new is not rows or rows._version != version:  # a pool that only reads must not undo another's writes
                self.state[name].index_copy_(0, pool.i, new.detach().to(rows.dtype))

    def close(self) -> FitResult:
        """End the fit: compute the update, and return it with the client state.

        If the weights are not finite, `after_fit` is skipped, because code that measures the model might fail.

        Raises:
            ValueError: A Local that trains on the server returns client state.
            WireError: A tensor of broadcast or client state was changed in place.
        """
        steps = self.done + len(self.plan.steps)
        self._keep_written()
        with torch.no_grad():
            update = dict(self.local.make_update(self.net, self.carry, self.broadcast, self.client_state, steps))
        refuse_changed(type(self.local).__name__, self.request.client, self._were)
        client_state = update.pop("client_state", {})
        if self.client is None:
            if client_state:
                raise ValueError(f"{type(self.local).__name__}: nothing is kept for the server; send it in the update")
            return FitResult(update, None, None, steps, self.passes)
        if not self._is_finite():  # code that measures the model might fail, and the update is dropped anyway
            return FitResult(update, None, None, steps, self.passes, update.pop("relay", {}), finite=False)
        self.client.state = {**self.client.state, **client_state}
        update = self.local.after_fit(self.client, update, self.broadcast)
        relay = update.pop("relay", {})
        targets = self.client.targets if self.client.changed else None
        twice = sum(count_bytes(value) for value in relay.values() if any(value is sent for sent in update.values()))
        client_state = self.client.release_state(type(self.local).__name__)
        return FitResult(update, client_state, targets, steps, self.passes, relay, twice=twice)

    def _is_finite(self) -> bool:
        return all(all_finite(trained.w) for trained in self.carry.values())


def _list_state_rows(batch: Batch) -> list[tuple[Batch, str, Tensor, int]]:
    """List the rows of per-sample state in the batches of all pools, with their versions before the step."""
    pools = (batch, *batch.more.values())
    return [(pool, name, rows, rows._version) for pool in pools for name, rows in pool.state.items()]

"""Index plans: which samples a client's steps see, in which order, with which random numbers. Made on the host, before
the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Columns", "Plan", "batch_boundaries", "make_plan", "make_side_plan"]

Columns = Sequence[tuple[int, torch.Generator]]  # how many numbers a sample needs, and the stream they come from


@dataclass
class Plan:
    """What the steps of a fit see of one pool.

    order: sample positions, epoch after epoch. u, masks: one row of uniform numbers per entry of `order`. steps: (from,
    to) of each step in `order`.
    """

    order: Tensor  # [L] int64
    u: Tensor  # [L, draws] float32
    masks: Tensor  # [L, mask draws] float32
    steps: list[tuple[int, int]]

    @property
    def samples(self) -> int:
        """Samples over all steps, each counted as often as a step sees it."""
        return sum(b - a for a, b in self.steps)


def batch_boundaries(n: int, epochs: int, batch: int, last: str, single_ok: bool) -> tuple[int, list[tuple[int, int]]]:
    """Length of one epoch's order and all steps. last: "short", "drop" or "wrap" (spec.Train.last_batch).

    A last batch of one sample is skipped if the net cannot normalise it; a client with less than a
    batch keeps it under "drop", since it would otherwise do no step at all.
    """
    length = n
    if last == "wrap" and n > batch and n % batch:
        length = n + batch - n % batch
    elif last == "drop" and n > batch:
        length = n - n % batch
    epoch = [(a, min(a + batch, length)) for a in range(0, length, batch)]
    if epoch and not single_ok and epoch[-1][1] - epoch[-1][0] == 1:
        epoch.pop()
    return length, [(e * length + a, e * length + b) for e in range(epochs) for a, b in epoch]


def make_plan(
    rows: Tensor,
    epochs: int,
    batch: int,
    last: str,
    single_ok: bool,
    order_stream: torch.Generator,
    draws: Columns,
    masks: Columns,
) -> Plan:
    """The plan for sample positions `rows` [n]; streams are CPU generators, the result lies on the device of `rows`.

    Every user of random numbers has its stream: a method that draws for itself trains on the same crops and with the
    same dropout as one that does not.
    """
    n = len(rows)
    length, steps = batch_boundaries(n, epochs, batch, last, single_ok)
    wrap = torch.arange(length) % max(n, 1)
    orders = [torch.randperm(n, generator=order_stream)[wrap] for _ in range(epochs)]
    order = torch.cat(orders) if orders and n else torch.zeros(0, dtype=torch.int64)
    return _place_plan(rows, order, steps, draws, masks)


def make_side_plan(
    rows: Tensor, main: Sequence[tuple[int, int]], order_stream: torch.Generator, draws: Columns, masks: Columns
) -> Plan:
    """The plan of a further pool, `rows` [n >= 1], for the same steps as the main one: batches as large, reshuffled
    whenever it is used up.

    A pool smaller than a batch gives all of itself every time.
    """
    n, order, steps, at = len(rows), [torch.randperm(len(rows), generator=order_stream)], [], 0
    have = n
    for a, b in main:
        size = min(b - a, n)
        if at % n + size > n:  # start a fresh pass rather than mix two
            at += n - at % n
        while at + size > have:
            order.append(torch.randperm(n, generator=order_stream))
            have += n
        steps.append((at, at + size))
        at += size
    return _place_plan(rows, torch.cat(order), steps, draws, masks)


def _place_plan(rows: Tensor, order: Tensor, steps: list[tuple[int, int]], draws: Columns, masks: Columns) -> Plan:
    u, dropout = (_draw_uniform(len(order), columns).to(rows.device) for columns in (draws, masks))
    return Plan(rows[order.to(rows.device)], u, dropout, steps)


def _draw_uniform(n: int, columns: Columns) -> Tensor:
    parts = [torch.rand(n, k, generator=stream) for k, stream in columns if k]
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0] if parts else torch.zeros(n, 0)

"""Index plans: samples, order and random numbers of a client's steps. They are made on the CPU before the steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Columns = Sequence[tuple[int, torch.Generator]]  # pairs of (random numbers per sample, their stream)


@dataclass
class Plan:
    """Order of samples and random numbers of a fit's steps, for one pool.

    Attributes:
        order: Sample positions, epoch after epoch.
        u: One row of uniform numbers per entry of `order`, for augmentation and method.
        masks: One row of uniform numbers per entry of `order`, for dropout.
        steps: (from, to) of each step in `order`.
    """

    order: Tensor  # [L] int64
    u: Tensor  # [L, draws] float32
    masks: Tensor  # [L, mask draws] float32
    steps: list[tuple[int, int]]


def batch_boundaries(n: int, epochs: int, batch: int, last: str, single_ok: bool) -> tuple[int, list[tuple[int, int]]]:
    """Compute the number of samples per epoch, and the bounds of each step in the order of all epochs.

    A last batch of one sample is skipped if batch norm cannot use it. With "drop", a client that has less than one
    batch still uses it. Otherwise the client would not take any step.

    Args:
        n: Number of samples.
        epochs: Number of epochs.
        batch: Samples per step.
        last: "short", "drop" or "wrap" (`Train.last_batch`).
        single_ok: Whether the net takes a batch of one sample.

    Returns:
        The length, and (from, to) of each step.
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
    """Plan the steps over sample positions `rows` [n].

    Augmentation, method and dropout have separate random streams. So a method that draws its own numbers trains with
    the same crops and the same dropout as a method that does not.

    Args:
        rows: Positions in the pool. The plan is on their device.
        epochs: Number of epochs.
        batch: Samples per step.
        last: As for `batch_boundaries`.
        single_ok: As for `batch_boundaries`.
        order_stream: Stream that shuffles each epoch. All streams are CPU generators.
        draws: Numbers per sample of augmentation and method, with their streams.
        masks: Numbers per sample of dropout, with their streams.
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
    """Plan a further pool, `rows` [n >= 1], for the same steps as the main plan.

    Batches are as large as those of the main plan. The pool is shuffled again when the rest is smaller than a batch. If
    the whole pool is smaller than a batch, every batch contains the whole pool.

    Args:
        rows: Positions in the pool. The plan is on their device.
        main: (from, to) of the main plan's steps.
        order_stream: Stream that shuffles each pass. All streams are CPU generators.
        draws: Numbers per sample of augmentation and method, with their streams.
        masks: Numbers per sample of dropout, with their streams.
    """
    n, order, steps, start = len(rows), [torch.randperm(len(rows), generator=order_stream)], [], 0
    have = n
    for a, b in main:
        size = min(b - a, n)
        if start % n + size > n:  # a batch does not mix two passes
            start += n - start % n
        while start + size > have:
            order.append(torch.randperm(n, generator=order_stream))
            have += n
        steps.append((start, start + size))
        start += size
    return _place_plan(rows, torch.cat(order), steps, draws, masks)


def _place_plan(rows: Tensor, order: Tensor, steps: list[tuple[int, int]], draws: Columns, masks: Columns) -> Plan:
    u, dropout = (_draw_uniform(len(order), columns).to(rows.device) for columns in (draws, masks))
    return Plan(rows[order.to(rows.device)], u, dropout, steps)


def _draw_uniform(n: int, columns: Columns) -> Tensor:
    parts = [torch.rand(n, k, generator=stream) for k, stream in columns if k]
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0] if parts else torch.zeros(n, 0)

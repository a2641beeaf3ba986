"""The CPU executor: forked single-thread processes, each taking whole clients. Bit-equal to `sequential`, however many
there are.

The processes are forked once, when the world is built and before anything is trained: data are shared by the system's
copy-on-write. Weights travel through a pipe as the bytes of their flat buffers: torch's own way, a shared-memory file
and a message about it for every tensor, is slower for small nets, holds a file open for as long as the tensor lives (a
thousand clients that keep something reach the system's limit), and needs room in /dev/shm. Two threads in one process
would wait for each other at every small kernel (docs/performance.md).
"""

from __future__ import annotations

import io
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import Tensor

from fednoise_core.engine.client import Client, call_on
from fednoise_core.engine.client_store import MappingSource, load_mapping
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.fit import FitRequest, FitResult
from fednoise_core.engine.world import World
from fednoise_core.ops.weights import Layout, Weights

__all__ = ["WorkerDied", "Workers"]

PARENT_SECONDS = 1.0  # between looks for the parent, and of the parent for workers that are gone
_FORKING = threading.Lock()  # runs in several threads tell their processes apart


class WorkerDied(RuntimeError):
    """A worker process ended without an answer (killed, or out of memory)."""


@dataclass(frozen=True)
class _Call:
    """A function for one client, with what makes up the client."""

    fn: Callable[[Client, Any], Any]
    client: int
    client_state: MappingSource
    targets: Any
    round: int
    broadcast: MappingSource

    def loaded(self) -> _Call:
        """The same with what the client keeps and what comes down at hand, to be sent."""
        return replace(self, client_state=load_mapping(self.client_state), broadcast=load_mapping(self.broadcast))


class Workers(Sequential):
    """`count` forked processes (default: one per core this process may use). Close it to end them.

    An error in a worker is raised here as it is, with the worker's traceback.
    """

    name = "workers"

    def __init__(self, world: World, count: int = 0):
        if world.device.type != "cpu":
            raise ValueError("workers run on the CPU; use lanes on a GPU")
        self.world = world
        self.count = count or _cores()
        self._layouts = [net.layout for net in world.nets]
        with _FORKING:
            others = mp.active_children()
            self._pool = ProcessPoolExecutor(self.count, mp.get_context("fork"), _begin, (world, os.getpid()))
            self._pool.submit(os.getpid).result()  # now they are forked
            self.processes = [one for one in mp.active_children() if one not in others]
            # else the pool would wait for ever for the rest of an answer whose worker was killed
            self._pool._result_queue._writer.close()  # type: ignore[attr-defined]

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Results in the order of the requests; the largest clients start first, so that no worker ends with a long
        one.
        """
        size = [self.world.sizes[one.client] if one.client >= 0 else 0 for one in requests]
        return self._spread(requests, sorted(range(len(requests)), key=lambda k: -size[k]))

    def call(
        self, fn: Callable[[Client, Any], Any], clients: Sequence[Client], downs: Sequence[MappingSource]
    ) -> Iterator[tuple[Any, Client]]:
        """fn(client, down) for each, with the client as it is afterwards."""
        calls = [
            _Call(fn, me.id, me.kept, me.relabelled, me.round, broadcast)
            for me, broadcast in zip(clients, downs, strict=True)
        ]
        for me, (said, client_state, targets) in zip(clients, self._spread(calls, range(len(calls))), strict=True):
            if client_state is not None:
                me.state = client_state
            if targets is not None:
                me.targets = targets
            yield said, me

    def _spread(self, work: Sequence[Any], order: Sequence[int]) -> Iterator[Any]:
        todo, turn = deque(order), 0
        running: dict[Future[bytes], int] = {}
        done: dict[int, Any] = {}
        try:
            while turn < len(work):
                while todo and len(running) <= self.count:  # what all keep may not fit into memory
                    number = todo.popleft()
                    message = _dumps(work[number].loaded(), self._layouts)
                    running[self._pool.submit(_work, message)] = number
                ended = wait(running, PARENT_SECONDS, FIRST_COMPLETED).done
                if not ended and not all(process.is_alive() for process in self.processes):
                    raise BrokenProcessPool("killed while it answered, which the pool does not see")
                for future in ended:
                    done[running[future]] = _loads(future.result(), self._layouts)
                    del running[future]
                while turn in done:
                    yield done.pop(turn)
                    turn += 1
        except BrokenProcessPool as error:
            raise WorkerDied("a worker process ended without an answer (killed, or out of memory)") from error
        finally:
            if running:  # after an error, or left early: nobody waits for these any more
                self.close()

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
        self._pool.shutdown(cancel_futures=True)
        for process in self.processes:
            process.join()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pickler(pickle.Pickler):
    """Tensors as the bytes of what they show, not of the buffer that they are views of; known layouts by number."""

    def __init__(self, file: io.BytesIO, layouts: Sequence[Layout]):
        super().__init__(file, protocol=5)
        self.layouts = layouts

    def persistent_id(self, obj: Any) -> int | None:
        return next((k for k, known in enumerate(self.layouts) if known is obj), None) if type(obj) is Layout else None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Weights:
            return Weights, (obj.layout, obj.flat)  # without its views, which are made anew
        if type(obj) is Tensor and obj.layout == torch.strided:
            plain = obj.detach()
            if obj.dtype == torch.bfloat16:  # unknown to numpy
                return _half, (plain.contiguous().view(torch.int16).numpy(),)
            return _tensor, (plain.numpy(),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, layouts: Sequence[Layout]):
        super().__init__(file)
        self.layouts = layouts

    def persistent_load(self, pid: int) -> Layout:
        return self.layouts[pid]


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values)


def _half(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).view(torch.bfloat16)


def _dumps(message: Any, layouts: Sequence[Layout]) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, layouts).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"cannot be sent to or from a worker process ({error}): functions and classes given to `fit` and "
            "`run_on_clients` (lr= among them) stand at the top level of a module"
        ) from error
    return file.getvalue()


def _loads(message: bytes, layouts: Sequence[Layout]) -> Any:
    return _Unpickler(io.BytesIO(message), layouts).load()


# in a worker

_RUNNER: list[Sequential] = []


def _begin(world: World, parent: int) -> None:
    """The start of a worker. parent: the process that asks."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    _RUNNER[:] = [Sequential(world)]


def _end_with(parent: int) -> None:
    """End this process once its parent is gone: a fit may be long, and the parent's lock is held until it ends."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _work(message: bytes) -> bytes:
    """A worker's answer to a piece of work."""
    runner = _RUNNER[0]
    layouts = [net.layout for net in runner.world.nets]
    work = _loads(message, layouts)
    if isinstance(work, FitRequest):
        return _dumps(next(runner.run([work])), layouts)
    me = Client(runner.world, work.client, work.client_state, work.targets, work.round)
    said = call_on(me, work.fn, load_mapping(work.broadcast))
    kept = me.release_state(getattr(work.fn, "__qualname__", "client-side code"))
    return _dumps((said, kept, me.targets if me.changed else None), layouts)

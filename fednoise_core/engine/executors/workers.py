"""The CPU executor: forked single-thread processes, each taking whole clients. Bit-equal to `sequential`, however many
there are.

The processes are forked once, when the world is built and before anything is trained: data are shared by the system's
copy-on-write. Weights travel through a pipe as the bytes of their flat buffers: torch's own way, a shared-memory file
and a message about it for every tensor, is slower for small nets, holds a file open for as long as the tensor lives (a
thousand clients that keep something reach the system's limit), and needs room in /dev/shm. Two threads in one process
would wait for each other at every small kernel (docs/performance.md).
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import Tensor

from fednoise_core.engine.client import Client, call_on
from fednoise_core.engine.client_store import KeptSource, WireError, fetched
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.fit import FitRequest, FitResult
from fednoise_core.engine.world import World
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.tree import Layout, Weights

__all__ = ["WorkerDied", "Workers"]

PARENT_SECONDS = 1.0  # between looks for the parent


class WorkerDied(RuntimeError):
    """A worker process ended without an answer (killed, or out of memory)."""


@dataclass(frozen=True)
class _Call:
    """A function for one client, with what makes up the client."""

    fn: Callable[[Client, Any], Any]
    client: int
    mine: KeptSource
    targets: Any
    round: int
    tag: str
    down: KeptSource

    def loaded(self) -> _Call:
        """The same with what the client keeps and what comes down at hand, to be sent."""
        return replace(self, mine=fetched(self.mine), down=fetched(self.down))


class Workers(Sequential):
    """`count` forked processes (default: one per core this process may use). Results come in the order of the requests.

    The library's own errors in a worker are raised here as they are, others as RuntimeError with the traceback as text.
    Close it, or use it in a `with`, to end the processes.
    """

    name = "workers"

    def __init__(self, world: World, count: int = 0):
        if world.device.type != "cpu":
            raise ValueError("workers run on the CPU; use lanes on a GPU")
        self.world = world
        self.count = count or _cores()
        context = mp.get_context("fork")
        self.links: list[_Link] = []  # one to each process
        self._processes = []
        for k in range(self.count):
            here, there = context.Pipe()
            inherited = [*(link.pipe for link in self.links), here]
            process = context.Process(
                target=_serve, args=(world, there, inherited, os.getpid()), name=f"fednoise-worker-{k}", daemon=True
            )
            process.start()
            there.close()
            self.links.append(_Link(here, world, process.sentinel))
            self._processes.append(process)

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Results in the order of the requests; the largest clients start first, so that no worker ends with a long
        one.
        """
        size = [self.world.sizes[one.client] if one.client >= 0 else 0 for one in requests]
        return self._spread(requests, sorted(range(len(requests)), key=lambda k: -size[k]))

    def call(
        self, fn: Callable[[Client, Any], Any], clients: Sequence[Client], downs: Sequence[KeptSource]
    ) -> Iterator[tuple[Any, Client]]:
        """fn(client, down) for each, with the client as it is afterwards."""
        calls = [
            _Call(fn, me.id, me.kept, me.targets if me.holds_targets else None, me.round, me.tag, down)
            for me, down in zip(clients, downs, strict=True)
        ]
        for me, (said, mine, targets) in zip(clients, self._spread(calls, range(len(calls))), strict=True):
            if mine is not None:
                me.mine = mine
            if targets is not None:
                me.targets = targets
            yield said, me

    def _spread(self, work: Sequence[Any], order: Sequence[int]) -> Iterator[Any]:
        todo, turn = deque(order), 0
        done: dict[int, Any] = {}
        busy: dict[Any, tuple[_Link, int]] = {}  # by pipe, and by sentinel, which tells of a dead process in any case
        if work and not self.links:
            raise RuntimeError("these workers have been ended")
        try:
            for idle in self.links:
                self._give(idle, todo, work, busy)
            while turn < len(work):
                ready = wait(list(busy))
                for link, number in {busy[r][1]: busy[r] for r in ready}.values():
                    done[number] = self._answer(link, work[number].client)
                    del busy[link.pipe], busy[link.sentinel]
                    self._give(link, todo, work, busy)
                while turn in done:
                    yield done.pop(turn)
                    turn += 1
        finally:
            if busy:  # The caller stopped early: answers still in the pipes would be mistaken for later ones.
                self.close()

    def _give(self, link: _Link, todo: deque[int], work: Sequence[Any], busy: dict[Any, tuple[_Link, int]]) -> None:
        """Hand the next piece of work to an idle worker."""
        if not todo:
            return
        number = todo.popleft()
        busy[link.pipe] = busy[link.sentinel] = (link, number)
        try:
            link.send(work[number].loaded())
        except ConnectionError as error:
            raise _died(work[number].client) from error

    def _answer(self, link: _Link, client: int) -> Any:
        try:
            if not link.pipe.poll():
                raise EOFError("the process has ended")
            ok, answer = link.recv()
        except (EOFError, ConnectionError) as error:
            raise _died(client) from error
        if not ok and isinstance(answer, Exception):
            raise answer
        if not ok:
            raise RuntimeError(f"client {client} failed in its worker process:\n{answer}")
        return answer

    def close(self) -> None:
        """End the processes: those at work are stopped, for nobody waits for their answer any more."""
        for link in self.links:
            with contextlib.suppress(ConnectionError):
                link.send(None)  # closing alone is not enough: a process forked later may hold this end, too
            link.pipe.close()
        for process in self._processes:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()
        self.links, self._processes = [], []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _died(client: int) -> WorkerDied:
    return WorkerDied(f"the worker process of client {client} ended without an answer (killed, or out of memory)")


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


class _Link:
    """One end of a pipe between a run and one of its workers."""

    def __init__(self, pipe: Connection, world: World, sentinel: int = -1):
        self.pipe, self.sentinel = pipe, sentinel
        self.layouts = [net.layout for net in world.nets]

    def send(self, message: Any) -> None:
        file = io.BytesIO()
        try:
            _Pickler(file, self.layouts).dump(message)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"cannot be sent to or from a worker process ({error}): functions and classes given to `fit` and "
                "`on_clients` (lr= among them) stand at the top level of a module"
            ) from error
        self.pipe.send_bytes(file.getbuffer())

    def recv(self) -> Any:
        return _Unpickler(io.BytesIO(self.pipe.recv_bytes()), self.layouts).load()


def _serve(world: World, pipe: Connection, inherited: list[Connection], parent: int) -> None:
    """The life of a worker: take a piece of work, answer (True, result) or (False, traceback), until None or the end of
    the pipe.

    inherited: other ends of pipes, which the fork handed down; parent: the id of the process that asks.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    for other in inherited:
        other.close()
    torch.set_num_threads(1)
    runner, link = Sequential(world), _Link(pipe, world)
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            answer: tuple[bool, Any]
            try:
                if (work := link.recv()) is None:
                    return
                answer = (True, _done(runner, work))
            except (EOFError, ConnectionError):
                return
            except (WireError, SpecError, ArtifactError) as error:  # says what to do: no traceback needed
                answer = (False, error)
            except Exception:
                answer = (False, traceback.format_exc())
            try:
                link.send(answer)
            except TypeError as error:
                link.send((False, str(error)))


def _end_with(parent: int) -> None:
    """End this process once its parent is gone: a fit may be long, and the parent's lock is held until it ends."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _done(runner: Sequential, work: FitRequest | _Call) -> Any:
    """A worker's answer to a piece of work."""
    if isinstance(work, FitRequest):
        return next(runner.run([work]))
    me = Client(runner.world, work.client, work.mine, work.targets, work.round, work.tag)
    said = call_on(me, work.fn, fetched(work.down))
    return said, me.take(getattr(work.fn, "__qualname__", work.tag)), me.targets if me.changed else None

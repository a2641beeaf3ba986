"""The CPU executor: forked single-thread processes. Each process runs one client at a time.

Its results equal those of `sequential` bit for bit, for any number of processes.

The processes are forked once, after the world is built and before training. They share the data by copy-on-write.
Weights are sent through a pipe as the bytes of their flat buffers. torch would instead send each tensor as a
shared-memory file. This is slower for small nets and needs space in /dev/shm. It also keeps one file open per tensor,
so a thousand clients with client state reach the system's limit. Threads instead of processes would wait for each other
at every small kernel.
"""

import ctypes
import io
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
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
from fednoise_core.io import SpecError
from fednoise_core.ops.weights import Layout, Weights

PARENT_SECONDS = 1.0  # interval of checks that the parent process exists
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # options of mallopt(3)
_FORKING = threading.Lock()  # a worker that another thread forks now would inherit this pipe and keep it open


class WorkerDied(RuntimeError):
    """A worker process ended without an answer (killed, or out of memory)."""


@dataclass(frozen=True)
class _Call:
    """Call of a function on one client, with the data of the client."""

    fn: Callable[[Client, Any], Any]
    client: int
    client_state: MappingSource
    targets: Any
    round: int
    broadcast: MappingSource


class Workers(Sequential):
    """Executor with `count` forked processes (default: one per core that this process may use). `close` ends them.

    An exception in a worker is raised again in this process, with the worker's traceback as a note.
    """

    name = "workers"

    def __init__(self, world: World, count: int = 0):
        if world.device.type != "cpu":
            raise SpecError("executor: workers run on the CPU. Take sequential on a GPU")
        self.world = world
        self.count = count or _count_cores()
        self._layouts = [net.layout for net in world.nets]
        self.processes: list[Any] = []
        self._pipes: list[Connection] = []
        context = mp.get_context("fork")
        with _FORKING:
            for _ in range(self.count):
                parent_end, child_end = context.Pipe()
                process = context.Process(target=_serve_requests, args=(world, child_end, os.getpid()), daemon=True)
                process.start()
                child_end.close()
                self.processes.append(process)
                self._pipes.append(parent_end)

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Run these fits. The largest clients start first, so that no long fit is left for the end.

        Yields:
            Results in the order of the requests.
        """
        size = [self.world.sizes[request.client] if request.client >= 0 else 0 for request in requests]
        return self._spread(requests, sorted(range(len(requests)), key=lambda k: -size[k]))

    def call(
        self, fn: Callable[[Client, Any], Any], clients: Sequence[Client], broadcasts: Sequence[MappingSource]
    ) -> Iterator[tuple[Any, Client]]:
        """Call fn(client, broadcast) for each client, in the workers.

        Arguments and results are those of `Sequential.call`. `fn` is sent by name, so it must be defined at the top
        level of a module.

        Raises:
            WorkerDied: A worker ended without an answer.
            TypeError: `fn` or one of its arguments cannot be sent.
        """
        calls = [
            _Call(fn, me.id, me.kept, me.relabelled, me.round, broadcast)
            for me, broadcast in zip(clients, broadcasts, strict=True)
        ]
        for me, (answer, client_state, targets) in zip(clients, self._spread(calls, range(len(calls))), strict=True):
            if client_state is not None:
                me.state = client_state
            if targets is not None:
                me.targets = targets
            yield answer, me

    def _spread(self, work: Sequence[Any], order: Sequence[int]) -> Iterator[Any]:
        messages = ((number, _dump_message(_load_sources(work[number]), self._layouts)) for number in order)
        following = next(messages, None)
        idle, turn = list(self._pipes), 0
        busy: dict[Any, int] = {}
        answers: list[tuple[int, bytes]] = []
        done: dict[int, Any] = {}
        try:
            while turn < len(work):
                while following and idle:
                    pipe, (number, message) = idle.pop(), following
                    busy[pipe] = number
                    with _name_dead_worker(work[number].client):
                        pipe.send_bytes(message)
                    following = next(messages, None)  # one at a time: all client states may not fit into memory
                for number, answer in answers:  # decoded after the workers have new work
                    done[number] = _load_message(answer, self._layouts)
                    if isinstance(done[number], Exception):
                        raise done[number]
                while turn in done:
                    yield done.pop(turn)
                    turn += 1
                answers = []
                ready: list[Any] = wait(list(busy)) if busy else []
                for pipe in ready:
                    with _name_dead_worker(work[busy[pipe]].client):
                        answers.append((busy[pipe], pipe.recv_bytes()))
                    del busy[pipe]
                    idle.append(pipe)
        finally:
            if busy:  # after an error or an early exit, nobody waits for these workers
                self.close()

    def close(self) -> None:
        """End the processes."""
        for process, pipe in zip(self.processes, self._pipes, strict=True):
            process.kill()
            process.join()
            pipe.close()


@contextmanager
def _name_dead_worker(client: int) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise WorkerDied(
            f"the worker process of client {client} ended without an answer (killed, or out of memory)"
        ) from error


def _count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pickler(pickle.Pickler):
    """Pickler that stores only the elements of a tensor view, not its whole buffer, and known layouts by number."""

    def __init__(self, file: io.BytesIO, layouts: Sequence[Layout]):
        super().__init__(file, protocol=5)
        self.layouts = layouts

    def persistent_id(self, obj: Any) -> int | None:
        return (
            next((k for k, layout in enumerate(self.layouts) if layout is obj), None) if type(obj) is Layout else None
        )

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Weights:
            return Weights, (obj.layout, obj.flat)  # without its views, which the constructor makes
        if type(obj) is Tensor and obj.layout == torch.strided:
            plain = obj.detach()
            if obj.dtype == torch.bfloat16:  # not supported by numpy
                return _make_bfloat16, (plain.contiguous().view(torch.int16).numpy(),)
            return _make_tensor, (plain.numpy(),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, layouts: Sequence[Layout]):
        super().__init__(file)
        self.layouts = layouts

    def persistent_load(self, pid: int) -> Layout:
        return self.layouts[pid]


def _load_sources(work: Any) -> Any:
    """Load the mappings of a request or a call, because functions that load them cannot be sent."""
    return replace(work, client_state=load_mapping(work.client_state), broadcast=load_mapping(work.broadcast))


def _make_tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values)


def _make_bfloat16(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).view(torch.bfloat16)


def _dump_message(message: Any, layouts: Sequence[Layout]) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, layouts).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"cannot be sent to or from a worker process ({error}): functions and classes given to `fit` and "
            "`run_on_clients` (lr= among them) stand at the top level of a module"
        ) from error
    return file.getvalue()


def _load_message(message: bytes, layouts: Sequence[Layout]) -> Any:
    return _Unpickler(io.BytesIO(message), layouts).load()


def keep_freed_memory() -> None:
    """Make glibc keep freed memory in this process. Otherwise each fit requests it from the system again."""
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 27)


# in a worker


def _serve_requests(world: World, pipe: Connection, parent: int) -> None:
    """Run a worker: answer each message with a result or an exception. `parent` is the id of the parent process."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    runner, layouts = Sequential(world), [net.layout for net in world.nets]
    while True:
        pipe.send_bytes(_answer_message(runner, pipe.recv_bytes(), layouts))


def _end_with(parent: int) -> None:
    """End this process once its parent is gone. A fit may be long, and it keeps the parent's lock until it ends."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _answer_message(runner: Sequential, message: bytes, layouts: Sequence[Layout]) -> bytes:
    try:
        work = _load_message(message, layouts)
        if isinstance(work, FitRequest):
            return _dump_message(next(runner.run([work])), layouts)
        client = Client(runner.world, work.client, work.client_state, work.targets, work.round)
        answer = call_on(client, work.fn, load_mapping(work.broadcast))
        client_state = client.release_state(getattr(work.fn, "__qualname__", "client-side code"))
        return _dump_message((answer, client_state, client.targets if client.changed else None), layouts)
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return _dump_message(error, layouts)

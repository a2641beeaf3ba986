"""Capturing a step: what a lane asks of CUDA graphs, and a stand-in that runs the same lines eagerly without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import torch

__all__ = ["EagerGraphs", "Graphs", "graphs_for"]

WARM_UP = 3  # runs before a capture: libraries choose kernels and allocate workspaces in them


class Graphs(Protocol):
    """How a lane records a function over fixed buffers and runs it again.

    runs_beside: whether what is launched on a stream runs on by itself. capture_after: a step whose batch sizes may
    never recur is captured only on its n-th occurrence. stream: one to record on. plain_stream: one on which nothing is
    ever recorded. memory: a pool that the captures of one lane may share, because they never run at once and leave
    nothing behind in it. stream_waits: what is launched on `stream` from now on waits for what the caller has launched
    so far; caller_waits: the other way round. join: the host waits until all on `stream` has run. capture: record
    `body`, after a few real runs of it, each undone by `rewind`; calling the result runs what was recorded.
    """

    name: str
    runs_beside: bool
    capture_after: int

    def stream(self) -> Any: ...
    def plain_stream(self) -> Any: ...
    def memory(self) -> Any: ...
    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]: ...
    def stream_waits(self, stream: Any) -> None: ...
    def caller_waits(self, stream: Any) -> None: ...
    def join(self, stream: Any) -> None: ...
    def capture(
        self, body: Callable[[], None], rewind: Callable[[], None], stream: Any, memory: Any
    ) -> Callable[[], None]: ...


class EagerGraphs:
    """Replays by calling: every line but the capture itself is the same, so tests without a GPU cover the rest."""

    name = "eager"
    runs_beside = False
    capture_after = 1

    def stream(self) -> Any:
        return None

    def plain_stream(self) -> Any:
        return None

    def memory(self) -> Any:
        return None

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def stream_waits(self, stream: Any) -> None:
        """Everything has run."""

    def caller_waits(self, stream: Any) -> None:
        """Everything has run."""

    def join(self, stream: Any) -> None:
        """Nothing runs on."""

    def capture(
        self, body: Callable[[], None], rewind: Callable[[], None], stream: Any, memory: Any
    ) -> Callable[[], None]:
        for _ in range(WARM_UP):
            body()
            rewind()
        return body


def graphs_for(device: torch.device) -> Graphs:
    """CUDA's where there are any, else the stand-in."""
    if device.type != "cuda":
        return EagerGraphs()
    from fednoise_core.engine.executors.cuda_graphs import CudaGraphs  # the code of runs on a CPU goes without it

    return CudaGraphs()

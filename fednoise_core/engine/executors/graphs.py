"""Capturing a step: what a lane asks of CUDA graphs, and a stand-in that runs the same lines eagerly without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Graphs", "graphs_for"]

WARM_UP = 3  # runs before a capture: libraries choose kernels and allocate workspaces in them


class Graphs:
    """How a lane records a function over fixed buffers and runs it again. This one, without a GPU, replays by calling:
    every line but the capture itself is the same, so tests cover the rest.

    runs_beside: whether what is launched on a stream runs on by itself. capture_after: a step whose batch sizes may
    never recur is captured only on its n-th occurrence. stream: one to record on. plain_stream: one on which nothing is
    ever recorded. memory: a pool that the captures of one lane may share, because they never run at once and leave
    nothing behind in it.
    """
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
        """What is launched on `stream` from now on waits for what the caller has launched so far."""

    def caller_waits(self, stream: Any) -> None:
        """The other way round."""

    def join(self, stream: Any) -> None:
        """The host waits until all on `stream` has run."""

    def capture(
        self, body: Callable[[], None], rewind: Callable[[], None], stream: Any, memory: Any
    ) -> Callable[[], None]:
        """Record `body`, after a few real runs of it, each undone by `rewind`; calling the result runs it."""
        for _ in range(WARM_UP):
            body()
            rewind()
        return body


def graphs_for(device: torch.device) -> Graphs:
    """CUDA's where there are any, else the stand-in."""
    if device.type != "cuda":
        return Graphs()
    from fednoise_core.engine.executors.cuda_graphs import CudaGraphs  # the code of runs on a CPU goes without it

    return CudaGraphs()

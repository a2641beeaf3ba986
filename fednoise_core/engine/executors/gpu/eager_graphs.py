"""Capture a step: what the executor asks of CUDA graphs, and a stand-in that runs eagerly without a GPU."""

import contextlib
from collections.abc import Callable
from typing import Any

WARM_UP = 3  # runs before a capture: libraries choose kernels and allocate workspaces in them


class Graphs:
    """Records a function over fixed buffers and runs it again, without CUDA.

    This one, without a GPU, replays by calling: every line but the capture itself is the same, so tests cover the rest.

    Attributes:
        runs_beside: Whether what is launched on a stream runs on by itself.
        capture_after: A step whose batch sizes may never recur is captured only on its n-th occurrence.
    """

    runs_beside = False
    capture_after = 1

    def stream(self) -> Any:
        """Make a stream to record on.

        Without a GPU there are no streams, so this one and its relatives return None.
        """
        return None

    def plain_stream(self) -> Any:
        """Make a stream on which nothing is ever recorded.

        Evaluations run on it beside the training.
        """
        return None

    def memory(self) -> Any:
        """Make a memory pool that the captures of one run may share.

        They may share it because they never run at once and leave nothing behind in it.
        """
        return None

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Launch on `stream` inside a `with` block."""
        return contextlib.nullcontext()

    def stream_waits(self, stream: Any) -> None:
        """Let what is launched on `stream` from now on wait for what the caller has launched so far."""

    def caller_waits(self, stream: Any) -> None:
        """Let what the caller launches from now on wait for what was launched on `stream` so far."""

    def join(self, stream: Any) -> None:
        """Let the host wait until all on `stream` has run."""

    def capture(
        self, body: Callable[[], None], rewind: Callable[[], None], stream: Any, memory: Any
    ) -> Callable[[], None]:
        """Record `body`, after a few real runs of it.

        Args:
            body: A function over fixed buffers.
            rewind: Undoes a run of it.
            stream: The stream to record on.
            memory: The run's memory pool.

        Returns:
            A function that runs what was recorded.
        """
        for _ in range(WARM_UP):
            body()
            rewind()
        return body

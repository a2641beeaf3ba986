"""Capture a step as a CUDA graph."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch

from fednoise_core.engine.executors.gpu.eager_graphs import WARM_UP, Graphs


class CudaGraphs(Graphs):
    """Capture each step with torch.cuda.graph.

    A process captures one step at a time. Other threads may launch work meanwhile, because streams of torch's pool do
    not wait for the legacy default stream.
    """

    runs_beside = True
    capture_after = WARM_UP + 1  # runs that cost as much as a capture
    _one = threading.Lock()

    def stream(self) -> Any:
        """Make a stream to record on."""
        # High priority: evaluation (default priority) fills the gaps. Torch reuses 32 streams per priority, and a
        # capture fails if other work lands on its stream, so only training uses this priority.
        return torch.cuda.Stream(priority=-1)

    def plain_stream(self) -> Any:
        """Make a stream on which nothing is ever recorded."""
        return torch.cuda.Stream()

    def memory(self) -> Any:
        """Make a memory pool for the captures of one run."""
        return torch.cuda.graph_pool_handle()

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Launch on `stream` inside a `with` block."""
        return torch.cuda.stream(stream)

    def stream_waits(self, stream: Any) -> None:
        """Let `stream` wait for what the caller has launched."""
        stream.wait_stream(torch.cuda.current_stream())

    def caller_waits(self, stream: Any) -> None:
        """Let the caller's stream wait for `stream`."""
        torch.cuda.current_stream().wait_stream(stream)

    def join(self, stream: Any) -> None:
        """Let the host wait until all on `stream` has run."""
        stream.synchronize()

    def capture(
        self, body: Callable[[], None], rewind: Callable[[], None], stream: Any, memory: Any
    ) -> Callable[[], None]:
        """Record `body` as a CUDA graph, after a few real runs that `rewind` undoes.

        Arguments are those of `Graphs.capture`.

        Returns:
            A function that replays the graph.

        Raises:
            RuntimeError: The step cannot be captured, for example because it reads a tensor on the host.
        """
        # The warm-up runs on the stream and thread of the capture: cuBLAS has a workspace for each pair of them, which
        # must not come from the graph's own memory.
        with self._one, torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                body()
                rewind()
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=memory, stream=stream, capture_error_mode="thread_local"):
                    body()  # recorded, not run
            except Exception as error:
                # Up to torch 2.12 a failed capture stays open in the allocator until the process ends (pytorch #180395,
                # #190348). Later versions close it, and raise an error if it is closed again.
                with contextlib.suppress(RuntimeError):
                    torch._C._cuda_endAllocateToPool(stream.device_index, memory)
                    torch._C._cuda_releasePool(stream.device_index, memory)
                # Exiting torch.cuda.graph raises a second, generic error; report the original one.
                raise error.__context__ or error from None
        return graph.replay

"""The GPU executor: one local step captured over static buffers, and replayed for each step of each client.

The executor owns everything its captured steps touch: weights, gradient and optimiser memory (its Workspace), the
client's images, targets and plan, and copies of the broadcast. Loading a client is a few copies into them; a step is
one replay, which reads the plan at a cursor that it moves on itself. Methods need not know: the step is the same
`Local.train_step` that `sequential` runs.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.executors.gpu.captured import StepBuffers, compute_signature
from fednoise_core.engine.executors.gpu.eager_graphs import Graphs
from fednoise_core.engine.executors.gpu.graphs import graphs_for
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.fit import ClientFit, FitRequest, FitResult
from fednoise_core.engine.world import World
from fednoise_core.ops.weights import clone_tree

SIGNATURES = 32  # kinds of steps that a run keeps ready


class Replay(Sequential):
    """Runs fits one by one on a stream of its own, and replays captured steps.

    Streams and memory: an allocation belongs to the stream it was made on, and is handed out again on that stream as
    soon as Python drops it, whatever other streams still do with it. So this stream first waits for the caller's
    (`stream_waits`), the caller waits for this one before it drops what it sent down (`join`), and results are copied
    into the caller's own memory before the next fit starts.

    Args:
        world: The run's world.
        graphs: How steps are captured. Default: as the device can.
    """

    name = "replay"

    def __init__(self, world: World, graphs: Graphs | None = None):
        super().__init__(world)
        self.graphs = graphs or graphs_for(world.device)
        self.stream, self.memory = self.graphs.stream(), self.graphs.memory()
        self.steps: dict[Any, StepBuffers] = {}  # by signature, the least recently used first
        self._refused: set[Any] = set()  # signatures whose step cannot be captured
        self._warned: set[str] = set()  # methods of which it was said that they run eagerly

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Run these fits.

        Yields:
            Results in the order of the requests, in the caller's memory.
        """
        for request in requests:
            yield self._run_fit(request)

    def _run_fit(self, request: FitRequest) -> FitResult:
        self.graphs.stream_waits(self.stream)
        try:
            with self.graphs.on(self.stream):
                fit = ClientFit(self.world, request, self.workspace).open()
                for steps in fit.iterate_stretches():
                    key = compute_signature(fit)
                    buffers = self._find_buffers(key, fit)
                    buffers.load(fit)
                    for k in steps:
                        self._launch_step(buffers, key, k)
                result = fit.close()
        finally:  # after an error, too: steps that were launched may still read the fit's inputs
            self.graphs.join(self.stream)
        detached = replace(
            result,
            **{part: clone_tree(getattr(result, part)) for part in ("update", "client_state", "targets", "relay")},
        )
        self.graphs.stream_waits(self.stream)  # the copies above read memory that is this stream's to hand out again
        return detached

    def _find_buffers(self, key: Any, fit: ClientFit) -> StepBuffers:
        """The buffers of a signature, or larger ones if the client does not fit."""
        buffers = self.steps.pop(key, None)
        if buffers is None or not buffers.can_hold(fit):  # with the smaller buffers go their captures
            buffers = StepBuffers(fit)
        self.steps[key] = buffers
        if len(self.steps) > SIGNATURES:
            # Reached, for example, when an int in `broadcast` changes every round: each value is its own captured step.
            del self.steps[next(iter(self.steps))]
        return buffers

    def _launch_step(self, buffers: StepBuffers, key: Any, k: int) -> None:
        sizes = buffers.seek_step(k)
        step, why = (None, None) if key in self._refused else self._find_step(buffers, sizes)
        if step is not None:
            step()
            return
        buffers.fit.step(k)
        self._refused.add(key)
        # Warn only after the eager step succeeded; if it fails too, its own error is the useful one.
        if why is not None:
            self._warn_once(type(buffers.fit.local).__name__, why)

    def _find_step(
        self, buffers: StepBuffers, sizes: tuple[int, ...]
    ) -> tuple[Callable[[], None] | None, Exception | None]:
        """The captured step of these batch sizes, or why it cannot be captured.

        A last batch of samples that the client chose itself is launched kernel by kernel over the same buffers until it
        has come up a few times: a capture costs several steps and memory for good, and a method whose pools change
        every epoch meets hundreds of last batches.
        """
        if sizes not in buffers.captured:
            buffers.met[sizes] += 1
            rare = buffers.fit.sizes_vary and min(sizes) < buffers.fit.size
            if rare and buffers.met[sizes] < self.graphs.capture_after:
                return lambda: buffers.step(sizes), None
            snapshot = buffers.take_snapshot()
            try:
                buffers.captured[sizes] = self.graphs.capture(
                    lambda: buffers.step(sizes), lambda: buffers.restore_snapshot(snapshot), self.stream, self.memory
                )
            except WireError:  # the method's mistake, wherever it runs
                raise
            except Exception as error:
                buffers.restore_snapshot(snapshot)
                self.memory = self.graphs.memory()  # torch does not take a pool again after a failed capture
                return None, error
        return buffers.captured[sizes], None

    def _warn_once(self, method: str, error: Exception) -> None:
        if method not in self._warned:
            self._warned.add(method)
            first = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(f"{method}: its step cannot be captured and runs eagerly ({first})", stacklevel=4)

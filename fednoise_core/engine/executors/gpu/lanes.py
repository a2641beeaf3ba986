"""The GPU executor: one local step captured over static buffers and replayed, in several lanes (streams) side by side.

A lane owns everything its captured steps touch: weights, gradient and optimiser memory (its Workspace), the client's
images, targets and plan, and copies of the broadcast. Loading a client is a few copies into them; a step is one
replay, which reads the plan at a cursor that it moves on itself. Methods need not know: the step is the same
`Local.train_step` that `sequential` runs.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.executors.gpu.captured import StepBuffers, compute_signature
from fednoise_core.engine.executors.gpu.eager_graphs import Graphs
from fednoise_core.engine.executors.gpu.graphs import graphs_for
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.fit import ClientFit, FitRequest, FitResult, Workspace
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError
from fednoise_core.ops.weights import clone_tree

STREAMS = 32  # that torch hands out in turn: a further lane would share one
SIGNATURES = 32  # kinds of steps that a run keeps ready on a lane

_NUMBERS = itertools.count()  # Run numbers. id(run) would not do: Python reuses ids of freed objects.


class Lanes(Sequential):
    """Runs fits on the lanes of a pool, which several runs (each in its own thread) may share.

    Results come in the order of the requests.
    """

    name = "lanes"

    def __init__(self, world: World, pool: LanePool | None = None, lanes: int = 0):
        self.world = world
        self.pool = pool or LanePool(world.device, lanes or _count_lanes(world))
        self.count = self.pool.count
        self._run = next(_NUMBERS)
        self._refused: set[Any] = set()  # signatures whose step cannot be captured, on whichever lane

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Run these fits, one step of each running fit in turn, and start further ones as lanes come free.

        Yields:
            Results in the order of the requests.
        """
        waiting, turn = deque(enumerate(requests)), 0
        running: deque[tuple[int, Lane, Iterator[int]]] = deque()
        done: dict[int, FitResult] = {}
        acquired: list[Lane] = []  # to give back, also after an error: other runs wait for them
        try:
            while waiting or running:
                while waiting and (lane := self.pool.acquire_lane(wait=not running)) is not None:
                    acquired.append(lane)
                    number, request = waiting.popleft()
                    running.append((number, lane, lane.start_fit(self._run, self.world, request, self._refused)))
                number, lane, steps = running.popleft()
                if next(steps, None) is None:  # all its steps are launched
                    done[number] = lane.finish_fit()
                    acquired.remove(lane)
                    self.pool.release_lane(lane)
                else:
                    running.append((number, lane, steps))
                while turn in done:
                    yield done.pop(turn)
                    turn += 1
        finally:
            for lane in acquired:
                lane.abandon_fit()
                self.pool.release_lane(lane)

    def close(self) -> None:
        """Drop the buffers and graphs that this run has in the pool.

        Other runs keep theirs, since they may share the pool.
        """
        for lane in self.pool.lanes:
            lane.runs.pop(self._run, None)


def _count_lanes(world: World) -> int:
    """Count the lanes that fit into half of the free memory.

    Small steps leave most of a GPU idle, so there are up to ten. A lane needs weights, gradient, optimiser memory and
    activations.

    Returns:
        1 to 10 on a GPU, 2 on a CPU, where lanes serve tests only.
    """
    if world.device.type != "cuda":
        return 2
    need = max(net.layout.size for net in world.nets) * 16 + world.train.batch * 40_000_000
    return max(1, min(10, int(torch.cuda.mem_get_info(world.device)[0] * 0.5 // need)))


class LanePool:
    """A fixed number of lanes of one device, handed out to whoever asks first.

    Args:
        device: Their device.
        count: Number of lanes. SpecError if torch has fewer streams.
        graphs: How steps are captured. Default: as the device can.
    """

    def __init__(self, device: torch.device | str, count: int, graphs: Graphs | None = None):
        if not 1 <= count <= STREAMS:
            raise SpecError(f"executor: {count} lanes: there must be 1 to {STREAMS}")
        self.device = torch.device(device)
        self.graphs = graphs or graphs_for(self.device)
        self.count = count
        self.warned: set[str] = set()  # methods of which it was said that they run eagerly
        self.lanes = [Lane(self) for _ in range(count)]
        self._free = deque(self.lanes)
        self._changed = threading.Condition()

    def acquire_lane(self, wait: bool) -> Lane | None:
        """Take a free lane.

        Args:
            wait: Whether to wait for one.

        Returns:
            The lane, or None if none is free and the caller has other work.
        """
        with self._changed:
            while not self._free:
                if not wait:
                    return None
                self._changed.wait()
            return self._free.popleft()

    def release_lane(self, lane: Lane) -> None:
        """Hand a lane back, and wake a run that waits for one."""
        with self._changed:
            self._free.append(lane)
            self._changed.notify()

    def warn_once(self, method: str, error: Exception) -> None:
        """Warn that a method's step runs eagerly, once per method.

        Args:
            method: Name of its class.
            error: Why the step cannot be captured.
        """
        with self._changed:
            if method in self.warned:
                return
            self.warned.add(method)
        first = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{method}: its step cannot be captured and runs eagerly ({first})", stacklevel=4)


class _RunOnLane:
    """Buffers of one run on one lane: for training, and with captures for each kind of step."""

    def __init__(self, graphs: Graphs):
        self.workspace = Workspace()
        self.steps: dict[Any, StepBuffers] = {}  # by signature, the least recently used first
        self.memory = graphs.memory()

    def buffers_for(self, key: Any, fit: ClientFit) -> StepBuffers:
        """Look up the buffers of a signature, or make larger ones if the client does not fit.

        Args:
            key: The signature.
            fit: The client's fit.
        """
        buffers = self.steps.pop(key, None)
        if buffers is None or not buffers.can_hold(fit):  # with the smaller buffers go their captures
            buffers = StepBuffers(fit)
        self.steps[key] = buffers
        if len(self.steps) > SIGNATURES:
            # Reached, for example, when an int in `broadcast` changes every round: each value is its own captured step.
            del self.steps[next(iter(self.steps))]
        return buffers


class Lane:
    """One stream, and what each run keeps on it.

    Streams and memory: an allocation belongs to the stream it was made on, and is handed out again on that stream as
    soon as Python drops it, whatever other streams still do with it. So the lane's stream first waits for the caller's
    (`stream_waits`), the caller waits for the lane before it drops what it sent down (`join`), and results are copied
    into the caller's own memory before the lane goes on.
    """

    def __init__(self, pool: LanePool):
        self.pool, self.graphs = pool, pool.graphs
        self.stream = self.graphs.stream()
        self.fit: ClientFit | None = None
        self.runs: dict[int, _RunOnLane] = {}  # by run number: each is touched by its run's thread only

    def start_fit(self, run: int, world: World, request: FitRequest, refused: set[Any]) -> Iterator[int]:
        """Open a fit on this lane.

        Args:
            run: Number of the run.
            world: Its world.
            request: The fit.
            refused: Signatures whose step cannot be captured and runs eagerly.

        Returns:
            An iterator that launches one step at a time.
        """
        self.graphs.stream_waits(self.stream)
        with self.graphs.on(self.stream):
            if run not in self.runs:
                self.runs[run] = _RunOnLane(self.graphs)
            run_buffers = self.runs[run]
            self.fit = fit = ClientFit(world, request, run_buffers.workspace).open()
        return self._iterate_steps(run_buffers, fit, refused)

    def _iterate_steps(self, run_buffers: _RunOnLane, fit: ClientFit, refused: set[Any]) -> Iterator[int]:
        """Launch the steps of one stretch after the other; what a stretch needs is copied in at its start."""
        stretches = fit.iterate_stretches()
        while True:
            with self.graphs.on(self.stream):
                steps = next(stretches, None)  # runs client-side code between stretches
                if steps is None:
                    return
                key = compute_signature(fit)
                buffers = run_buffers.buffers_for(key, fit)
                buffers.load(fit)
            for k in steps:
                with self.graphs.on(self.stream):
                    self._launch_step(run_buffers, buffers, key, k, refused)
                yield k

    def _launch_step(self, run_buffers: _RunOnLane, buffers: StepBuffers, key: Any, k: int, refused: set[Any]) -> None:
        sizes = buffers.seek_step(k)
        step, why = (None, None) if key in refused else self._find_step(run_buffers, buffers, sizes)
        if step is not None:
            step()
            return
        buffers.fit.step(k)
        refused.add(key)
        # Warn only after the eager step succeeded; if it fails too, its own error is the useful one.
        if why is not None:
            self.pool.warn_once(type(buffers.fit.local).__name__, why)

    def _find_step(
        self, run_buffers: _RunOnLane, buffers: StepBuffers, sizes: tuple[int, ...]
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
                    lambda: buffers.step(sizes),
                    lambda: buffers.restore_snapshot(snapshot),
                    self.stream,
                    run_buffers.memory,
                )
            except WireError:  # the method's mistake, wherever it runs
                raise
            except Exception as error:
                buffers.restore_snapshot(snapshot)
                run_buffers.memory = self.graphs.memory()  # torch does not take a pool again after a failed capture
                return None, error
        return buffers.captured[sizes], None

    def finish_fit(self) -> FitResult:
        """Close the fit and free the lane.

        Returns:
            The result, in the caller's memory.
        """
        assert self.fit is not None
        with self.graphs.on(self.stream):
            result = self.fit.close()
        self.graphs.join(self.stream)
        detached = replace(
            result,
            **{part: clone_tree(getattr(result, part)) for part in ("update", "client_state", "targets", "relay")},
        )
        self.graphs.stream_waits(self.stream)  # the copies above read memory that is this stream's to hand out again
        self.fit = None
        return detached

    def abandon_fit(self) -> None:
        """Drop a fit that failed.

        The host waits for the stream first, because steps that were launched may still read the fit's inputs.
        """
        self.graphs.join(self.stream)
        self.fit = None

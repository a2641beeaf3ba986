"""Capturing steps, with a stand-in for a GPU that notices misuse."""

import dataclasses
import inspect
import warnings
from typing import Any

import pytest
import torch
import toy
from toy_jobs import WHO, Everything, all_tensors, apart, jobs

from fednoise_core.engine.executors.gpu.replay import Replay
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.local import Local
from fednoise_core.testing.tape import TapeGraphs


class Strict(TapeGraphs):
    """Counts captures and waits."""

    def __init__(self) -> None:
        self.captures = self.joined = self.followed = 0

    def stream_waits(self, stream: Any) -> None:
        self.followed += 1

    def join(self, stream: Any) -> None:
        self.joined += 1

    def capture(self, body, rewind, stream, memory):
        self.captures += 1
        return super().capture(body, rewind, stream, memory)


class Peeks(toy.Plain):
    """Looks at its loss."""

    def compute_objective(self, net, w, batch, broadcast, client_state):
        loss = super().compute_objective(net, w, batch, broadcast, client_state)
        return loss * 2 if loss.item() > 0 else loss


class Draws(Peeks):
    """Random numbers of its own would be the same in every replay; they are also not the run's."""

    def compute_objective(self, net, w, batch, broadcast, client_state):
        return Local.compute_objective(self, net, w, batch, broadcast, client_state) + 0 * torch.rand(1).sum()


REFUSED = {Peeks: ("_local_scalar_dense.default", "loss.item()"), Draws: ("rand.default", "torch.rand(1)")}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_step_that_cannot_be_captured_runs_eagerly_and_says_so_once(kind):
    made = toy.toy_world()
    replay = Replay(made, Strict())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [r for k in (1, 2) for r in replay.run(jobs(made, kind(made.train), round=k))]
    lines, first = inspect.getsourcelines(kind.compute_objective)
    (at,) = [first + k for k, line in enumerate(lines) if REFUSED[kind][1] in line]
    why = f"operation not permitted when stream is capturing: {REFUSED[kind][0]}, test_capture.py, line {at}"
    told = [str(w.message) for w in said]
    assert told == [f"{kind.__name__}: its step cannot be captured and runs eagerly ({why})"]
    expected = [r for k in (1, 2) for r in Sequential(made).run(jobs(made, kind(made.train), round=k))]
    assert all(apart(a.update, b.update) < 1e-5 for a, b in zip(expected, found, strict=True))


def test_a_real_error_of_a_step_is_not_called_a_matter_of_capture():
    class Breaks(Peeks):
        def compute_objective(self, net, w, batch, broadcast, client_state):
            raise ValueError("no such column")

    made = toy.toy_world()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no such column"):
            list(Replay(made).run(jobs(made, Breaks(made.train))))


def test_a_step_is_captured_once_for_each_size():
    """Clients differ in size: the buffers grow at most to the largest, and what was captured is used again."""
    made, graphs = toy.toy_world(), Strict()
    replay = Replay(made, graphs)
    for k in range(4):
        list(replay.run(jobs(made, round=k + 1)))
    steps = {b - a for c in WHO if made.sizes[c] for a, b in [(0, min(5, made.sizes[c])), (0, made.sizes[c] % 5)] if b}
    first = graphs.captures
    assert len(steps) <= first <= 3 * len(steps)
    list(replay.run(jobs(made, round=9)))
    assert graphs.captures == first


def test_the_host_waits_for_the_stream_before_results_are_used_and_the_stream_for_the_host():
    made, graphs = toy.toy_world(), Strict()
    list(Replay(made, graphs).run(jobs(made)))
    assert graphs.joined == len(WHO)
    assert graphs.followed == 2 * len(WHO)  # before a job is loaded, and after its result was copied out


def test_results_do_not_share_memory_with_the_buffers():
    made = toy.toy_world()
    replay = Replay(made)
    results = list(replay.run(jobs(made, Everything(made.train))))
    inner = {
        t.untyped_storage().data_ptr()
        for buffers in replay.steps.values()
        for t in [*buffers._list_written(), buffers.x, buffers.y]
    }
    outer = [t.untyped_storage().data_ptr() for r in results for t in all_tensors([r.update, r.client_state])]
    assert inner.isdisjoint(outer)
    assert len(set(outer)) == len(outer)


def test_last_batches_of_chosen_samples_are_captured_when_they_have_come_up_a_few_times():
    """Launched over the same buffers until then, so the numbers are the same."""

    def ran(recurs: int, local: Any) -> tuple[int, list[Any]]:
        made, graphs = toy.toy_world(), Strict()
        graphs.capture_after = recurs
        replay = Replay(made, graphs)
        found = [r for k in (1, 2) for r in replay.run(jobs(made, local and local(made.train), round=k))]
        return graphs.captures, [(r.update, r.client_state) for r in found]

    (always, expected), (sometimes, found), (rarely, again) = (ran(times, Everything) for times in (1, 3, 99))
    assert always > sometimes > rarely > 0
    assert toy.same_state(expected, found)
    assert toy.same_state(expected, again)
    assert ran(1, None)[0] == ran(99, None)[0]  # where nothing was chosen, every size comes again


class TrainsWhatItKeeps(toy.Plain):
    """From the second time on also a model that it keeps, of which its steps name nothing."""

    def init_carry(self, net, broadcast, client_state):
        return {"model": broadcast["model"], **({"own": client_state["own"]} if "own" in client_state else {})}

    def train_step(self, net, carry, batch, broadcast, client_state):
        for trained in carry.values():
            trained.backward(self.compute_objective(net, trained.w, batch, broadcast, client_state))
            trained.update(broadcast["lr"])

    def make_update(self, net, carry, broadcast, client_state, steps):
        last = carry.get("own", carry["model"]).values()
        return {"model": carry["model"].values(), "own": last, "client_state": {"own": last}}


def test_a_step_that_trains_other_nets_is_another_step():
    made = toy.toy_world()
    local, results = TrainsWhatItKeeps(made.train), {}
    for name, runner in (("sequential", Sequential(made)), ("replay", Replay(made, Strict()))):
        kept: dict[int, Any] = {}
        for k in (1, 2):
            work = jobs(made, local, round=k)
            work = [dataclasses.replace(job, client_state=kept.get(job.client) or {}) for job in work]
            found = list(runner.run(work))
            kept = {job.client: r.client_state for job, r in zip(work, found, strict=True)}
        results[name] = [r.update for r in found]
    assert apart(results["sequential"], results["replay"]) < 1e-4

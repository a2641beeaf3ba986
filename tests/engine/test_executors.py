"""Everything that a step may use works on every executor. The contract suite runs every method on each of them."""

import functools

import pytest
import toy
from toy_jobs import Everything, jobs

from fednoise_core.api.simulate import FinishedRun
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers


@functools.cache
def played(name: str, executor: str) -> FinishedRun:
    return toy.play(name, executor=executor)


# equal results


@pytest.mark.parametrize(
    "train",
    [
        {},
        {"net": "toy_norm"},
        {"net": "toy_norm_point"},
        {"net": "toy_drop"},
        {"augment": "crop_flip"},
        {"last_batch": "drop"},
        {"last_batch": "wrap"},
        {"optimiser": "adam", "lr": 0.01},
        {"momentum": 0.9, "clip": 0.1},
    ],
)
def test_all_that_a_step_may_use_is_carried_by_every_executor(train, toy_nets):
    world = toy.toy_world(train)
    expected = [r for k in (1, 2) for r in Sequential(world).run(jobs(world, Everything(world.train), round=k))]
    for count in (1, 3):
        workers = Workers(world, count)
        results = [r for k in (1, 2) for r in workers.run(jobs(world, Everything(world.train), round=k))]
        workers.close()
        assert all(toy.same_state(a, b) for a, b in zip(expected, results, strict=True))


@pytest.mark.parametrize(("name", "size"), [("fedavg", 0), ("scaffold", 4 * (64 * 6 + 6 + 6 * 5 + 5))])
def test_the_cost_says_what_a_client_keeps(name, size):
    assert played(name, "sequential").cost["client_state_bytes"] == size

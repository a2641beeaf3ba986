"""A method of every kind on every executor: equal results, resume, errors, several runs on shared lanes. The contract
suite holds every method against two executors.
"""

import functools
import threading

import pytest
import toy
from toy_jobs import Everything, apart, jobs

from fednoise_core.api.simulate import FinishedRun, run_federation
from fednoise_core.engine.executors.gpu.lanes import LanePool, Lanes
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers

pytestmark = pytest.mark.usefixtures("taped")
every_kind = pytest.mark.parametrize("name", toy.KINDS)


@functools.cache
def played(name: str, executor: str) -> FinishedRun:
    return toy.play(name, executor=executor)


# equal results


@every_kind
def test_lanes_agree_bit_for_bit_however_many(name):
    one, three = played(name, "lanes:1"), played(name, "lanes:3")
    assert toy.same_state(one.outcome.state, three.outcome.state)
    assert toy.same_state(one.outcome.record, three.outcome.record)


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
    made = toy.toy_world(train)
    expected = [r for k in (1, 2) for r in Sequential(made).run(jobs(made, Everything(made.train), round=k))]
    for count in (1, 3):
        workers = Workers(made, count)
        found = [r for k in (1, 2) for r in workers.run(jobs(made, Everything(made.train), round=k))]
        workers.close()
        assert all(toy.same_state(a, b) for a, b in zip(expected, found, strict=True))
        lanes = Lanes(made, lanes=count)
        found = [r for k in (1, 2) for r in lanes.run(jobs(made, Everything(made.train), round=k))]
        for a, b in zip(expected, found, strict=True):
            assert a.steps == b.steps
            assert a.update["steps"] == b.update["steps"]
            assert toy.same_state(a.targets, b.targets)
            assert apart([a.update, a.client_state], [b.update, b.client_state]) < 1e-4


@pytest.mark.parametrize(("name", "kept"), [("fedavg", 0), ("scaffold", 4 * (64 * 6 + 6 + 6 * 5 + 5))])
def test_the_cost_says_what_a_client_keeps(name, kept):
    assert played(name, "sequential").cost["client_state_bytes"] == kept


# several runs on shared lanes


@pytest.mark.parametrize("names", [("fedavg", "fedavg"), ("scaffold", "coteaching"), ("fedcorr", "feddpcont")])
def test_runs_that_share_lanes_are_as_alone_and_leave_nothing(names):
    pool, found = LanePool("cpu", 2), {}

    def go(k: int, name: str) -> None:
        method, train = toy.settings(name)
        found[k] = run_federation(
            toy.arrays(), toy.toy_labels(), toy.toy_partition(), method, train, k, executor="lanes", pool=pool
        )

    threads = [threading.Thread(target=go, args=pair) for pair in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, name in enumerate(names):
        alone = toy.play(name, seed=k, executor="lanes:1")
        assert toy.same_state(found[k].outcome.state, alone.outcome.state)
    assert all(not lane.runs for lane in pool.lanes)
    assert all(lane.fit is None for lane in pool.lanes)

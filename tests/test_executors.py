"""A method of every kind on every executor: equal results, resume, errors, several runs on shared lanes. The contract
suite holds every method against two executors.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest
import toy
from toy_jobs import Everything, apart, jobs

from fednoise_core.engine.executors.lanes import LanePool, Lanes
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.local import Local
from fednoise_core.engine.loop import Saving, Stopped
from fednoise_core.simulate import FinishedRun, run

pytestmark = pytest.mark.usefixtures("taped")
every_kind = pytest.mark.parametrize("name", toy.KINDS)


@functools.cache
def played(name: str, executor: str) -> FinishedRun:
    return toy.play(name, executor=executor)


# equal results


@every_kind
@pytest.mark.parametrize("count", [1, 2, 4])
def test_workers_are_sequential_bit_for_bit(name, count):
    whole, found = played(name, "sequential"), played(name, f"workers:{count}")
    assert toy.same(found.outcome.state, whole.outcome.state)
    assert toy.same(found.outcome.record, whole.outcome.record)
    assert found.summary == whole.summary


@every_kind
def test_lanes_agree_bit_for_bit_however_many(name):
    one, three = played(name, "lanes:1"), played(name, "lanes:3")
    assert toy.same(one.outcome.state, three.outcome.state)
    assert toy.same(one.outcome.record, three.outcome.record)


@every_kind
def test_lanes_stay_within_a_ten_thousandth_of_sequential_in_a_round(name):
    rounds = {"rounds": 1, "lr": 0.05}
    method = {"iterations": 1, "tune_rounds": 1, "full_rounds": 1} if name == "fedcorr" else {}
    a, b = (toy.play(name, method=method, executor=e, **rounds) for e in ("sequential", "lanes:2"))
    if name == "fedcorr":  # several rounds in any case, and labels that may flip: the same phases, cohorts and bytes
        rows = [[row[:3] + row[5:6] for row in x.outcome.record.metrics] for x in (a, b)]
        assert rows[0] == rows[1]
        assert a.summary["notes"] == b.summary["notes"]
        assert a.summary["bytes_up"] == b.summary["bytes_up"]
        assert a.summary["accuracy"]["last"] == pytest.approx(b.summary["accuracy"]["last"], abs=0.01)
    else:
        assert apart(vars(a.outcome.state), vars(b.outcome.state)) < 1e-4
    assert a.summary["bytes_down"] == b.summary["bytes_down"]


@every_kind
@pytest.mark.parametrize("executor", ["workers:2", "lanes:2"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(name, executor, tmp_path):
    with pytest.raises(Stopped):
        toy.play(name, executor=executor, saving=Saving(tmp_path / "checkpoint.pt", "key", stop=lambda: True))
    resumed = toy.play(name, executor=executor, saving=Saving(tmp_path / "checkpoint.pt", "key"))
    assert resumed.outcome.resumed == 1
    assert toy.same(resumed.outcome.state, played(name, executor).outcome.state)
    assert toy.same(resumed.outcome.record, played(name, executor).outcome.record)


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
    ],
)
def test_all_that_a_step_may_use_is_carried_by_every_executor(train, toy_nets):
    made = toy.world(train)
    expected = [r for k in (1, 2) for r in Sequential(made).run(jobs(made, Everything(made.train), round=k))]
    for count in (1, 3):
        with Workers(made, count) as workers:
            found = [r for k in (1, 2) for r in workers.run(jobs(made, Everything(made.train), round=k))]
        assert all(toy.same(a, b) for a, b in zip(expected, found, strict=True))
        lanes = Lanes(made, lanes=count)
        found = [r for k in (1, 2) for r in lanes.run(jobs(made, Everything(made.train), round=k))]
        for a, b in zip(expected, found, strict=True):
            assert a.steps == b.steps
            assert a.up["steps"] == b.up["steps"]
            assert toy.same(a.targets, b.targets)
            assert apart([a.up, a.mine], [b.up, b.mine]) < 1e-4


@pytest.mark.parametrize(("name", "kept"), [("fedavg", 0), ("scaffold", 4 * (64 * 6 + 6 + 6 * 5 + 5))])
def test_the_cost_says_what_a_client_keeps(name, kept):
    assert played(name, "sequential").cost["client_state_bytes"] == kept


# several runs on shared lanes


@pytest.mark.parametrize("names", [("fedavg", "fedavg"), ("scaffold", "coteaching"), ("fedcorr", "feddpcont")])
def test_runs_that_share_lanes_are_as_alone_and_leave_nothing(names):
    pool, found = LanePool("cpu", 2), {}

    def go(k: int, name: str) -> None:
        method, train = toy.settings(name)
        found[k] = run(toy.arrays(), toy.labels(), toy.partition(), method, train, k, executor="lanes", pool=pool)

    threads = [threading.Thread(target=go, args=pair) for pair in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, name in enumerate(names):
        alone = toy.play(name, seed=k, executor="lanes:1")
        assert toy.same(found[k].outcome.state, alone.outcome.state)
    assert all(not lane._runs for lane in pool.lanes)
    assert all(lane.fit is None for lane in pool.lanes)


def test_a_run_that_fails_does_not_harm_the_other():
    class Fails(Local):
        def __init__(self, train: Any):
            self.train = train

        def prepare(self, me, down):
            if me.id == 4:
                raise ArithmeticError("no such luck")

    pool, made = LanePool("cpu", 2), toy.world()
    errors: list[BaseException] = []

    def fail() -> None:
        for _ in range(5):
            lanes = Lanes(made, pool)
            try:
                list(lanes.run(jobs(made, Fails(made.train))))
            except ArithmeticError as error:
                errors.append(error)
            lanes.close()

    other = threading.Thread(target=fail)
    other.start()
    method, train = toy.settings("scaffold")
    found = run(toy.arrays(), toy.labels(), toy.partition(), method, train, 0, executor="lanes", pool=pool)
    other.join()
    assert len(errors) == 5
    assert toy.same(found.outcome.state, played("scaffold", "lanes:1").outcome.state)
    assert len(pool._free) == 2

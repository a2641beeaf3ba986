"""Executors: order of results, errors, dead workers."""

import pytest
import torch
import toy
from toy_jobs import jobs

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.local import Local
from fednoise_core.io import SpecError


class Falls(Local):
    """Fails on client 3: in a step, or before the first."""

    def __init__(self, train, when: str):
        self.train, self.when = train, when

    def prepare_fit(self, client, broadcast):
        client.state["bad"] = client.id == 3
        if client.id == 3 and self.when == "prepare":
            raise ArithmeticError("no such luck")

    def train_step(self, net, carry, batch, broadcast, client_state):
        if client_state["bad"] and self.when == "step":
            raise ArithmeticError("no such luck")
        super().train_step(net, carry, batch, broadcast, client_state)


def test_results_come_in_the_order_of_the_jobs(executor):
    world = toy.toy_world()
    expected = {
        job.client: r.update["model"].flat
        for job, r in zip(jobs(world), Sequential(world).run(jobs(world)), strict=True)
    }
    with toy.federation_on(executor) as fed:
        for clients in ([1, 0, 3], [5, 1, 7, 6, 4, 0, 3], [0]):
            for client, result in zip(clients, fed.executor.run(jobs(world, clients=clients)), strict=True):
                torch.testing.assert_close(result.update["model"].flat, expected[client], rtol=0, atol=1e-5)


def test_nothing_to_do_is_done_at_once(executor):
    with toy.federation_on(executor) as fed:
        assert list(fed.executor.run([])) == []
        assert list(fed.executor.call(lambda client, broadcast: 1, [], [])) == []


@pytest.mark.parametrize("when", ["prepare", "step"])
def test_an_error_on_a_client_reaches_the_run(executor, when):
    with toy.federation_on(executor) as fed, pytest.raises(ArithmeticError, match="no such luck"):
        list(fed.executor.run(jobs(fed.world, Falls(fed.train, when))))


def test_workers_end_with_the_run():
    world = toy.toy_world()
    runner = Workers(world, 3)
    processes = list(runner.processes)
    assert len(processes) == 3
    assert all(p.is_alive() for p in processes)
    list(runner.run(jobs(world)))
    runner.close()
    assert not any(p.is_alive() for p in processes)


def test_workers_are_for_the_cpu():
    world = toy.toy_world()
    world.device = torch.device("cuda")
    with pytest.raises(SpecError, match="Take sequential on a GPU"):
        Workers(world, 1)


def test_a_client_without_samples_takes_no_step(executor):
    with toy.federation_on(executor) as fed:
        (job,) = jobs(fed.world, clients=[2])
        (result,) = fed.executor.run([job])
    assert result.steps == 0
    assert torch.equal(result.update["model"].flat, job.broadcast["model"].flat)


def test_the_callers_thread_count_neither_counts_nor_changes():
    """Two threads would give other sums, and be far slower on shared cores."""
    before = torch.get_num_threads()
    try:
        ends = []
        for count in (1, 2):
            torch.set_num_threads(count)
            ends.append(toy.play("fedavg").outcome.state.server["model"].flat)
            assert torch.get_num_threads() == count
        assert torch.equal(*ends)
    finally:
        torch.set_num_threads(before)

"""Worker processes: those that die, those that are left over, and the contents of their pipes."""

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from toy_jobs import jobs

from fednoise_core.engine.client import Client
from fednoise_core.engine.executors.workers import WorkerDied, Workers
from fednoise_core.engine.local import Local


class Dies(Local):
    """Ends its process on one client."""

    def __init__(self, train: Any, client: int):
        self.train, self.client = train, client

    def prepare_fit(self, client, broadcast):
        if client.id == self.client:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_that_dies_ends_the_run_and_nobody_is_left(count):
    world = toy.toy_world()
    workers = Workers(world, count)
    with pytest.raises(WorkerDied, match=r"client 6 .*killed, or out of memory"):
        list(workers.run(jobs(world, Dies(world.train, 6))))
    assert not any(process.is_alive() for process in workers.processes)


def test_a_worker_that_dies_within_its_answer_is_noticed():
    workers = Workers(toy.toy_world(), 2)
    clients = [Client(workers.world, c, {}, None, 1) for c in range(3)]
    with pytest.raises(WorkerDied):
        list(workers.call(says_half, clients, [{}] * 3))
    assert not any(process.is_alive() for process in workers.processes)


def says_half(client: Any, broadcast: Any) -> None:
    """Ends its process in the middle of the first client's answer."""

    def send(pipe: Connection, content: Any) -> None:
        os.write(pipe.fileno(), bytes(content)[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    if client.id == 0:
        Connection._send = send  # in this process


def test_workers_end_with_the_run_that_was_killed(tmp_path):
    """Otherwise they would go on with a long fit beside the run that replaces it."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        world = toy.toy_world()
        workers = Workers(world, 2)
        os.write(writer, " ".join(str(p.pid) for p in workers.processes).encode())
        list(workers.run(jobs(world, Sleeps(world.train))))
        os._exit(0)
    pids = [int(word) for word in os.read(reader, 100).split()]
    time.sleep(1)  # they are at work
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    end = time.monotonic() + 20
    while any(runs(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.1)
    left = [pid for pid in pids if runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


class Sleeps(toy.Plain):
    """A fit that takes a minute."""

    def prepare_fit(self, client, broadcast):
        time.sleep(60)


def runs(pid: int) -> bool:
    """True if a process runs. One that has ended may stay listed as a zombie (Z)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_idle_worker_that_was_killed_is_noticed_at_the_next_job():
    world = toy.toy_world()
    workers = Workers(world, 1)
    list(workers.run(jobs(world)))
    workers.processes[0].kill()
    workers.processes[0].join()
    with pytest.raises(WorkerDied):
        list(workers.run(jobs(world, clients=(1, 0))))


def test_answers_of_a_round_that_was_left_are_not_taken_for_later_ones():
    world = toy.toy_world()
    workers = Workers(world, 2)
    results = workers.run(jobs(world) * 10)  # so many that the first answer cannot be the last
    next(results)
    results.close()
    assert not any(process.is_alive() for process in workers.processes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_tensors_pass_the_pipe_bit_for_bit(dtype):
    world = toy.toy_world()
    matrix = (torch.rand(6, 4, generator=torch.Generator().manual_seed(0)) * 5).to(dtype)
    model = world.net(0).fresh(torch.Generator().manual_seed(1))
    model.views  # noqa: B018  views that were asked for must not travel as copies beside the buffer
    sent = {"view": matrix[1:3], "across": matrix.t(), "nothing": matrix[:0], "number": matrix[0, 0], "model": model}
    workers = Workers(world, 1)
    ((answer, _),) = workers.call(give_back, [Client(world, 0, {}, None, 1)], [sent])
    workers.close()
    assert {k: (v.dtype, v.shape) for k, v in answer.items() if k != "model"} == {
        k: (v.dtype, v.shape) for k, v in sent.items() if k != "model"
    }
    assert all(torch.equal(answer[k], sent[k]) for k in sent if k != "model")
    assert answer["model"].layout is world.net(0).layout
    answer["model"].flat.zero_()
    assert not answer["model"]["head.bias"].any()


def give_back(client: Any, broadcast: Any) -> Any:
    return dict(broadcast)

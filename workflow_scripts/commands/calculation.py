"""Calculate the cost of a planned run by counting operations and measuring seconds in a small copy of it.

The copy has the run's code, images and net, but few samples. It runs one round of each phase, which stands for all
rounds that the phase may have. So the views, nets and phases of the method are taken into account. Work that does not
grow with the number of samples is overestimated, such as training on a fixed number of public images. Work that is done
once at the end is left out.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine.client_store import ROOM
from fednoise_core.engine.evaluate import Evaluator
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import keep_freed_memory
from fednoise_core.engine.loop import RunLoop
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import World, torch_switches
from fednoise_core.methods import make_method
from fednoise_core.noise.labels import Labels
from fednoise_core.settings.train import Train
from workflow_scripts.study.plan import Plan

SAMPLES = 4  # per client, to count operations, whose number is proportional to the samples
SECONDS = 2  # after this time no measurement is repeated


def calculate_cost(spec: Mapping[str, Any], plan: Plan, device: str) -> tuple[float, float, float]:
    """Calculate the cost of a run on this machine.

    Args:
        spec: Its settings.
        plan: Its plan. Arrays, labels and partition exist.
        device: "cpu" or "cuda".

    Returns:
        Training steps of its clients; operations of its matrix products and convolutions, two for a multiply-add; and
        CPU seconds of one core, or seconds of a GPU.
    """
    keep_freed_memory()
    batch, epochs = Train(**spec["train"]).batch, Train(**spec["train"]).epochs
    with torch_switches(1):
        with make_counter() as counter:
            flop, passes = _measure(_Copy(spec, plan, device, SAMPLES, epochs), counter.get_total_flops)
            flop_of_one_epoch, _ = _measure(_Copy(spec, plan, device, SAMPLES, 1), counter.get_total_flops)
        end, seconds = _read_clock(device) + SECONDS, math.inf
        while seconds == math.inf or _read_clock(device) < end:  # repeated, since the first time is slower
            timed = _Copy(spec, plan, device, batch, 1)
            seconds = min(seconds, _measure(timed, lambda: _read_clock(device))[0])
    return passes / (batch * timed.method.passes), flop, seconds * flop / flop_of_one_epoch


def make_counter() -> FlopCounterMode:
    """Make a context that counts operations. It corrects torch's count of a grouped convolution's gradient."""

    def count_gradient(grad: Sequence[int], x: Sequence[int], w: Sequence[int], *args: Any, **_: Any) -> int:
        transposed, mask = args[4], args[7]
        return 2 * math.prod(x if transposed else grad) * math.prod(w[1:]) * sum(mask[:2])

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: count_gradient})


def _read_clock(device: str) -> float:
    """Read CPU seconds of this process, which depend little on other processes, or wall seconds on a GPU."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


class _Copy:
    """A run with few samples of each client, proportionally few public images, and one batch of test images."""

    def __init__(self, spec: Mapping[str, Any], plan: Plan, device: str, samples: int, epochs: int) -> None:
        batch = min(Train(**spec["train"]).batch, samples)
        train = Train(**{**spec["train"], "sampling": "keyed", "epochs": epochs, "batch": batch})
        self.method = make_method(spec["method"], train)
        files = [input_plan.main_file for input_plan in plan.inputs[:3]]
        arrays, labels, partition = Arrays.load(files[0]), Labels.load(files[1]), Partition.load(files[2])
        world = World(arrays, labels.noisy, partition, train, spec["seed"], device, pooled=self.method.pooled)
        total = sum(map(len, world.index))
        world.index, world.valid = ([rows[:samples] for rows in part] for part in (world.index, world.valid))
        world.sizes = list(map(len, world.index))
        self.times = total / sum(world.sizes)

        if arrays.x_public is not None:
            public = arrays.x_public[: math.ceil(len(arrays.x_public) / self.times)]
            world.pools["public"] = Pool(public, arrays.mean, arrays.std, device)
        test = Pool(arrays.x_test[:batch], arrays.mean, arrays.std, device)
        self.times_tested = len(arrays.x_test) / test.n
        y = torch.from_numpy(np.asarray(arrays.y_test[:batch], dtype=np.int64)).to(device)
        truth = Truth(None, labels.noisy, [rows.cpu().numpy() for rows in world.index], world.classes)
        self.run = RunLoop(world, Sequential(world), self.method, truth, None, "", None)
        self.evaluator = Evaluator(self.run.fed, test, y)

    def play_phases(self) -> Iterator[float]:
        """Run one round of each phase.

        Yields:
            After each part, the factor by which the whole run does more work in this part.
        """
        run, train = self.run, self.run.world.train
        run.start_run(ROOM, self.evaluator)
        yield self.times_tested
        while (phase := run.enter_phase()) is not None:
            yield self.times
            rounds = range(run.state.round + 1, phase.end + 1)
            run.state.round += 1
            with run.state.store.server_side():
                phase.run_round(run.fed, run.state)
            yield self.times * len(rounds)
            list(self.evaluator.evaluate_views(run.list_evaluated()[0], run.state.store))
            late = run.phases[-1].end - train.eval_last
            yield self.times_tested * sum(number % train.eval_every == 0 or number > late for number in rounds)
            run.state.round = phase.end


def _measure(copy: _Copy, read: Callable[[], float]) -> tuple[float, float]:
    """Return the increase of `read` over the whole run, and the number of passes of samples in the run."""
    total, before = np.zeros(2), np.array([read(), 0.0])
    for often in copy.play_phases():
        now = np.array([read(), copy.run.fed.passes])
        total, before = total + often * (now - before), now
    return float(total[0]), float(total[1])

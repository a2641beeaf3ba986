"""Choose the executor that a name means."""

from fednoise_core.engine.executors.gpu.replay import Replay
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError


def executor_for(world: World, name: str = "auto") -> Sequential:
    """Make the executor called `name`.

    Args:
        world: The run's world.
        name: "sequential", "workers" (one per core), "workers:N" or "replay". "auto" is replay on a GPU and sequential
            on a CPU, where a workflow fills the cores with runs.

    Raises:
        SpecError: There is no such executor.
    """
    if name == "auto":
        name = "replay" if world.device.type == "cuda" else "sequential"
    kind, colon, count = name.partition(":")
    if colon and not (count.isdigit() and int(count)):
        raise SpecError(f"executor: {name!r}: expected a number above 0 after the colon")
    if kind == "workers":
        return Workers(world, int(count or 0))
    if name == "replay":
        return Replay(world)
    if name == "sequential":
        return Sequential(world)
    raise SpecError(f"executor: {name!r} is not one of auto, sequential, workers, workers:N, replay")

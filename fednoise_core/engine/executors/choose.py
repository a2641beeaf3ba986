"""Choose the executor that a name means."""

from fednoise_core.engine.executors.gpu.lanes import LanePool, Lanes
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError


def executor_for(world: World, name: str = "auto", pool: LanePool | None = None) -> Sequential:
    """Make the executor called `name`.

    Args:
        world: The run's world.
        name: "sequential", "workers" (one per core) or "workers:N", "lanes" or "lanes:N". "auto" is lanes on a GPU and
            sequential on a CPU, where a workflow fills the cores with runs.
        pool: Lanes shared with other runs.

    Raises:
        SpecError: There is no such executor.
    """
    kind, colon, count = name.partition(":")
    if colon and not (count.isdigit() and int(count)):
        raise SpecError(f"executor: {name!r}: expected a number above 0 after the colon")
    if kind == "auto":
        kind = "lanes" if world.device.type == "cuda" else "sequential"
    if kind == "lanes":
        return Lanes(world, pool, int(count or 0))
    if kind == "workers":
        return Workers(world, int(count or 0))
    if kind == "sequential":
        return Sequential(world)
    raise SpecError(f"executor: {name!r} is not one of auto, sequential, workers, workers:N, lanes, lanes:N")

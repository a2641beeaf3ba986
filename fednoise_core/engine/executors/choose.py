"""Make an executor from its name."""

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError


def executor_for(world: World, name: str = "sequential") -> Sequential:
    """Make the executor called `name`.

    Args:
        world: The run's world.
        name: "sequential", "workers" (one per core) or "workers:N".

    Raises:
        SpecError: There is no such executor.
    """
    kind, colon, count = name.partition(":")
    if colon and not (count.isdigit() and int(count)):
        raise SpecError(f"executor: {name!r}: expected a number above 0 after the colon")
    if kind == "workers":
        return Workers(world, int(count or 0))
    if name == "sequential":
        return Sequential(world)
    raise SpecError(f"executor: {name!r} is not one of sequential, workers, workers:N")

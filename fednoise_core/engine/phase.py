"""Phase: a named sequence of rounds. A method lists its phases, and the loop runs them in order."""

from collections.abc import Callable
from dataclasses import dataclass

from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State


@dataclass(frozen=True)
class Phase:
    """A named sequence of rounds.

    Attributes:
        name: Name of the phase in the results.
        run_round: Function that runs one round and returns metrics by name.
        end: Last round of the phase, counted from the start of the run.
        until: Function that is called after each round of the phase. True ends the phase earlier.
        enter: Function that is called once before the first round of the phase.
    """

    name: str
    run_round: Callable[[Federation, State], dict[str, float] | None]
    end: int
    until: Callable[[State], bool] | None = None
    enter: Callable[[Federation, State], None] | None = None

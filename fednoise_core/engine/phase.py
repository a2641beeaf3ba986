"""Phase: a named stretch of rounds.

A method lists its phases, and the loop runs them in order.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State


@dataclass(frozen=True)
class Phase:
    """A stretch of rounds.

    Attributes:
        name: Names the phase in the results.
        run_round: Trains one round and returns what it reports, as metrics by name.
        end: The last round of the whole run that may belong to the phase.
        until: Asked after each of its rounds. True ends the phase earlier.
        enter: Called once on the way in, before its first round.
    """

    name: str
    run_round: Callable[[Federation, State], dict[str, float] | None]
    end: int
    until: Callable[[State], bool] | None = None
    enter: Callable[[Federation, State], None] | None = None

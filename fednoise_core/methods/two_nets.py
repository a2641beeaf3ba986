"""What methods with two nets share: each is averaged on its own, and both are evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fednoise_core.engine.api import SERVER, Federation, Net, State, Trained, Views, Weights, weighted_mean
from fednoise_core.methods.fedavg import FedAvg

__all__ = ["NAMES", "TwoNets"]

NAMES = ("one", "two")


@dataclass(frozen=True, kw_only=True)
class TwoNets(FedAvg):
    """The nets "one" and "two", of one architecture and different first weights."""

    excluded_settings = ("server_lr",)  # both nets are plain averages
    passes = 2

    def init(self, fed: Federation) -> State:
        return State(server={"one": fed.fresh("model"), "two": fed.fresh("model", 2)})

    def down(self, fed: Federation, state: State) -> dict[str, Any]:
        return dict(state.server)

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        return {name: down[name] for name in NAMES}

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        return {name: carry[name].values() for name in NAMES}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        state.server = weighted_mean(ups, self.weights(fed, state, who, ups))

    def views(self, fed: Federation, state: State) -> Views:
        """mean: the mean accuracy of the two nets. ensemble: their logits are summed. The first is the headline."""
        one, two = state.server["one"], state.server["two"]
        return {"mean": [(SERVER, one), (SERVER, two)], "ensemble": [(SERVER, [one, two])]}

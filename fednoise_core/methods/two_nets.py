"""Base of methods with two nets: each is averaged on its own, and both are evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fednoise_core.engine.api import SERVER, EvaluatedModels, Federation, Net, State, Trained, Weights, weighted_mean
from fednoise_core.methods.fedavg import FedAvg

NAMES = ("one", "two")


@dataclass(frozen=True, kw_only=True)
class TwoNets(FedAvg):
    """The nets "one" and "two", of one architecture and different first weights."""

    family = "selection"
    excluded_settings = ("server_lr",)  # both nets are plain averages
    passes = 2

    def init_state(self, fed: Federation) -> State:
        return State(server={"one": fed.init_weights("model"), "two": fed.init_weights("model", 2)})

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return dict(state.server)

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        return {name: broadcast[name] for name in NAMES}

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {name: carry[name].values() for name in NAMES}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        state.server = weighted_mean(updates, self.weigh_updates(fed, state, clients, updates))

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the views "mean" and "ensemble".

        The first is the mean accuracy of the two nets, and the headline.
        In the second their logits are summed.
        """
        first, second = state.server["one"], state.server["two"]
        return {"mean": [(SERVER, first), (SERVER, second)], "ensemble": [(SERVER, [first, second])]}

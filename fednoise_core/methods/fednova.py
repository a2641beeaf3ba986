"""FedNova (Wang et al., NeurIPS 2020): displacements are divided by the clients' local steps before they are merged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fednoise_core.engine.api import Federation, Net, State, Trained, weighted_mean
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops.optim import sum_momentum


@dataclass(frozen=True, kw_only=True)
class FedNova(FedAvg):
    """FedNova (Wang et al., NeurIPS 2020): clients with more local steps have no more influence on the model.

    theta <- theta + eta_g tau_eff sum_i p_i d_i/a_i with tau_eff = sum_i p_i a_i. a_i is the effective number of steps
    of client i. Statistics are averaged.
    """

    wire: ClassVar = {"broadcast": ("model",), "update": ("model", "steps")}
    needs_train: ClassVar = {"optimiser": ("sgd",)}  # the length of Adam's steps does not follow from their number

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {**super().make_update(net, carry, broadcast, client_state, steps), "steps": steps}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        weights = self.weigh_updates(fed, state, clients, updates)
        new = weighted_mean([update["model"] for update in updates], weights)
        old = state.server["model"].trained
        reaches = [sum_momentum(update["steps"], self.train.momentum) for update in updates]
        # the displacement of a client without a step is 0
        moves = [(u["model"].trained - old) / (reach or 1.0) for u, reach in zip(updates, reaches, strict=True)]
        new.trained.copy_(old + weighted_mean(moves, weights) * (self.server_lr * weighted_mean(reaches, weights)))
        state.server["model"] = new

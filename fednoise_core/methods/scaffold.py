"""SCAFFOLD (Karimireddy et al., ICML 2020), option II."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, Net, State, Trained, Weights, weighted_mean
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops.optim import sum_momentum


@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """SCAFFOLD, option II (Karimireddy et al., ICML 2020): control variates on both sides.

    Control variates c (server) and c_i (clients) are flat vectors over the trained numbers. Statistics are averaged and
    not controlled.

    A step uses g - c_i + c. The displacement is divided by the sum of the weights of the gradients under momentum, so
    that c_i has the scale of a gradient.
    """

    wire: ClassVar = {"broadcast": ("model", "control"), "update": ("model", "shift")}
    needs_train: ClassVar = {"optimiser": ("sgd",)}  # for others, displacement over learning rate is no gradient

    weighting: Annotated[
        Literal["samples", "uniform"], Field(description="The paper's server update is a plain mean.")
    ] = "uniform"

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        state.server["control"] = torch.zeros_like(state.server["model"].trained)
        return state

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"model": state.server["model"], "control": state.server["control"]}

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        client.state.setdefault("control", torch.zeros_like(broadcast["control"]))

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        grad.add_(broadcast["control"]).sub_(client_state["control"])

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        model = carry["model"].values()
        reach = sum_momentum(max(steps, 1), self.train.momentum) * broadcast["lr"]  # K_i * eta: the steps really taken
        # without a step, or at rate 0, nothing was learnt about the gradient
        moved = (
            (broadcast["model"].trained - model.trained) / reach if steps and self.train.lr else broadcast["control"]
        )
        new = client_state["control"] - broadcast["control"] + moved
        return {"model": model, "shift": new - client_state["control"], "client_state": {"control": new}}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        state.server["control"] = state.server["control"] + weighted_mean([update["shift"] for update in updates]) * (
            len(clients) / len(fed.all)  # clients without data have no control and never take part
        )

"""A method that keeps the contract, as a user would write it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field

from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Pulled(FedAvg):
    """FedAvg with a pull towards the mean of the broadcast model and the client's last."""

    mu: Annotated[float, Field(ge=0, description="Weight of the pull.")] = 0.01

    def correct_gradient(
        self, grad: torch.Tensor, w: Any, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        goal = broadcast["model"].trained
        if "last" in client_state:
            goal = (goal + client_state["last"].trained) / 2
        grad.add_(w.trained.detach() - goal, alpha=self.mu)

    def make_update(self, net, carry, broadcast, client_state, steps):
        model = carry["model"].values()
        return {"model": model, "client_state": {"last": model}}

"""FedOpt (Reddi et al., ICLR 2021): the server takes a step of momentum, Adam or Yogi along the mean displacement."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from fednoise_core.engine.api import Federation, State, weighted_mean
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedOpt(FedAvg):
    """FedOpt (Reddi et al., ICLR 2021): server steps of momentum, Adam or Yogi along the clients' mean displacement.

    The memory of the optimiser, "first" and "second", stays on the server and covers the trained numbers. Statistics
    are averaged.
    """

    example: ClassVar = {"server_optimiser": "adam"}

    server_lr: Annotated[float, Field(ge=0, description="eta; 0 = 1 with momentum, 0.01 with Adam and Yogi.")] = 0.0
    server_optimiser: Annotated[
        Literal["momentum", "adam", "yogi"], Field(description="The server's rule: FedAvgM, FedAdam or FedYogi.")
    ] = "adam"
    beta1: Annotated[float, Field(ge=0, lt=1, description="Share of the last direction that stays.")] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1, description="Share of the mean square that stays.")] = 0.99
    tau: Annotated[float, Field(gt=0, description="Added to the root of the mean square.")] = 1e-3

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        trained = state.server["model"].trained
        state.server["first"] = torch.zeros_like(trained)
        if self.server_optimiser != "momentum":
            state.server["second"] = torch.full_like(trained, self.tau**2)
        return state

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        new = weighted_mean([update["model"] for update in updates], self.weigh_updates(fed, state, clients, updates))
        old = state.server["model"].trained
        moved = new.trained - old
        if self.server_optimiser == "momentum":
            step = state.server["first"] = self.beta1 * state.server["first"] + moved
        else:
            first = state.server["first"] = torch.lerp(moved, state.server["first"], self.beta1)
            second, squared = state.server["second"], moved.square()
            if self.server_optimiser == "adam":
                second = torch.lerp(squared, second, self.beta2)
            else:
                second = second - (1 - self.beta2) * squared * (second - squared).sign()
            state.server["second"] = second
            step = first / (second.sqrt() + self.tau)
        new.trained.copy_(old + step * (self.server_lr or (1.0 if self.server_optimiser == "momentum" else 0.01)))
        state.server["model"] = new

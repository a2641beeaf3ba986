"""FedDyn of Yu et al. (2025): FedAvg whose server takes a little of the clients' summed displacements back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from fednoise_core.engine.api import Client, Federation, Net, State, Trained, Work, weighted_mean
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedDynEFC(FedAvg):
    """Yu et al.'s (2025) "FedDyn", after its code: FedAvg whose server subtracts the cohort's control vectors.

    c_k <- c_k + theta_g - theta_k, then theta_g <- mean of theta_k - mu · sum of c_k over the cohort.
    """

    example: ClassVar = {"mu": 1e-5}
    wire: ClassVar = {"broadcast": ("model",), "update": ("model", "control")}
    excluded_settings = ("server_lr",)  # the server's step is part of the method

    weighting: Annotated[Literal["samples", "uniform"], Field(description="The code takes a plain mean.")] = "uniform"
    mu: Annotated[float, Field(ge=0, description="Weight of the control vectors.")] = 1e-5

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        client.state.setdefault("control", torch.zeros_like(broadcast["model"].trained))
        return None

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        model = carry["model"].values()
        control = client_state["control"] + (broadcast["model"].trained - model.trained)
        return {"model": model, "control": control, "client_state": {"control": control}}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        total = weighted_mean([update["control"] for update in updates]) * len(updates)
        state.server["model"].trained.sub_(total, alpha=self.mu)

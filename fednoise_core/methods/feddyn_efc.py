"""What Yu et al. (2025) call FedDyn: FedAvg whose server takes a little of the clients' summed displacements back."""

from __future__ import annotations

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

    c_k <- c_k + theta_g - theta_k; theta_g <- mean of theta_k - mu · sum of c_k over the cohort.
    """

    example: ClassVar = {"mu": 1e-5}
    wire: ClassVar = {"down": ("model",), "up": ("model", "control")}
    excluded_settings = ("server_lr",)  # the server's step is part of the method

    weighting: Annotated[Literal["samples", "uniform"], Field(description="The code takes a plain mean.")] = "uniform"
    mu: Annotated[float, Field(ge=0, description="Weight of the control vectors.")] = 1e-5

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        me.mine.setdefault("control", torch.zeros_like(down["model"].trained))
        return None

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        model = carry["model"].values()
        control = mine["control"] + (down["model"].trained - model.trained)
        return {"model": model, "control": control, "mine": {"control": control}}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        total = weighted_mean([up["control"] for up in ups]) * len(ups)
        state.server["model"].trained.sub_(total, alpha=self.mu)

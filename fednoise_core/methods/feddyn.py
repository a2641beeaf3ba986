"""FedDyn (Acar et al., ICLR 2021): a regulariser that moves with each client makes the clients' optima agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, Net, State, Trained, Weights, Work, weighted_mean
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedDyn(FedAvg):
    """FedDyn (Acar et al., ICLR 2021): a regulariser that moves with each client makes the clients' optima agree.

    min CE - <g_k, theta> + (alpha/2) ||theta - theta_g||^2 with g_k = -alpha d_k, where d_k, "drift", adds up what the
    client moved in its rounds; the server's drift is the mean of all, and theta_g the mean model plus it.
    """

    example: ClassVar = {"alpha": 0.01}
    excluded_settings = ("server_lr",)  # the server's step is part of the method

    weighting: Annotated[Literal["samples", "uniform"], Field(description="The paper's server takes a plain mean.")] = (
        "uniform"
    )
    alpha: Annotated[float, Field(ge=0, description="Weight of the regulariser; 0 is FedAvg, by definition.")] = 0.01

    step_reads = ("drift",)

    def init(self, fed: Federation) -> State:
        state = super().init(fed)
        state.server["drift"] = torch.zeros_like(state.server["model"].trained)
        return state

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        me.mine.setdefault("drift", torch.zeros_like(down["model"].trained))
        return None

    def correct(self, grad: Tensor, w: Weights, down: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        grad.add_(w.trained.detach() - down["model"].trained + mine["drift"], alpha=self.alpha)

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        model = carry["model"].values()
        return {"model": model, "mine": {"drift": mine["drift"] + (model.trained - down["model"].trained)}}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        start = state.server["model"].trained
        super().merge(fed, state, who, ups)
        if not self.alpha:  # no limit of the method, whose server would go on adding the drift
            return
        moved = weighted_mean([up["model"].trained for up in ups]) - start
        state.server["drift"] = state.server["drift"] + moved * (len(who) / fed.n)
        state.server["model"].trained.add_(state.server["drift"])

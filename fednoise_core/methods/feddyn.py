"""FedDyn (Acar et al., ICLR 2021): a regulariser that moves with each client makes the clients' optima agree."""

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

    A client minimises CE - <g_k, theta> + (alpha/2) ||theta - theta_g||^2 with g_k = -alpha d_k. d_k, "drift", is the
    sum of the client's displacements in its rounds. The server's drift is the mean over all clients, and theta_g is the
    mean model plus the server's drift.
    """

    example: ClassVar = {"alpha": 0.01}
    excluded_settings = ("server_lr",)  # the server's step is part of the method

    weighting: Annotated[Literal["samples", "uniform"], Field(description="The paper's server takes a plain mean.")] = (
        "uniform"
    )
    alpha: Annotated[float, Field(ge=0, description="Weight of the regulariser; 0 is FedAvg, by definition.")] = 0.01

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        state.server["drift"] = torch.zeros_like(state.server["model"].trained)
        return state

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        client.state.setdefault("drift", torch.zeros_like(broadcast["model"].trained))
        return None

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        grad.add_(w.trained.detach() - broadcast["model"].trained + client_state["drift"], alpha=self.alpha)

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        model = carry["model"].values()
        return {
            "model": model,
            "client_state": {"drift": client_state["drift"] + (model.trained - broadcast["model"].trained)},
        }

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        start = state.server["model"].trained
        super().merge_updates(fed, state, clients, updates)
        if not self.alpha:  # FedAvg by definition; in the limit of small alpha the server would still add the drift
            return
        moved = weighted_mean([update["model"].trained for update in updates]) - start
        state.server["drift"] = state.server["drift"] + moved * (len(clients) / len(fed.all))
        state.server["model"].trained.add_(state.server["drift"])

"""FedELR (Neural Networks 2025): early-learning regularisation (Liu et al., NeurIPS 2020) on each client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Net, Weights, Work
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.settings.declare import Share


@dataclass(frozen=True, kw_only=True)
class FedELR(FedAvg):
    """FedELR (Neural Networks 2025): FedAvg with early-learning regularisation on each client.

    CE + strength·log(1 - <p, t>) with t <- memory_rate·t + (1 - memory_rate)·p for each sample. The
    targets t [n, K] start at 0 and stay with the client from round to round.
    """

    family = "loss"
    example: ClassVar = {"strength": 3.0}

    strength: Annotated[float, Field(ge=0, description="lambda, weight of the regulariser.")] = 3.0
    memory_rate: Annotated[Share, Field(description="beta, how slowly a sample's target follows its predictions.")] = (
        0.7
    )

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        none = torch.zeros(client.n, client.classes, device=client.labels.device)
        return Work(state={"targets": client.state.get("targets", none)})

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        logits = net.train(w, batch.x, batch.drop(net))
        p = losses.log_probs(logits).exp().clamp(1e-4, 1 - 1e-4)
        seen = p.detach() / p.detach().sum(1, keepdim=True)
        t = batch.state["targets"] = torch.lerp(seen, batch.state["targets"], self.memory_rate)
        return (losses.ce(logits, batch.y) + self.strength * (1 - (p * t).sum(1)).log()).mean()

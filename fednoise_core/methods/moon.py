"""MOON (Li, He and Song, CVPR 2021): features are pulled to the global model's and away from the last local model's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Net, Trained, Weights, Work
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import cosine_similarity


@dataclass(frozen=True, kw_only=True)
class Moon(FedAvg):
    """MOON (Li, He and Song, CVPR 2021): a contrast between the global model and the client's previous one.

    CE - mu·log sigma((cos(z, z_g) - cos(z, z_prev))/temperature) with features z of the local model, z_g of the
    broadcast model, and z_prev of the model that the client trained last.
    """

    family = "loss"
    example: ClassVar = {"mu": 1.0}

    mu: Annotated[float, Field(ge=0, description="Weight of the contrast; 0 is FedAvg.")] = 1.0
    temperature: Annotated[float, Field(gt=0, description="tau of the contrast.")] = 0.5

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        client.state.setdefault("previous", broadcast["model"])  # at first the two similarities cancel
        return None

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        if not self.mu:
            return super().compute_objective(net, w, batch, broadcast, client_state)
        u = batch.drop(net)
        z = net.features(w, batch.x, train=True, u=u)
        with torch.no_grad():
            others = [net.features(other, batch.x, u=u) for other in (broadcast["model"], client_state["previous"])]
        near, far = (cosine_similarity(losses.to_float32(z), losses.to_float32(other)) for other in others)
        return losses.mean_ce(net.head(w, z), batch.y) + self.mu * F.softplus((far - near) / self.temperature).mean()

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        model = carry["model"].values()
        return {"model": model, "client_state": {"previous": model}}

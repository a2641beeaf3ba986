"""FedAvg with mixup (Zhang et al., ICLR 2018)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Net, Weights
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops.stats import beta_from_uniform


def mixup_loss(net: Net, w: Weights, batch: Batch, loss: Callable[[Tensor, Tensor], Tensor], alpha: float) -> Tensor:
    """Compute the mean loss of a batch mixed with itself in another order (Zhang et al., 2018).

    It is l * loss(z, y) + (1 - l) * loss(z, y'). l, one number for the batch, is Beta(alpha, alpha) by batch.u[0, 0].
    batch.u[:, 1] gives the order.
    """
    x, y = batch.x, batch.y
    weight = beta_from_uniform(batch.u[:1, 0], alpha)
    partner = torch.argsort(batch.u[:, 1])
    logits = net.train(w, weight * x + (1 - weight) * x[partner], batch.drop(net))
    return (weight * loss(logits, y) + (1 - weight) * loss(logits, y[partner])).mean()


@dataclass(frozen=True, kw_only=True)
class Mixup(FedAvg):
    """FedAvg with mixup (Zhang et al., ICLR 2018): images and labels of a batch mixed in pairs.

    The server is FedAvg's.
    """

    family = "loss"

    alpha: Annotated[float, Field(ge=0, description="Of the mixing weight's Beta(alpha, alpha); 0 = off.")] = 1.0

    draws = 2

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        if not self.alpha:
            return super().compute_objective(net, w, batch, broadcast, client_state)
        return mixup_loss(net, w, batch, self.compute_loss, self.alpha)

"""FedDitto of Yu et al. (2025): one model, pulled towards the broadcast one and uploaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Weights
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class DittoEFC(FedAvg):
    """Yu et al.'s (2025) "FedDitto", after its code: FedProx with mu = 2 lambda, without a personal model.

    L = CE + lambda ||theta - theta_g||^2 over the trained numbers. The model is uploaded.
    """

    family = "personal"
    example: ClassVar = {"strength": 0.1}

    strength: Annotated[float, Field(ge=0, description="lambda, weight of the squared distance.")] = 0.1

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        grad.add_(w.trained.detach() - broadcast["model"].trained, alpha=2 * self.strength)

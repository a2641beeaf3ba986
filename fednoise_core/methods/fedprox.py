"""FedProx (Li et al., MLSys 2020): FedAvg with a pull towards the broadcast model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Weights
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedProx (Li et al., MLSys 2020): FedAvg with a pull towards the broadcast model.

    L = CE + (mu/2) ||theta - theta_g||^2 over the trained numbers, not over running statistics.
    """

    example: ClassVar = {"mu": 0.1}

    mu: Annotated[float, Field(ge=0, description="Weight of the proximal term.")] = 0.01

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        """Add the term's gradient, mu (theta - theta_g)."""
        grad.add_(w.trained.detach() - broadcast["model"].trained, alpha=self.mu)

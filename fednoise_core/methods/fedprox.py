"""FedProx (Li et al., MLSys 2020): FedAvg with a pull towards the broadcast model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.tree import Weights

__all__ = ["FedProx"]


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedProx (Li et al., MLSys 2020): FedAvg with a pull towards the broadcast model.

    L = CE + (mu/2) ||theta - theta_g||^2 over the trained numbers, not over running statistics (methods.md 5.2).
    """

    example: ClassVar = {"mu": 0.1}

    mu: Annotated[float, Field(ge=0, description="Weight of the proximal term.")] = 0.01
    form: Annotated[
        Literal["squared", "norms"],
        Field(
            description="Proximal term: the squared distance, or the sum of each tensor's distance, not squared, "
            "as in FNBench."
        ),
    ] = "squared"

    def correct(self, grad: Tensor, w: Weights, down: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        """Add the term's gradient: mu (theta - theta_g), or mu/2 times each tensor's unit vector."""
        away = w.trained.detach() - down["model"].trained
        if self.form == "squared":
            grad.add_(away, alpha=self.mu)
            return
        for entry in w.layout.entries:
            if entry.kind != "stat":
                at = w.layout.offsets[entry.name]
                piece = away[at : at + entry.size]
                # where nothing has moved the gradient is 0, as torch's norm has it
                grad[at : at + entry.size].add_(piece / piece.norm().clamp_min(1e-30), alpha=self.mu / 2)

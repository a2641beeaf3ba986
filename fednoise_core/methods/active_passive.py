"""Active-passive loss (Ma et al., ICML 2020): normalised cross entropy and reverse cross entropy."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses


@dataclass(frozen=True, kw_only=True)
class ActivePassive(FedAvg):
    """FedAvg with the active-passive loss alpha·NCE + beta·RCE (Ma et al., ICML 2020).

    NCE is the cross entropy divided by its sum over all labels that the sample might have.
    """

    family = "loss"
    example: ClassVar = {"alpha": 1.0, "beta": 1.0}

    alpha: Annotated[float, Field(ge=0, description="Weight of the normalised cross entropy.")] = 1.0
    beta: Annotated[float, Field(ge=0, description="Weight of the reverse cross entropy.")] = 1.0

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        normalised = losses.ce(logits, y) / -losses.log_probs(logits).sum(-1)
        return self.alpha * normalised + self.beta * losses.rce(logits, y)

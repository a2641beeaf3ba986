"""FedAvg with another loss."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses


@dataclass(frozen=True, kw_only=True)
class SCE(FedAvg):
    """FedAvg with symmetric cross entropy alpha·CE + beta·RCE (Wang et al., ICCV 2019)."""

    family = "loss"
    example: ClassVar = {"alpha": 0.1, "beta": 1.0}

    alpha: Annotated[float, Field(ge=0, description="Weight of the cross entropy.")] = 0.1
    beta: Annotated[float, Field(ge=0, description="Weight of the reverse cross entropy.")] = 1.0

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return losses.sce(logits, y, self.alpha, self.beta)


@dataclass(frozen=True, kw_only=True)
class GCE(FedAvg):
    """FedAvg with generalised cross entropy (1 - p_y^q)/q (Zhang and Sabuncu, NeurIPS 2018).

    It lies between the cross entropy (q towards 0) and the MAE loss (q = 1).
    """

    family = "loss"
    example: ClassVar = {"q": 0.7}

    q: Annotated[float, Field(gt=0, le=1, description="The larger, the more robust and the slower to learn.")] = 0.7

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return losses.gce(logits, y, self.q)


@dataclass(frozen=True, kw_only=True)
class MAE(FedAvg):
    """FedAvg with the mean absolute error 1 - p_y (Ghosh, Kumar and Sastry, AAAI 2017).

    It is half the L1 distance to the one-hot label. Its sum over all labels is the same for all predictions.
    """

    family = "loss"

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return losses.mae(logits, y)

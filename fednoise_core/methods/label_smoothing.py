"""Label smoothing (Szegedy et al., CVPR 2016): cross entropy with a part of each target spread over all classes."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(FedAvg):
    """FedAvg with targets (1 - s)·onehot + s/K (Szegedy et al., CVPR 2016; Lukasik et al., ICML 2020)."""

    family = "loss"
    example: ClassVar = {"smoothing": 0.1}

    smoothing: Annotated[float, Field(ge=0, lt=1, description="s, share of a target that all classes share.")] = 0.1

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        spread = -losses.log_probs(logits).mean(-1)
        return (1 - self.smoothing) * losses.ce(logits, y) + self.smoothing * spread

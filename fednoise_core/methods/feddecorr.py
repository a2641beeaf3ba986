"""FedDecorr (Shi et al., ICLR 2023): a penalty on correlations between features of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Net, Weights
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses


@dataclass(frozen=True, kw_only=True)
class FedDecorr(FedAvg):
    """FedDecorr (Shi et al., ICLR 2023): a penalty on correlated features, against dimensional collapse.

    CE + beta·R, where R is the mean square of the correlations of all pairs of features in a batch.
    """

    family = "loss"
    example: ClassVar = {"beta": 0.1}

    beta: Annotated[float, Field(ge=0, description="Weight of the regulariser; 0 is FedAvg.")] = 0.1
    scale: Annotated[
        Literal["code", "paper"],
        Field(description="code: about B times the mean square off the diagonal; paper: the mean of the whole matrix."),
    ] = "code"

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        if not self.beta or len(batch.y) == 1:  # one sample has no correlations
            return super().compute_objective(net, w, batch, broadcast, client_state)
        h = net.features(w, batch.x, train=True, u=batch.drop(net))
        return losses.mean_ce(net.head(w, h), batch.y) + self.beta * self.measure_correlation(h)

    def measure_correlation(self, h: Tensor) -> Tensor:
        """Measure how much the features of a batch correlate.

        Args:
            h: Features [B, d] with B > 1.

        Returns:
            A scalar. code: the mean of S_ij²/B over i ≠ j, with the sums S of products of standardised features.
            paper: the mean of K_ij² over all i and j, with the correlations K = S/(B - 1).
        """
        size, d = h.shape
        h = losses.to_float32(h)
        h = (h - h.mean(0)) / (h.var(0) + 1e-8).sqrt()
        squares = losses.matmul_full_precision(h.T, h).square()
        if self.scale == "paper":
            return squares.mean() / (size - 1) ** 2
        return (squares.sum() - squares.diagonal().sum()) / (max(d * (d - 1), 1) * size)

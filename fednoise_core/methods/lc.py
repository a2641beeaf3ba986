"""Loss correction (paper 000, 9.2): a matrix counted at half time, then the forward loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Federation, Phase, stage
from fednoise_core.methods.transition import Corrected, confident_rows
from fednoise_core.settings import Rounds, Share

__all__ = ["LC"]


@dataclass(frozen=True, kw_only=True)
class LC(Corrected):
    """Loss correction (Patrini et al., CVPR 2017, as in paper 000): the forward loss with a matrix of each client.

    FedAvg until `switch`; then every client counts its matrix T_c once, from the labels of samples that the global
    model is sure about, and trains on -log (T_c' p)_y (methods.md 5.7).
    """

    switch: Annotated[
        Rounds, Field(description="Rounds before the estimate, or their share; 0 = half of all (150 of 300).")
    ] = 0
    confidence: Annotated[Share, Field(description="Largest probability above which a sample is counted.")] = 0.95

    def phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        switch = min(stage(rounds, self.switch or 0.5), rounds)
        return [Phase("plain", self.round, switch), Phase("corrected", self.round, rounds, enter=self.estimate)]

    def matrix(self, p: Tensor, y: Tensor) -> Tensor:
        return confident_rows(p, y, self.confidence)

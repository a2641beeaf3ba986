"""FedMixCon (Peng et al., 2025): mixed prediction of two views, and a contrast of features between labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Net, Weights
from fednoise_core.methods.mixed_prediction import MixedPrediction
from fednoise_core.ops import losses
from fednoise_core.settings.declare import AlsoAccepts


def contrast_loss(h1: Tensor, h2: Tensor, y: Tensor, tau: float, denominator: str = "negatives") -> Tensor:
    """[B]: -(s(i, i')/tau - log sum_j exp(s(i, j)/tau)) of outputs h1, h2 [B, d] for two views and labels y [B].

    s is the cosine, 0 for a zero vector. j runs over the samples with another label ("negatives"), these and the
    second view of i ("negatives+positive"), or all samples but i ("all"). An anchor without any such j gives 0.
    """
    h1, h2 = losses.to_float32(h1), losses.to_float32(h2)
    norm1, norm2 = (torch.linalg.vector_norm(h, dim=1) for h in (h1, h2))
    positive = (h1 * h2).sum(1) / (norm1 * norm2).clamp_min(1e-8) / tau
    others = losses.matmul_full_precision(h1, h1.T) / (norm1[:, None] * norm1).clamp_min(1e-8) / tau
    if denominator == "all":
        positions = torch.arange(len(y), device=y.device)
        is_compared = positions[:, None] != positions
    else:
        is_compared = y[:, None] != y
    terms = torch.where(is_compared, others, -math.inf)
    if denominator == "negatives+positive":
        terms = torch.cat([terms, positive[:, None]], 1)
    return torch.where(is_compared.any(1), torch.logsumexp(terms, 1) - positive, 0.0)


@dataclass(frozen=True, kw_only=True)
class FedMixCon(MixedPrediction):
    """FedMixCon (Peng et al., 2025): one sharpened prediction of two views of an image, and contrastive features.

    L = CE(p_s, y) + mu_t·L_con: an image's features are pulled to those of its second view, and away from samples of
    the batch with another label.
    """

    mixed: Annotated[
        bool, Field(description="Mixed prediction; false: cross entropy on both views as separate samples.")
    ] = True
    noise_rate: Annotated[
        float,
        AlsoAccepts("oracle_nominal", overridden_by="mu"),
        Field(
            ge=0,
            lt=1,
            description="A guess of the share of wrong labels: mu is half of it. oracle_nominal: the noise "
            "setting's nominal rate, marked † in tables.",
        ),
    ] = 0.4
    mu: Annotated[
        float | None, Field(ge=0, description="Weight of the contrast after the ramp; 0 = off; overrides the rate.")
    ] = None
    contrast_on: Annotated[
        Literal["features", "logits"], Field(description="What the contrast compares: penultimate features, or logits.")
    ] = "features"
    tau: Annotated[float, Field(gt=0, description="Temperature of the contrast.")] = 0.5
    denominator: Annotated[
        Literal["negatives", "negatives+positive", "all"],
        Field(
            description="Samples that an anchor is compared with: those with another label; these and its second view; "
            "all other samples."
        ),
    ] = "negatives"

    @property
    def weight(self) -> float:
        """The weight of the contrast.

        It is `mu`, or half the noise rate (Peng et al., 2025, table 2).
        """
        return self.noise_rate / 2 if self.mu is None else self.mu

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        h1, h2 = self.features(net, w, batch)
        z1, z2 = net.head(w, h1), net.head(w, h2)
        if self.mixed:
            loss = self.prediction_loss(z1, z2, batch)
        else:
            loss = (self.compute_loss(z1, batch.y) + self.compute_loss(z2, batch.y)).mean() / 2
        if self.weight:
            pair = (h1, h2) if self.contrast_on == "features" else (z1, z2)
            loss = (
                loss
                + self.weight * broadcast["ramp"] * contrast_loss(*pair, batch.y, self.tau, self.denominator).mean()
            )
        return loss

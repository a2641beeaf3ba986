"""FedLSR (Jiang et al., CIKM 2022): local self-regularisation by two views of each image."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Net, Weights
from fednoise_core.methods.mixed_prediction import MixedPrediction
from fednoise_core.ops import losses


def jensen_shannon(q1: Tensor, q2: Tensor) -> Tensor:
    """Compute the Jensen-Shannon divergence of positive numbers [B, K].

    It is (KL(q1 | m) + KL(q2 | m)) / 2 with m = (q1 + q2) / 2.

    Returns:
        [B].
    """
    log_m = ((q1 + q2) / 2).log()
    return (q1 * (q1.log() - log_m) + q2 * (q2.log() - log_m)).sum(-1) / 2


def _sum_entropy(q: Tensor) -> Tensor:
    """-sum q log q [B], of positive numbers [B, K]."""
    return -(q * q.log()).sum(-1)


@dataclass(frozen=True, kw_only=True)
class FedLSR(MixedPrediction):
    """FedLSR (Jiang et al., CIKM 2022): one sharpened prediction of two views of an image, which are to agree.

    L = CE(p_s, y) + gamma_t·JS(q1, q2) + entropy_weight·H, q_i = clamp(softmax(z_i/T_d), 1e-6, 1).
    """

    gamma: Annotated[float, Field(ge=0, description="Weight of the Jensen-Shannon term after the ramp.")] = 0.4
    entropy_weight: Annotated[float, Field(ge=0, description="gamma_e, weight of the entropy term from the start.")] = (
        0.6
    )
    self_temperature: Annotated[float, Field(gt=0, description="T_d of the predictions in both terms.")] = 1 / 3
    js_mode: Annotated[
        Literal["code", "formula"],
        Field(description="code: mean over samples and classes; formula: mean over samples."),
    ] = "code"
    entropy_mode: Annotated[
        Literal["code", "formula"],
        Field(
            description="code: of the first view alone, whose q goes through one more softmax; formula: of q, mean "
            "of both views."
        ),
    ] = "code"

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        z = [net.head(w, h) for h in self.features(net, w, batch)]
        loss = self.prediction_loss(z[0], z[1], batch)
        q = [torch.softmax(losses.to_float32(logits) / self.self_temperature, -1).clamp(1e-6, 1.0) for logits in z]
        if self.gamma:
            apart = jensen_shannon(q[0], q[1]).mean()
            if self.js_mode == "code":
                apart = apart / q[0].shape[1]
            loss = loss + self.gamma * broadcast["ramp"] * apart
        if self.entropy_weight:
            spread = [torch.softmax(q[0], -1)] if self.entropy_mode == "code" else q
            loss = loss + self.entropy_weight * torch.stack([_sum_entropy(logits) for logits in spread]).mean()
        return loss

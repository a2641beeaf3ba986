"""MaskedOptim (Jiang et al., 2025): FedELC with a mask for large losses, and a geometric median."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, State
from fednoise_core.methods.fedelc import FedELC
from fednoise_core.methods.robust_merge import RFA
from fednoise_core.settings.declare import Share


@dataclass(frozen=True, kw_only=True)
class MaskedOptim(FedELC, RFA):
    """MaskedOptim (Jiang et al., 2025): FedELC with a mask, a step back and a geometric median.

    On noisy clients, only the samples with the smallest losses of a batch have a term that pulls label logits to the
    given label. A noisy client sends a weighted mean of the broadcast model and its trained model. The server computes
    the geometric median of the models.
    """

    example: ClassVar = {"mask": 0.8}

    entropy: Annotated[float, Field(ge=0, description="beta, weight of the predictions' entropy.")] = 0.1
    mask: Annotated[Share, Field(description="Share of a batch whose label logits are held to the given label.")] = 0.8
    keep: Annotated[Share, Field(description="Share of the broadcast model in a noisy client's update.")] = 0.2

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        """Weigh updates as RFA does, without FedNoRo's distances."""
        return RFA.weigh_updates(self, fed, state, clients, updates)

    def label_gradient(self, U: Tensor, p: Tensor, y: Tensor) -> Tensor:
        """Compute the gradient of the batch's mean loss for the label logits.

        It is ((s - p)/K + given * m * (s - onehot y)) / B, with s = softmax U and the mask m of the smallest losses.

        Args:
            U: Label logits [B, K].
            p: Predictions [B, K].
            y: Given labels [B].

        Returns:
            [B, K].
        """
        onehot = (y[:, None] == torch.arange(U.shape[1], device=U.device)).to(U.dtype)
        rank = (-(p * onehot).sum(1)).argsort(stable=True).argsort()  # by the loss, -log p of the given label
        free = rank >= max(1, int(self.mask * len(y) + 1e-9))
        pull = free[:, None] * (torch.softmax(U, -1) - onehot)
        return super().label_gradient(U, p, y) - self.given * pull / len(y)

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a noisy client's labels with the trained model's predictions, and average with the broadcast model."""
        update = super().after_fit(client, update, broadcast)
        if "noisy" not in broadcast:
            return update
        model, sent = update["model"], broadcast["model"]
        return {**update, "model": model.like(torch.lerp(model.flat, sent.flat, self.keep))}

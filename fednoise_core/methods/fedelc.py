"""FedELC (CIKM 2024).

It finds noisy clients in the same way as FedNoRo. Their labels are then learnt together with the model (PENCIL; Yi and
Wu, CVPR 2019).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Net, Weights, Work
from fednoise_core.methods.fednoro import FedNoRo
from fednoise_core.ops import losses
from fednoise_core.ops.stats import p_wrong_by_confidence


@dataclass(frozen=True, kw_only=True)
class FedELC(FedNoRo):
    """FedELC (CIKM 2024): FedNoRo's warm-up, search for noisy clients and weights; noisy clients learn their labels.

    Each of their samples has label logits U. The loss KL(p||softmax U)/K + given·CE(softmax U, y) + entropy·H(p)/K is
    minimised over the model, and with a separate learning rate over U.
    """

    family = "correction"
    example: ClassVar = {"given": 0.5}
    excluded_settings = ("ramp_to", "teacher", "temperature")

    given: Annotated[float, Field(ge=0, description="alpha, how strongly label logits stay with the given label.")] = (
        0.5
    )
    entropy: Annotated[float, Field(ge=0, description="beta, weight of the predictions' entropy.")] = 0.2
    label_lr: Annotated[float, Field(ge=0, description="lambda, rate of the label logits.")] = 1000.0
    scale: Annotated[
        float, Field(gt=0, description="Label logits start as this times the given label's one-hot vector.")
    ] = 10.0

    second = "correct"

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        if "noisy" not in broadcast:
            return super().prepare_fit(client, broadcast)
        start = self.scale * torch.nn.functional.one_hot(client.labels, client.classes).float()
        return Work(state={"label_logits": client.state.get("label_logits", start)})

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the terms of the loss that depend on the model.

        Label logits are updated here, too. A sample is in one batch of an epoch, so this happens once per epoch, with
        the predictions for its batch.
        """
        if "noisy" not in broadcast:
            return super().compute_objective(net, w, batch, broadcast, client_state)
        log_p, U = losses.log_probs(net.train(w, batch.x, batch.drop(net))), batch.state["label_logits"]
        batch.state["label_logits"] = U - self.label_lr * self.label_gradient(U, log_p.detach().exp(), batch.y)
        negative_entropy = (log_p.exp() * log_p).sum(-1)  # -H(p)
        return (
            negative_entropy - (log_p.exp() * losses.log_probs(U)).sum(-1) - self.entropy * negative_entropy
        ).mean() / log_p.shape[1]

    def label_gradient(self, U: Tensor, p: Tensor, y: Tensor) -> Tensor:
        """Compute the gradient of the batch's mean loss for the label logits.

        It is ((s - p)/K + given * (s - onehot y)) / B, with s = softmax U.

        Args:
            U: Label logits [B, K].
            p: Predictions [B, K].
            y: Given labels [B].

        Returns:
            [B, K].
        """
        s, K = torch.softmax(U, -1), U.shape[1]
        onehot = (y[:, None] == torch.arange(K, device=U.device)).to(s.dtype)
        return ((s - p) / K + self.given * (s - onehot)) / len(y)

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        """Reset the label logits of a noisy client for its next round.

        They become the scaled mean of its learnt labels and its trained model's predictions.
        """
        if "noisy" in broadcast:
            summed_probs = (
                torch.softmax(client.state["label_logits"], -1)
                + losses.log_probs(client.predict(update["model"])).exp()
            )
            client.state["label_logits"] = self.scale * summed_probs / 2
        return update

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the learnt labels.

        Without learnt labels the given labels count as right. Their scores are below 1/2, given by the model's
        confidence in them.
        """
        if "label_logits" in client.state:
            return p_wrong_by_confidence(client.state["label_logits"], client.labels)
        p, proposed = p_wrong_by_confidence(client.predict(broadcast["model"]), client.labels)
        return p / 2, proposed

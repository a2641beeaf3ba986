"""FedFixer (Ji et al., AAAI 2024), in our interpretation.

A client's personal model and the global model select samples for each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    EvaluatedModels,
    Federation,
    Net,
    State,
    Trained,
    Work,
    resolve_warmup,
)
from fednoise_core.methods.ditto import Ditto
from fednoise_core.ops import losses
from fednoise_core.ops.stats import p_wrong_by_confidence
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class FedFixer(Ditto):
    """FedFixer (Ji et al., AAAI 2024), our reading: personal and global model choose clean samples for each other.

    Both losses have a confidence regulariser, -beta·E[CE(f, y')] over the client's given labels y'. The personal model
    is also pulled towards the broadcast model. Only the global model is averaged.
    """

    family = "selection"
    example: ClassVar = {"confidence": 0.5}

    strength: Annotated[
        float, Field(ge=0, description="lambda, pull of personal models towards the broadcast one.")
    ] = 0.1
    confidence: Annotated[float, Field(ge=0, description="beta, weight of the confidence regulariser.")] = 0.5
    warmup: Annotated[
        Rounds, Field(description="Rounds on all samples, or their share; 0 = a tenth of all, rounded up.")
    ] = 0

    @property
    def warm_rounds(self) -> int:
        return resolve_warmup(self.train.rounds, self.warmup)

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        prior = torch.bincount(client.labels, minlength=client.classes).float() / max(client.n, 1)
        return Work(facts={"prior": prior, "choose": client.round > self.warm_rounds})

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        model, personal = carry["model"], carry["personal"]
        logits = [net.train(t.w, batch.x, batch.drop(net, k)) for k, t in enumerate((model, personal))]
        picks = [
            pass_sieve(z, batch.y) if client_state["choose"] else torch.ones_like(z[:, 0].detach()) for z in logits
        ]
        model.backward(self._mean_loss(logits[0], batch.y, picks[1], client_state["prior"]))
        grad = personal.backward(self._mean_loss(logits[1], batch.y, picks[0], client_state["prior"]))
        grad.add_(personal.w.trained.detach() - broadcast["model"].trained, alpha=self.strength)
        model.update(broadcast["lr"])
        personal.update(broadcast["lr"])

    def _mean_loss(self, logits: Tensor, y: Tensor, pick: Tensor, prior: Tensor) -> Tensor:
        """Compute the mean of CE - beta·E[CE(f, y')] over the picked samples, or 0. CE(f, y') is at most 18.42."""
        per = self.compute_loss(logits, y)
        if self.confidence:
            against = (-losses.log_probs(logits)).clamp_max(losses.CONTRAST_FLOOR)
            per = per - self.confidence * (against * prior).sum(1)
        return (per * pick).sum() / pick.sum().clamp_min(1)

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the global model, which is the headline, and the personal models as in Ditto."""
        views = super().list_models(fed, state)
        return {"global": views["global"], "personal": views["personal"]}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by 1 - p of the given label.

        p and the proposed label come from the mean of both models' logits, or from the global model if the client has
        never trained.
        """
        models = [broadcast["model"], client.state["personal"]] if "personal" in client.state else [broadcast["model"]]
        return p_wrong_by_confidence(torch.stack([client.predict(w) for w in models]).mean(0), client.labels)


def pass_sieve(logits: Tensor, y: Tensor) -> Tensor:
    """Choose samples by the sieve of CORES² (Cheng et al., 2021).

    A sample passes if its cross entropy is below the mean over all K classes. The paper's regulariser is on both sides
    of the comparison, so it cancels.

    Returns:
        float mask [B].
    """
    logits = logits.detach()
    return (losses.ce(logits, y) < -losses.log_probs(logits).mean(1)).float()

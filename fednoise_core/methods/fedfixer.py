"""FedFixer (Ji et al., AAAI 2024): a client's personal model and the global model select samples for each other.

The equations are those of the authors' experiments, github.com/ResearchFL/HeteroFedNoisyLabelLearning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    Federation,
    Net,
    State,
    Trained,
    Weights,
    Work,
    resolve_warmup,
)
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.weights import Entry, Layout
from fednoise_core.settings.declare import Rounds

PERSONAL_DECAY = 1e-3  # mu, weight decay of the personal model
COUNTS = Layout([Entry("selected", (1,), "stat")])  # samples that the steps of a fit selected for the global model


@dataclass(frozen=True, kw_only=True)
class FedFixer(FedAvg):
    """FedFixer (Ji et al., AAAI 2024): personal and global model choose clean samples for each other.

    Both losses have a confidence regulariser, -beta·mean_k CE(f, k). The personal model starts at the broadcast one.
    Each of the two is pulled towards the other. Only the global model is averaged.
    """

    family = "selection"
    example: ClassVar = {"strength": 15.0}
    wire: ClassVar = {"broadcast": ("model",), "update": ("model", "selected")}

    strength: Annotated[float, Field(ge=0, description="lambda, pull of the two models towards each other.")] = 15.0
    confidence: Annotated[
        float, Field(ge=0, description="Final value of beta, the weight of the confidence regulariser.")
    ] = 2.0
    personal_steps: Annotated[int, Field(ge=1, description="K, steps of the personal model on each batch.")] = 5
    warmup: Annotated[
        Rounds, Field(description="Rounds on all samples, or their share; 0 = a tenth of all, rounded up.")
    ] = 10

    @property
    def passes(self) -> int:  # type: ignore[override]
        """Forward-backward passes of a step over its batch."""
        return 1 + self.personal_steps

    @property
    def warm_rounds(self) -> int:
        return resolve_warmup(self.train.rounds, self.warmup)

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        return self._plan_epoch(client, 0)

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        work = self._plan_epoch(client, epoch)
        return work if work.facts["beta"] != self._plan_epoch(client, epoch - 1).facts["beta"] else None

    def _plan_epoch(self, client: Client, epoch: int) -> Work:
        """Compute beta of a local epoch (from 0), and whether samples are selected in this round.

        beta is 0 in the first fifth of the warm-up, and then rises by equal steps to its final value within as many
        epochs as the warm-up has.
        """
        warm, epochs = self.warm_rounds, self.train.epochs
        risen = (client.round - 1) * epochs + epoch - warm // 5 * epochs
        share = min(max(risen, 0) / max(warm * epochs - 1, 1), 1.0)
        return Work(facts={"beta": self.confidence * share, "choose": client.round > warm})

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        model = broadcast["model"]
        return {"model": model, "personal": model, "counts": COUNTS.zeros(model.flat.device)}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        model, personal, beta = carry["model"], carry["personal"], client_state["beta"]
        rate = broadcast["lr"] / (1 + beta)
        logits = net.train(model.w, batch.x, batch.drop(net))
        chosen = self._choose_samples(logits, batch.y, client_state)
        for k in range(self.personal_steps):
            personal_logits = net.train(personal.w, batch.x, batch.drop(net, 1 + k))
            picked = self._choose_samples(personal_logits, batch.y, client_state)  # before the step, for the model
            grad = personal.backward(self._compute_mean_loss(personal_logits, batch.y, chosen, beta))
            v = personal.w.trained.detach()
            grad.add_(v - model.w.trained.detach(), alpha=self.strength).add_(v, alpha=PERSONAL_DECAY)
            personal.update(rate)
        grad = model.backward(self._compute_mean_loss(logits, batch.y, picked, beta))
        grad.add_(model.w.trained.detach() - personal.w.trained.detach(), alpha=self.strength)
        model.update(rate)
        with torch.no_grad():
            carry["counts"].w["selected"].add_(picked.sum())

    def _choose_samples(self, logits: Tensor, y: Tensor, client_state: Mapping[str, Any]) -> Tensor:
        return pass_sieve(logits, y) if client_state["choose"] else torch.ones_like(logits[:, 0].detach())

    def _compute_mean_loss(self, logits: Tensor, y: Tensor, chosen: Tensor, beta: float) -> Tensor:
        """Compute the mean of CE - beta·mean_k CE(f, k) over the chosen samples, or 0."""
        per_sample = self.compute_loss(logits, y) - beta * mean_over_classes(logits)
        return (per_sample * chosen).sum() / chosen.sum().clamp_min(1)

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        update = super().make_update(net, carry, broadcast, client_state, steps)
        return {**update, "selected": carry["counts"].values()["selected"]}

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        """Weigh the clients by the samples that were selected on them, or as FedAvg if there are none."""
        selected = [float(update["selected"]) for update in updates]
        if self.weighting == "samples" and any(selected):
            return selected
        return super().weigh_updates(fed, state, clients, updates)


def mean_over_classes(logits: Tensor) -> Tensor:
    """Compute the mean of -log(p_k + 1e-8) over all classes k. The small number bounds it, as in the authors' code.

    Returns:
        float32 [B].
    """
    return -(losses.log_probs(logits).exp() + 1e-8).log().mean(1)


def pass_sieve(logits: Tensor, y: Tensor) -> Tensor:
    """Choose samples by the sieve of CORES² (Cheng et al., 2021).

    A sample passes if its cross entropy is at most the mean over all K classes. The regulariser is on both sides of the
    comparison, so it cancels.

    Returns:
        float mask [B].
    """
    logits = logits.detach()
    return (losses.ce(logits, y) <= mean_over_classes(logits)).float()

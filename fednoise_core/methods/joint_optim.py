"""Joint optimisation (Tanaka et al., CVPR 2018) on each client: labels become the mean of the model's predictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, State, Trained, Weights, Work, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import p_wrong_by_confidence
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class JointOptim(FedAvg):
    """Joint optimisation (Tanaka et al., CVPR 2018) on each client.

    After a warm-up, the target of a sample is the mean of its predictions in the client's last epochs. Two terms of the
    loss prevent trivial solutions. One pulls the mean prediction towards equal classes, and the other reduces the
    entropy of each prediction.
    """

    family = "correction"
    example: ClassVar = {"alpha": 1.2, "beta": 0.8}
    wire: ClassVar = {"broadcast": ("model", "relabel"), "update": ("model",)}

    warmup: Annotated[
        Rounds, Field(description="Rounds on given labels, or their share; 0 = 35 % of all (70 of 200 epochs).")
    ] = 0
    alpha: Annotated[float, Field(ge=0, description="Weight of the pull to equal classes.")] = 1.2
    beta: Annotated[float, Field(ge=0, description="Weight of the entropy of predictions.")] = 0.8
    memory: Annotated[int, Field(ge=1, description="Local epochs whose predictions are averaged.")] = 10

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        warm = resolve_rounds(self.train.rounds, self.warmup or 0.35)
        return {**super().make_broadcast(fed, state), "relabel": state.round > warm}

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Prepare the predictions of the last epochs [n, memory, K], which are 0 if there are none yet."""
        self._move_place(client)
        empty = torch.zeros(client.n, self.memory, client.classes, device=client.labels.device)
        return Work(state={"predictions": client.state.get("predictions", empty)})

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        self._relabel_samples(client, broadcast)
        self._move_place(client)
        return None

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        self._relabel_samples(client, broadcast)
        return update

    def _move_place(self, client: Client) -> None:
        """Move the mask of the slot for this epoch's predictions [memory, 1] to the next slot, cyclically."""
        first = torch.arange(self.memory, device=client.labels.device)[:, None] == 0
        client.state["place"] = client.state["place"].roll(1, 0) if "place" in client.state else first

    def _relabel_samples(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        if not broadcast["relabel"]:
            return
        total = client.state["predictions"].sum(1)
        seen = total.sum(1, keepdim=True)  # epochs with a prediction of the sample
        given = torch.nn.functional.one_hot(client.labels, client.classes).to(total.dtype)
        client.targets = torch.where(seen > 0.5, total / seen.clamp_min(0.5), given)

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        logits = net.train(w, batch.x, batch.drop(net))
        log_p = losses.log_probs(logits)
        p = log_p.exp()
        batch.state["predictions"] = torch.where(client_state["place"], p.detach()[:, None], batch.state["predictions"])
        unequal = -p.mean(0).clamp_min(1e-12).log().mean()
        entropy = -(p * log_p).sum(1).mean()
        return losses.mean_ce(logits, batch.y) + self.alpha * unequal + self.beta * entropy

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the learnt labels, or by the headline model if the client has no learnt labels."""
        if client.targets.dim() == 2:
            return p_wrong_by_confidence(client.targets.clamp_min(1e-12).log(), client.labels)
        return p_wrong_by_confidence(client.predict(broadcast["model"]), client.labels)

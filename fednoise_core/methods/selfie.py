"""SELFIE (Song et al., ICML 2019) on each client: samples with small losses, and with consistent predictions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, State, Trained, Weights, Work, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.settings.declare import AlsoAccepts, Rounds, Share


@dataclass(frozen=True, kw_only=True)
class Selfie(FedAvg):
    """SELFIE (Song et al., ICML 2019) on each client.

    After a warm-up, a step trains on the samples of a batch with the smallest losses, and on samples with consistent
    predictions in the client's last epochs. The latter get the predicted label permanently.
    """

    family = "correction"
    example: ClassVar = {"noise_rate": 0.2}
    wire: ClassVar = {"broadcast": ("model", "correct"), "update": ("model",)}

    noise_rate: Annotated[
        float,
        AlsoAccepts("oracle_nominal"),
        Field(
            ge=0,
            lt=1,
            description="tau, the share without small losses. oracle_nominal: the noise setting's nominal rate, marked "
            "† in tables.",
        ),
    ]
    warmup: Annotated[
        Rounds, Field(description="Rounds on given labels, or their share; 0 = a quarter of all (25 of 100 epochs).")
    ] = 0
    memory: Annotated[int, Field(ge=1, description="q, local epochs whose predictions are remembered.")] = 15
    uncertainty: Annotated[
        Share, Field(description="epsilon, entropy of the remembered predictions over log K up to which they count.")
    ] = 0.05

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        warm = resolve_rounds(self.train.rounds, self.warmup or 0.25)
        return {**super().make_broadcast(fed, state), "correct": state.round > warm}

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Prepare the predicted classes of the last epochs [n, memory] and the new labels [n], -1 if there is none."""
        self._move_place(client)
        none = torch.full((client.n, self.memory), -1, device=client.labels.device)
        start = {"predicted": none, "corrected": none[:, 0].clone()}
        return Work(state={name: client.state.get(name, values) for name, values in start.items()})

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        self._move_place(client)
        return None

    def _move_place(self, client: Client) -> None:
        """Move the mask of the slot for this epoch's predictions [memory] to the next slot, cyclically."""
        first = torch.arange(self.memory, device=client.labels.device) == 0
        client.state["place"] = client.state["place"].roll(1) if "place" in client.state else first

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        logits = net.train(w, batch.x, batch.drop(net))
        predicted, y = batch.state["predicted"], batch.y
        batch.state["predicted"] = torch.where(client_state["place"], logits.detach().argmax(1)[:, None], predicted)
        if not broadcast["correct"]:
            return losses.mean_ce(logits, y)
        share = (predicted[:, :, None] == torch.arange(logits.shape[1], device=y.device)).double().mean(1)
        entropy = -torch.xlogy(share, share).sum(1) / math.log(logits.shape[1])
        sure = (predicted >= 0).all(1) & (entropy <= self.uncertainty)
        corrected = batch.state["corrected"] = torch.where(sure, share.argmax(1), batch.state["corrected"])
        rank = self.compute_loss(logits.detach(), y).argsort(stable=True).argsort()
        small = rank < math.ceil((1 - self.noise_rate) * len(y) - 1e-9)
        pick = (small | (corrected >= 0)).to(logits.dtype)
        return (self.compute_loss(logits, torch.where(corrected >= 0, corrected, y)) * pick).sum() / pick.sum()

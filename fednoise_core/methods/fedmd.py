"""FedMD (Li and Wang, 2019): clients of any architecture agree on the logits of public images."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, State, Train
from fednoise_core.methods.local import LocalOnly, OwnModel
from fednoise_core.ops import losses


@dataclass(frozen=True)
class Digest(OwnModel):
    """Train the client's own model towards the consensus logits on public images."""

    train: Train
    kind: str

    def get_augmentations(self) -> list[Any]:
        return ["none"]  # the consensus is computed from images without augmentation

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.kind == "l1":
            return (logits.float() - y).abs().mean(-1)
        return losses.ce(logits, torch.softmax(y, -1)) - losses.ce(y, torch.softmax(y, -1))


@dataclass(frozen=True, kw_only=True)
class FedMD(LocalOnly):
    """FedMD (Li and Wang, 2019): models of any architecture agree on logits of public images.

    Clients pre-train. In each round, they send logits on public images and receive the mean over the clients. They
    train towards this mean, and then on their own data.
    """

    family = "personal"
    example: ClassVar = {"pretrain": 5}
    wire: ClassVar = {"broadcast": ("ids", "consensus"), "update": ("logits",)}
    needs_public = True

    pretrain: Annotated[
        int, Field(ge=0, description="Epochs of every client before the first round, one round of its own.")
    ] = 10
    public: Annotated[int, Field(ge=0, description="Public images per round; 0 = all.")] = 0
    digest: Annotated[int, Field(ge=1, description="Epochs of digesting the consensus.")] = 1
    digest_batch: Annotated[int, Field(ge=1, description="Public images in a step of digesting.")] = 256
    digest_loss: Annotated[
        Literal["l1", "kl"], Field(description="L1 on logits (official), or KL between softmaxes.")
    ] = "l1"

    def _predict_public(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
        """Client-side code: compute the client's logits on the round's public images."""
        return {"logits": client.predict(client.state["model"], on="public", ids=broadcast["ids"])}

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        clients = fed.sample_cohort(state.round, candidates=candidates)
        ids = fed.draw_public_ids(state.round, "consensus", self.public)
        answers = fed.run_on_clients(state, clients, self._predict_public, {"ids": ids})
        consensus = torch.stack([answer["logits"] for answer in answers]).mean(0)
        fed.fit(
            Digest(self.train, self.digest_loss),
            state,
            clients,
            {"consensus": consensus},
            epochs=self.digest,
            batch=self.digest_batch,
            on="public",
            ids=ids,
            targets=consensus,
            tag="digest",
        )
        return super().run_round(fed, state, candidates, **fit_options)  # revisit

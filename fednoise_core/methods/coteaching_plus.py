"""Co-teaching+ (Yu et al., ICML 2019) in federated form: the small-loss samples are chosen where the nets disagree."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Federation, Net, State, Trained, resolve_warmup
from fednoise_core.methods.coteaching import Coteaching
from fednoise_core.methods.two_nets import NAMES
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class CoteachingPlus(Coteaching):
    """Co-teaching+ (Yu et al., ICML 2019): Co-teaching on the samples on which the two nets disagree.

    This keeps the nets different. The first `warmup` rounds are rounds of Co-teaching.
    """

    example: ClassVar = {"forget_rate": 0.2}
    wire: ClassVar = {"broadcast": ("one", "two", "keep", "disagree"), "update": ("one", "two")}

    warmup: Annotated[
        Rounds, Field(description="Rounds of Co-teaching first, or their share; 0 = a tenth of all, rounded up.")
    ] = 0

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        disagree = state.round > resolve_warmup(self.train.rounds, self.warmup)
        return {**super().make_broadcast(fed, state), "disagree": disagree}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        if not broadcast["disagree"]:
            super().train_step(net, carry, batch, broadcast, client_state)
            return
        nets = [carry[name] for name in NAMES]
        logits = [net.train(t.w, batch.x, batch.drop(net, k)) for k, t in enumerate(nets)]
        per = [self.compute_loss(z, batch.y) for z in logits]
        differ = logits[0].argmax(1) != logits[1].argmax(1)
        picks = [mask_small_losses(loss, differ, broadcast["keep"]) for loss in per]
        for trained, loss, pick in zip(nets, per, reversed(picks), strict=True):  # each net uses the other's selection
            trained.backward((loss * pick).sum() / pick.sum())
            trained.update(broadcast["lr"])


def mask_small_losses(loss: Tensor, differ: Tensor, keep: float) -> Tensor:
    """Mask the small losses among the samples that differ.

    Args:
        loss: Losses [B].
        differ: True for the n samples to choose from, bool [B].
        keep: Share that is kept, in 0..1.

    Returns:
        1 for the max(1, floor(keep·n)) smallest of these, and 0 for others, float [B]. All 1 if n is 0.
    """
    rank = torch.argsort(torch.argsort(torch.where(differ, loss.detach(), torch.inf), stable=True))
    count = differ.sum(dtype=torch.float64)
    kept = torch.floor(keep * count + 1e-9).clamp_min(1)
    return torch.where(count > 0, rank < kept, True).to(loss.dtype)

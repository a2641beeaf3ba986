"""FedDPCont (paper 000): contrastive labels drawn from a global label distribution that was shared under label-DP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fednoise_core import losses, privacy
from fednoise_core.engine.client import Client
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Batch
from fednoise_core.engine.state import State
from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.nets.net import Net
from fednoise_core.settings import above, at_least, below
from fednoise_core.tree import Weights

__all__ = ["FedDPCont"]


@dataclass(frozen=True, kw_only=True)
class FedDPCont(FedAvg):
    """FedDPCont (paper 000): contrastive labels from a global distribution shared once under label-DP.

    CE(z, y) - beta*CE(z, y'), y' drawn from the debiased global histogram of randomised labels (methods.md 4 and 5.22).
    """

    example: ClassVar = {"keep": 0.2}
    above_chance: ClassVar = {"keep": "epsilon"}
    wire: ClassVar = {"down": ("model", "epsilon?", "prior"), "up": ("model", "counts")}

    dp: Annotated[
        Literal["rr", "none"], "rr: randomised response, once per run; none: the exact histogram, no privacy."
    ] = "rr"
    keep: Annotated[float, above(0), below(1), "p, probability of telling the true label (above 1/K)."] = 0.2
    epsilon: Annotated[float | None, above(0), "Label-DP budget; overrides keep."] = None
    beta: Annotated[float, at_least(0), "Weight of the contrastive term."] = 1.0
    mode: Annotated[
        Literal["sample", "expect"], "A fresh contrastive label per step (Eq. 2), or its expectation (Eq. 4)."
    ] = "sample"
    neg_log_floor: Annotated[
        float, at_least(0), "Upper bound of the negative term, -log 1e-8; 0 = unbounded."
    ] = losses.CONTRAST_FLOOR
    projection: Annotated[
        Literal["simplex", "clip", "none"], "How the debiased histogram becomes a distribution."
    ] = "simplex"  # "none" is for tests: nothing can be sampled from negative entries

    draws = 1
    step_reads = ("prior",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dp == "rr" and self.mode == "sample" and self.projection == "none":
            raise SpecError("method.projection: 'none' leaves negative entries, from which mode 'sample' cannot draw")

    def init(self, fed: Federation) -> State:
        """The one release of the run, before any training: its result is part of the state, so a resume does not draw
        again.
        """
        state = super().init(fed)
        if self.dp == "rr":
            if self.epsilon is None and self.keep * fed.classes <= 1:
                raise SpecError(
                    f"method.keep: {self.keep} tells nothing of {fed.classes} classes: it must be above 1/{fed.classes}"
                )
            epsilon = self.epsilon or privacy.epsilon_of(self.keep, fed.classes)
            prior = fed.release_labels(state, epsilon).prior(self.projection)
        else:  # no privacy: the exact histogram
            counts = np.sum([s["counts"].numpy() for s in fed.on_clients(state, fed.all, self._count)], axis=0)
            prior = counts / counts.sum()
        state.server["prior"] = torch.as_tensor(prior, dtype=torch.float32).to(state.server["model"].flat.device)
        fed.on_clients(state, fed.all, self._hear, {"prior": state.server["prior"]})
        return state

    def _hear(self, me: Client, down: Mapping[str, Any]) -> None:
        """Client-side: keep the prior, which is sent once."""
        me.mine["prior"] = down["prior"]

    def _count(self, me: Client, down: Mapping[str, Any]) -> dict[str, Tensor]:
        return {"counts": torch.bincount(me.labels.cpu(), minlength=me.classes)}

    def objective(self, net: Net, w: Weights, batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]) -> Tensor:
        logits = net.train(w, batch.x, batch.drop(net))
        return (losses.ce(logits, batch.y) - self.beta * self._contrast(logits, batch.u, mine["prior"])).mean()

    def _contrast(self, logits: Tensor, u: Tensor, prior: Tensor) -> Tensor:
        """[B]: CE against a drawn label, or its expectation, bounded per class."""
        limit = self.neg_log_floor or float("inf")
        if self.mode == "expect":
            return losses.product((-losses.log_probs(logits)).clamp_max(limit), prior)
        # cumsum is not deterministic on a GPU
        up_to = losses.product(prior, torch.ones(len(prior), len(prior), device=prior.device).triu())
        drawn = (u[:, :1] >= up_to).sum(-1).clamp_max(len(prior) - 1)  # inverse of the cumulative distribution
        return losses.ce(logits, drawn).clamp_max(limit)

    def estimates(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"label_prior": state.server["prior"]}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Suspect where the given label loses against labels from the shared prior (the peer loss is positive, CORES'
        sieve).

        P(wrong) is the logistic function of the peer loss in expectation.
        """
        logits = me.predict(down["model"])
        per_class = -losses.log_probs(logits)
        peer = losses.ce(logits, me.labels) - per_class @ me.mine["prior"]
        return torch.sigmoid(peer), logits.argmax(1)

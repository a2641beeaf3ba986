"""Base of FedLSR and FedMixCon: two views of each image, and one sharpened prediction mixed from both."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Federation, Net, Phase, State, Weights, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import beta_from_uniform
from fednoise_core.settings.declare import Rounds

LARGEST = -math.log(1e-7)  # 16.12, bounds the "log" cross entropy


def mix_predictions(z1: Tensor, z2: Tensor, share: Tensor, temperature: float) -> Tensor:
    """Mix the predictions for two views and sharpen the mixture.

    With p = share * softmax(z1) + (1 - share) * softmax(z2) it is log p_s, p_s = p^(1/T) / sum p^(1/T). The computation
    stays in logarithms, so that a small p keeps its digits.

    Args:
        z1: Logits [B, K] of the first view.
        z2: Logits [B, K] of the second.
        share: [1] in 0..1.
        temperature: T.

    Returns:
        [B, K].
    """
    log_p = torch.logaddexp(losses.log_probs(z1) + share.log(), losses.log_probs(z2) + torch.log1p(-share))
    return torch.log_softmax(log_p / temperature, -1)


@dataclass(frozen=True, kw_only=True)
class MixedPrediction(FedAvg):
    """Base of methods that train on the sharpened mixture of the predictions for two views of an image."""

    family = "loss"
    wire: ClassVar = {"broadcast": ("model", "ramp"), "update": ("model",)}

    view: Annotated[
        Literal["rotation", "flip", "crop_flip", "colour"],
        Field(description="Augmentation of the original image for the second view; colour needs colour images."),
    ] = "rotation"
    degrees: Annotated[float, Field(ge=0, le=180, description="Largest angle of the view `rotation`.")] = 30.0
    per: Annotated[
        Literal["sample", "batch"],
        Field(
            description="Random numbers of the second view: for each sample, or the same for a whole batch (FedLSR's "
            "code)."
        ),
    ] = "sample"
    view_on: Annotated[
        Literal["image", "normalised"],
        Field(
            description="Make the second view before the normalisation, or after it as in FedLSR's code, where colour "
            "jitter clamps to 0..1, and the corners of a rotation get the mean."
        ),
    ] = "image"
    mixing: Annotated[
        float, Field(ge=0, description="a of Beta(a, a) for the share, one per batch; 0 = only the first view.")
    ] = 1.0
    temperature: Annotated[float, Field(gt=0, description="T of sharpening.")] = 0.5
    ce_mode: Annotated[
        Literal["double_softmax", "log"],
        Field(
            description="double_softmax: cross entropy with the sharpened probabilities as logits, as in FedLSR's "
            "code; log: -log of the probability of the given label, at most -log 1e-7."
        ),
    ] = "double_softmax"
    ramp: Annotated[
        Rounds,
        Field(description="t_w, rounds until the regulariser has full weight, or their share; 0 = a fifth of all."),
    ] = 0

    draws = 1  # u[0, 0] gives the share
    passes = 2  # one for each view

    def get_augmentations(self) -> list[Any]:
        turned = {"degrees": self.degrees} if self.view == "rotation" else {}
        return [self.train.augment, {"name": self.view, "per": self.per, "on": self.view_on, **turned}]

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        """Add `ramp` = min(1, t/t_w), with t = 0 in the first round."""
        return {**super().make_broadcast(fed, state), "ramp": min(1.0, max(state.round - 1, 0) / self._ramp)}

    def list_phases(self, fed: Federation) -> list[Phase]:
        """List the phase before the regulariser has its full weight, and the phase after it."""
        rounds = self.train.rounds
        return [Phase("ramp", self.run_round, min(self._ramp, rounds)), Phase("train", self.run_round, rounds)]

    @property
    def _ramp(self) -> int:
        """t_w in rounds."""
        return resolve_rounds(self.train.rounds, self.ramp or 0.2)

    def features(self, net: Net, w: Weights, batch: Batch) -> list[Tensor]:
        """Compute the features of each view, in training mode.

        There are two passes: a normalisation layer sees one view at a time.

        Returns:
            [B, d] for each view.
        """
        return [net.features(w, x, train=True, u=batch.drop(net, k)) for k, x in enumerate(batch.views)]

    def prediction_loss(self, z1: Tensor, z2: Tensor, batch: Batch) -> Tensor:
        """Compute the mean cross entropy of the sharpened mixture and the given labels.

        Args:
            z1: Logits [B, K] of the first view.
            z2: Logits [B, K] of the second.
            batch: The batch, for labels and the share of the mixture.

        Returns:
            A scalar.
        """
        log_p = mix_predictions(z1, z2, beta_from_uniform(batch.u[:1, 0], self.mixing), self.temperature)
        if self.ce_mode == "double_softmax":
            return losses.mean_ce(log_p.exp(), batch.y)
        return F.nll_loss(log_p.clamp_min(-LARGEST), batch.y)

"""M-DYR (Arazo et al., ICML 2019): mixup, and labels mixed with predictions by a mixture model of losses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from scipy.special import betaln
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, State, Trained, Weights, Work, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.methods.mixup import mixup_loss
from fednoise_core.ops import losses
from fednoise_core.ops.stats import beta_from_uniform
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class MDYR(FedAvg):
    """M-DYR (Arazo et al., ICML 2019), known as dynamic bootstrapping, on each client.

    After rounds of plain mixup, a label has weight 1 - b and the model's prediction has weight b. b is the posterior of
    the high component of a mixture of two Beta distributions of the client's losses. In the variant MD-DYR-SH two
    images are also mixed in proportion to their 1 - b.
    """

    family = "correction"
    example: ClassVar = {"bootstrap": "hard"}
    wire: ClassVar = {"broadcast": ("model", "bootstrap", "temperature?"), "update": ("model",)}

    warmup: Annotated[
        Rounds, Field(description="Rounds of plain mixup, or their share; 0 = 35 % of all (105 of 300 epochs).")
    ] = 0
    alpha: Annotated[float, Field(ge=0, description="Of the mixing weight's Beta(alpha, alpha); 0 = off.")] = 32.0
    bootstrap: Annotated[
        Literal["hard", "soft", "soft_to_hard"],
        Field(
            description="Replacement of a label: the predicted class, all probabilities, or probabilities at a "
            "temperature that falls from 1 to 0.001 until two thirds of the rounds. The last one mixes images by 1 - b "
            "(MD-DYR-SH)."
        ),
    ] = "hard"
    prior_weight: Annotated[
        float, Field(ge=0, description="eta, weight of the pull of a batch's mean prediction to equal classes.")
    ] = 1.0

    draws = 2  # of mixup

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        """temperature: falls in equal steps, from 1 in the first round after the warm-up."""
        warm = resolve_rounds(self.train.rounds, self.warmup or 0.35)
        broadcast = {**super().make_broadcast(fed, state), "bootstrap": state.round > warm}
        if self.bootstrap == "soft_to_hard":
            last = max(2 * self.train.rounds // 3 - warm - 1, 1)
            broadcast["temperature"] = 1 - 0.999 * min(max(state.round - 1 - warm, 0), last) / last
        return broadcast

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        return self._doubt_labels(client, broadcast["model"]) if broadcast["bootstrap"] else None

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        return self._doubt_labels(client, carry["model"].values()) if broadcast["bootstrap"] else None

    def _doubt_labels(self, client: Client, w: Weights) -> Work:
        wrong = wrong_posterior(losses.ce(client.predict(w), client.labels).cpu().numpy())
        return Work(aux={"wrong": torch.from_numpy(wrong).float().to(client.labels.device)})

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        if not broadcast["bootstrap"]:
            return mixup_loss(net, w, batch, self.compute_loss, self.alpha)
        x, wrong, partner = batch.x, batch.aux["wrong"][:, None], torch.argsort(batch.u[:, 1])
        weight = of_labels = beta_from_uniform(batch.u[:1, 0], self.alpha)
        with torch.no_grad():
            logits = losses.to_float32(net.train(w, x, batch.drop(net)))
        classes = torch.arange(logits.shape[1], device=x.device)
        if self.bootstrap == "hard":
            guess = (logits.argmax(1)[:, None] == classes).to(logits.dtype)
        elif self.bootstrap == "soft":
            guess = torch.softmax(logits, -1)
        else:
            guess, right = torch.softmax(logits / broadcast["temperature"], -1), 1 - wrong
            weight, of_labels = right / (right + right[partner]), torch.full_like(weight, 0.5)
            weight = weight.view(-1, *[1] * (x.ndim - 1))
        target = (1 - wrong) * (batch.y[:, None] == classes) + wrong * guess
        log_p = losses.log_probs(net.train(w, weight * x + (1 - weight) * x[partner], batch.drop(net)))
        loss = -((of_labels * target + (1 - of_labels) * target[partner]) * log_p).sum(1).mean()
        mean_p = log_p.exp().mean(0).clamp_min(1e-12)
        return loss - self.prior_weight * (mean_p * len(mean_p)).log().mean()

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the mixture of the headline model's losses.

        The proposed label is the model's guess.
        """
        logits = client.predict(broadcast["model"])
        return torch.from_numpy(wrong_posterior(losses.ce(logits, client.labels).cpu().numpy())), logits.argmax(1)


def wrong_posterior(loss: np.ndarray) -> np.ndarray:
    """Posterior of the high component of a mixture of two Beta distributions of losses (Arazo et al., 2019).

    The mixture is fitted to the losses between the 5th and the 95th percentile, by 10 iterations of EM with moments.
    All losses are scaled by these two to 0.001..0.999. Losses above that of the largest posterior get this posterior.

    Args:
        loss: Losses [n].

    Returns:
        P(label is wrong), float64 [n] in 0.0001..0.9999. It is 0.0001 for all if the losses do not differ.
    """
    loss = np.nan_to_num(loss.astype(np.float64), nan=1e30, posinf=1e30)  # one that overflowed is a large one
    low, high = np.percentile(loss, [5, 95]) if len(loss) else (0.0, 0.0)
    if not high > low:
        return np.full(len(loss), 1e-4)
    scaled = np.clip((loss - low - 1e-5) / (high - low), 1e-3, 1 - 1e-3)
    shapes = fit_beta_mixture(scaled[(loss >= low) & (loss <= high)])
    grid = np.linspace(1e-12, 1 - 1e-12, 100)
    densities = beta_densities(grid, *shapes)
    table = densities[1] / (densities.sum(0) + 1e-12)
    table[table.argmax() :] = table.max()
    return np.clip(table[(100 * scaled).astype(int)], 1e-4, 1 - 1e-4)


def fit_beta_mixture(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit a mixture of two Beta distributions by 10 iterations of EM with moments, from Beta(1, 2) and Beta(2, 1).

    Args:
        x: Numbers [n] between 0 and 1.

    Returns:
        Parameters a and b, and the weights, each [2]. An iteration after which one is not a positive number is undone.
    """
    a, b, weight = np.array([1.0, 2.0]), np.array([2.0, 1.0]), np.array([0.5, 0.5])
    for _ in range(10):
        share = np.maximum(beta_densities(x, a, b, weight), 1e-12)
        share /= share.sum(0)
        total = share.sum(1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            mean = share @ x / total
            spread = (share * (x - mean[:, None]) ** 2).sum(1) / total
            count = mean * (1 - mean) / spread - 1  # a + b
            new = np.stack([mean * count, (1 - mean) * count, total / total.sum()])
        if not (np.isfinite(new).all() and (new > 0).all()):
            break
        a, b, weight = new
    return a, b, weight


def beta_densities(x: np.ndarray, a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted densities of Beta distributions.

    Args:
        x: Numbers [n] between 0 and 1.
        a: First parameters [k].
        b: Second parameters [k].
        weight: Weights [k].

    Returns:
        weight·density [k, n].
    """
    log = (a[:, None] - 1) * np.log(x) + (b[:, None] - 1) * np.log1p(-x) - betaln(a, b)[:, None]
    return weight[:, None] * np.exp(np.minimum(log, 600.0))  # a component without width overflows

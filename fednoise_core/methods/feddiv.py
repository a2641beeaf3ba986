"""FedDiv (Li et al., AAAI 2024): clients jointly learn a mixture of losses, which divides samples by noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, State, Weights, Work, resolve_warmup
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import beta_from_uniform, scale_to_unit
from fednoise_core.settings.declare import Rounds, Share


@dataclass(frozen=True, kw_only=True)
class FedDiv(FedAvg):
    """FedDiv (Li et al., AAAI 2024): a noise filter that clients learn together, and samples of consistent predictions.

    The filter is a mixture of two Gaussians of losses, a tensor [3, 2] of weights, means and variances. After a warm-up
    a client trains on the samples that the filter classifies as clean. Later it trains only on consistent samples, for
    which the broadcast model agrees with the last debiased prediction of the client's own model. Consistent noisy
    samples get the predicted label.
    """

    family = "selection"
    example: ClassVar = {"confidence": 0.5}
    wire: ClassVar = {"broadcast": ("model", "filter?"), "update": ("model", "filter?")}

    warmup: Annotated[
        Rounds, Field(description="Rounds of FedAvg first, or their share; 0 = a tenth of all, rounded up.")
    ] = 0
    settle: Annotated[
        int, Field(ge=0, description="Rounds with the filter that a client takes before consistency counts.")
    ] = 5
    confidence: Annotated[Share, Field(description="Confidence above which a noisy sample is relabelled.")] = 0.0
    clean_level: Annotated[Share, Field(description="Share of noisy samples up to which a client trains on all.")] = 0.1
    relabel_level: Annotated[
        Share, Field(description="Share of noisy samples above which a client trains on relabelled ones, too.")
    ] = 0.2
    bias_weight: Annotated[float, Field(ge=0, description="xi, strength of the debiasing of the own model.")] = 0.2
    bias_memory: Annotated[Share, Field(description="m, decay of the running mean of the bias.")] = 0.5
    bias_confidence: Annotated[Share, Field(description="Confidence above which a sample counts for the bias.")] = 0.85
    alpha: Annotated[float, Field(ge=0, description="Of mixup's Beta(alpha, alpha); 0 = off.")] = 1.0
    prior_weight: Annotated[
        float, Field(ge=0, description="Weight of the pull of a batch's mean prediction to equal classes.")
    ] = 1.0

    draws = 2  # of mixup

    # the server's side

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        start = [[0.5, 0.5], [0.0, 1.0], [1 / 12, 1 / 12]]
        state.server["filter"] = torch.tensor(start, dtype=torch.float64, device=state.server["model"].flat.device)
        state.server["filters"] = torch.zeros(fed.n, 3, 2, dtype=torch.float64)  # last filter of each client
        return state

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        filters = state.round > resolve_warmup(self.train.rounds, self.warmup)
        return {**super().make_broadcast(fed, state), **({"filter": state.server["filter"]} if filters else {})}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        if "filter" not in updates[0]:
            return
        filters = state.server["filters"].clone()
        for c, update in zip(clients, updates, strict=True):
            filters[c] = update["filter"].to(filters)
        state.server["filters"] = filters
        sizes = torch.tensor(fed.sizes, dtype=torch.float64) * (filters[:, 0].sum(1) > 0)  # 0 without a filter
        state.server["filter"] = merge_filters(filters, sizes / sizes.sum()).to(state.server["filter"].device)

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        if "filter" not in broadcast:
            return None
        logits = client.predict(broadcast["model"])
        wrong = posterior(scale_losses(logits, client.labels), broadcast["filter"])[:, 1] >= 0.5
        level = float(wrong.double().mean())
        visits = client.state.get("visits", 0)
        client.state["visits"] = visits + 1
        if level <= self.clean_level:
            return None
        sure, guess = torch.softmax(logits.float(), -1).max(1)
        consistent = guess == client.state.get("unbiased", guess)
        relabelled = wrong & consistent & (sure > self.confidence)
        chosen = ~wrong
        if visits >= self.settle:
            chosen = chosen & consistent
            if level > self.relabel_level:
                chosen = chosen | relabelled
        return Work(samples=chosen.nonzero().squeeze(1), targets=torch.where(relabelled, guess, client.labels))

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        if "filter" not in broadcast:
            return super().compute_objective(net, w, batch, broadcast, client_state)
        x, y = batch.x, batch.y
        weight, partner = beta_from_uniform(batch.u[:1, 0], self.alpha), torch.argsort(batch.u[:, 1])
        logits = net.train(w, weight * x + (1 - weight) * x[partner], batch.drop(net))
        loss = (weight * self.compute_loss(logits, y) + (1 - weight) * self.compute_loss(logits, y[partner])).mean()
        mean_p = losses.log_probs(logits).exp().mean(0).clamp_min(1e-12)
        return loss - self.prior_weight * (mean_p * len(mean_p)).log().mean()

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        """Fit the client's filter, and store the debiased predictions of its model."""
        if "filter" not in broadcast:
            return update
        logits = client.predict(update["model"])
        bias = client.state.get("bias", torch.full_like(logits[0], 1 / client.classes))
        unbiased = torch.softmax(logits - self.bias_weight * bias.clamp_min(1e-12).log(), -1)
        sure, client.state["unbiased"] = unbiased.max(1)
        counted = sure > self.bias_confidence
        if counted.any():
            bias = torch.lerp(torch.softmax(logits, -1)[counted].mean(0), bias, self.bias_memory)
        client.state["bias"] = bias
        return {**update, "filter": fit_filter(scale_losses(logits, client.labels), broadcast["filter"])}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the filter.

        The proposed label is the headline model's prediction.
        """
        if "filter" not in broadcast:
            return None
        logits = client.predict(broadcast["model"])
        return posterior(scale_losses(logits, client.labels), broadcast["filter"])[:, 1], logits.argmax(1)


def scale_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross entropies of a client's samples, scaled to 0..1.

    Args:
        logits: Logits [n, K].
        y: Given labels [n].

    Returns:
        float64 [n].
    """
    return scale_to_unit(losses.ce(logits, y).double().nan_to_num(nan=1e30, posinf=1e30))


def posterior(x: Tensor, mixture: Tensor) -> Tensor:
    """Posterior of the two components of a mixture of Gaussians.

    Args:
        x: Scaled losses [n], float64.
        mixture: Weights, means and variances [3, 2].

    Returns:
        P(low mean) and P(high mean), [n, 2].
    """
    weight, mean, variance = mixture[:, mixture[1].argsort(stable=True)]
    return torch.softmax(_log_densities(x, weight, mean, variance), 1)


def fit_filter(x: Tensor, start: Tensor, iterations: int = 3) -> Tensor:
    """Fit a mixture of two Gaussians by a few iterations of EM.

    Args:
        x: Scaled losses [n], float64.
        start: Weights, means and variances [3, 2] to start from.
        iterations: Number of iterations.

    Returns:
        Weights, means and variances [3, 2].
    """
    weight, mean, variance = start
    for _ in range(iterations):
        share = torch.softmax(_log_densities(x, weight, mean, variance), 1)
        total = share.sum(0) + 1e-15  # a component may have lost all samples
        mean = share.T @ x / total
        variance = (share * (x[:, None] - mean).square()).sum(0) / total + 1e-6
        weight = total / total.sum()
    return torch.stack([weight, mean, variance])


def _log_densities(x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return weight.log() - (variance.log() + (x[:, None] - mean).square() / variance) / 2


def merge_filters(filters: Tensor, shares: Tensor) -> Tensor:
    """Merge the clients' mixtures: weights and means by shares, variances by squared shares, as in the authors' code.

    Args:
        filters: Weights, means and variances [n, 3, 2].
        shares: Shares of the clients [n], which add up to 1.

    Returns:
        [3, 2].
    """
    powers = torch.stack([shares, shares, shares.square()], 1)
    return (filters * powers[:, :, None]).sum(0)

"""DivideMix (Li, Socher and Hoi, ICLR 2020) in federated form.

Two nets select trusted labels for each other. Other samples are used as unlabelled images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    Federation,
    Net,
    Phase,
    State,
    Trained,
    Weights,
    Work,
    resolve_warmup,
)
from fednoise_core.methods.two_nets import NAMES, TwoNets
from fednoise_core.ops import losses
from fednoise_core.ops.stats import beta_from_uniform, low_loss
from fednoise_core.settings.declare import Rounds, Share


@dataclass(frozen=True, kw_only=True)
class DivideMix(TwoNets):
    """DivideMix (Li et al., ICLR 2020): two nets select trusted labels for each other.

    After a warm-up on all labels, each net trains in every local epoch with the other net's division into clean and
    wrong labels.
    """

    example: ClassVar = {"unlabelled": 25.0}
    wire: ClassVar = {"broadcast": ("one", "two", "divide", "unlabelled"), "update": ("one", "two")}

    warmup: Annotated[
        Rounds, Field(description="Rounds on all labels, or their share; 0 = a tenth of all, rounded up.")
    ] = 0
    threshold: Annotated[Share, Field(description="Posterior above which a label is trusted.")] = 0.5
    temperature: Annotated[float, Field(gt=0, description="T of sharpening.")] = 0.5
    mixup: Annotated[float, Field(ge=0, description="alpha of the mixing weight's Beta(alpha, alpha); 0 = off.")] = 4.0
    unlabelled: Annotated[float, Field(ge=0, description="lambda_u, weight of images whose label is not trusted.")] = (
        25.0
    )
    ramp: Annotated[int, Field(ge=1, description="Rounds after the warm-up until lambda_u is reached.")] = 16
    prior: Annotated[
        Literal["uniform", "local"], Field(description="Of the penalty; local: the client's given labels.")
    ] = "uniform"
    confidence_penalty: Annotated[bool, Field(description="-H(p) in the warm-up, for asymmetric noise.")] = False

    draws = 3  # columns 0 and 1 order what is mixed, u[0, 2] gives the mixing weight

    @property
    def warm_rounds(self) -> int:
        return min(resolve_warmup(self.train.rounds, self.warmup), self.train.rounds)

    def get_augmentations(self) -> list[Any]:
        return [self.train.augment] * 2

    def list_phases(self, fed: Federation) -> list[Phase]:
        divide = partial(self.run_round, epochs=2 * self.train.epochs)  # an epoch of each net, one after the other
        return [Phase("warm-up", self.run_round, self.warm_rounds), Phase("divide", divide, self.train.rounds)]

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        since = state.round - self.warm_rounds
        weight = self.unlabelled * min(max(since / self.ramp, 0.0), 1.0)
        return {**state.server, "divide": since > 0, "unlabelled": weight}

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        return self._make_work(client, [broadcast[name] for name in NAMES], 0) if broadcast["divide"] else None

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        return self._make_work(client, [carry[name].values() for name in NAMES], epoch) if broadcast["divide"] else None

    def _make_work(self, client: Client, nets: list[Weights], half: int) -> Work:
        """Make the Work of the next half of an epoch.

        Net one trains in even halves. Before each even half, both nets divide the samples.
        """
        if half % 2 == 0:
            client.state["clean"] = torch.stack(
                [self._clean_posterior(client, w, f"{half}", k) for k, w in enumerate(nets)]
            )
        clean = client.state["clean"][1 - half % 2]  # each net uses the other's division
        trusted = clean > self.threshold
        if not trusted.any():
            trusted = clean >= clean.median()
        label_shares = torch.bincount(client.labels, minlength=client.classes) / max(client.n, 1)
        prior = label_shares if self.prior == "local" else torch.full_like(label_shares, 1 / client.classes)
        return Work(
            samples=trusted.nonzero().squeeze(1),
            aux={"clean": clean.float()},
            more={"unlabelled": (~trusted).nonzero().squeeze(1)},
            facts={"trains": NAMES[half % 2], "prior": prior},
        )

    def _clean_posterior(self, client: Client, w: Weights, *key: str | int) -> Tensor:
        """P(label is right) [n], by a mixture of two groups of losses."""
        return low_loss(
            losses.ce(client.predict(w), client.labels), seed=client.derive_seed("division", *key), max_iter=10
        )

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        for k, name in enumerate(NAMES if not broadcast["divide"] else [client_state["trains"]]):
            trained, partner = carry[name], carry[NAMES[1 - NAMES.index(name)]]
            if broadcast["divide"]:
                loss = self._mixed_loss(
                    net, trained.w, partner.w, batch, broadcast["unlabelled"], client_state["prior"]
                )
            else:
                logits = net.train(trained.w, batch.x, batch.drop(net, k))
                loss = losses.mean_ce(logits, batch.y)
                if self.confidence_penalty:
                    loss = loss - losses.mean_ce(logits, torch.softmax(logits.float(), -1))
            trained.backward(loss)
            trained.update(broadcast["lr"])

    def _mixed_loss(self, net: Net, w: Weights, partner: Weights, batch: Batch, weight: Any, prior: Tensor) -> Tensor:
        """The loss of net `w` on labelled and unlabelled images mixed with each other."""
        pools = [batch, *batch.more.values()]
        with torch.no_grad():
            targets = [self._make_targets(net, w, partner, pool, pool is batch) for pool in pools]
        x = torch.cat([view for pool in pools for view in pool.views])
        q = torch.cat([target for target in targets for _ in range(2)])
        order = torch.argsort(torch.cat([pool.u[:, k] for pool in pools for k in range(2)]))
        mix = beta_from_uniform(batch.u[:1, 2], self.mixup)
        mix = torch.maximum(mix, 1 - mix)
        q = mix * q + (1 - mix) * q[order]
        masks = [mask for pool in pools for k in range(2) if (mask := pool.drop(net, k)) is not None]
        logits = net.train(w, mix * x + (1 - mix) * x[order], torch.cat(masks) if masks else None)
        log_p, labelled = losses.log_probs(logits), 2 * len(batch.y)
        loss = -(q * log_p)[:labelled].sum(1).mean()
        if len(pools) > 1:
            loss = loss + weight * (log_p.exp() - q)[labelled:].square().mean()
        mean_p = log_p.exp().mean(0)
        return loss + (prior * (prior.clamp_min(1e-12) / mean_p.clamp_min(1e-12)).log()).sum()

    def _make_targets(self, net: Net, w: Weights, partner: Weights, pool: Batch, labelled: bool) -> Tensor:
        """Make sharpened targets [B, K]: labels refined by the net's predictions, or both nets' mean prediction."""
        guess = [net.train(w, x, pool.drop(net, k)) for k, x in enumerate(pool.views)]
        if not labelled:
            guess += [net.predict(partner, x, pool.drop(net, k)) for k, x in enumerate(pool.views)]
        mean = torch.stack([torch.softmax(z.float(), -1) for z in guess]).mean(0)
        if labelled:
            one_hot = (pool.y[:, None] == torch.arange(mean.shape[1], device=mean.device)).to(mean.dtype)
            mean = pool.aux["clean"][:, None] * one_hot + (1 - pool.aux["clean"][:, None]) * mean
        return losses.sharpen_probs(mean, self.temperature)

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the two nets' divisions into clean and wrong.

        P(wrong) is one minus the mean posterior of the two.
        The proposed label is the ensemble's guess.
        """
        clean = torch.stack(
            [self._clean_posterior(client, broadcast[name], "suspects", k) for k, name in enumerate(NAMES)]
        ).mean(0)
        return 1.0 - clean, torch.stack([client.predict(broadcast[name]) for name in NAMES]).sum(0).argmax(1)

"""RHFL (Fang and Ye, CVPR 2022) and FedHNL (Liu et al., 2024): clients of any architecture learn from each other.

They learn from soft outputs on public images. Clients whose labels seem right have a larger weight. Clients train on
their own data with a loss that is robust to wrong labels.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    ClientEntry,
    EvaluatedModels,
    Federation,
    Net,
    State,
    Train,
    Trained,
    Weights,
)
from fednoise_core.methods.local import LocalOnly, OwnModel
from fednoise_core.ops import losses

TINY = 1e-8  # lower bound of losses; with a smaller sum of differences, all weights are equal


def client_weights(
    now: Sequence[float],
    before: Sequence[float | None],
    eta: float,
    denominator: str = "signed",
    normalise: str = "softmax",
) -> list[float]:
    """Compute the teaching weight of each of M clients (Liu et al. (2024), equations 8 to 12, and RHFL).

    With F = (before - now) / now, w = 1/(M-1) + eta F / sum F, and W is the softmax of w. A client without an earlier
    loss, or with one that is not finite, has F = 0. If the sum is below 1e-8, all W are equal.

    Args:
        now: Mean losses [M].
        before: Earlier mean losses [M], None for clients without one.
        eta: Strength of the differences.
        denominator: "signed", or "abs", which divides by sum |F|.
        normalise: "softmax", or "sum" for w / sum w.

    Returns:
        W [M], which sums to 1.
    """
    m = len(now)
    if m == 1:
        return [1.0]
    gains = [
        (old - new) / max(new, TINY) if old is not None and math.isfinite(old) and math.isfinite(new) else 0.0
        for new, old in zip(now, before, strict=True)
    ]
    total = sum(gains) if denominator == "signed" else sum(map(abs, gains))
    w = [1 / (m - 1) + (eta * gain / total if abs(total) >= TINY else 0.0) for gain in gains]
    if normalise == "softmax":
        top = max(w)  # a sum of F that is nearly 0 makes huge w
        w = [math.exp(v - top) for v in w]
    whole = sum(w)
    return [v / whole for v in w] if abs(whole) >= TINY else [1 / m] * m


def mix_messages(messages: Sequence[Mapping[str, Any]], weights: Sequence[float], kl: str) -> list[dict[str, Tensor]]:
    """Mix the predictions of the other clients on a batch for each client k: one tensor [B, K] instead of M-1.

    A message that is not finite is ignored, because one diverging client would otherwise end the training of all.

    Args:
        messages: log p [B, K] of each client, as "log_p".
        weights: W [M].
        kl: "forward" gives others = sum_{i != k} W_i p_i, all that the gradient of sum_i W_i KL(p_i || p_k) needs.
            "reverse" gives others = sum_{i != k} W_i log p_i, and weight = sum_{i != k} W_i.
    """
    log_p = torch.stack([message["log_p"] for message in messages])  # [M, B, K]
    sound = torch.isfinite(log_p).flatten(1).all(1)
    w = torch.tensor(weights, dtype=log_p.dtype, device=log_p.device) * sound
    spoken = torch.where(sound[:, None, None], log_p if kl == "reverse" else log_p.exp(), 0.0)
    parts = w[:, None, None] * spoken
    total = parts.sum(0)
    if kl == "forward":
        return [{"others": total - part} for part in parts]
    return [{"others": total - part, "weight": w.sum() - own_weight} for part, own_weight in zip(parts, w, strict=True)]


@dataclass(frozen=True)
class Align(OwnModel):
    """One pass over public images, in which each client learns from the others' predictions on the same batch."""

    train: Train
    kl: str
    fresh: bool

    def get_augmentations(self) -> list[Any]:
        return ["none"]  # all clients must predict the same images

    def make_message(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> dict[str, Tensor]:
        """Compute log p [B, K] of the batch in training mode, as in RHFL's code.

        It uses a copy of the model, so that only the step updates running statistics.
        """
        return {"log_p": losses.log_probs(net.train(carry["model"].values(), batch.x, batch.drop(net)))}

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the divergence from the others' predictions.

        "forward" is sum_i W_i KL(p_i || p_k) without the teachers' entropies, which have no gradient. "reverse" is
        sum_i W_i KL(p_k || p_i).
        """
        log_q = losses.log_probs(net.train(w, batch.x, batch.drop(net)))
        if self.kl == "forward":
            return -(broadcast["others"] * log_q).sum(-1).mean()
        return (log_q.exp() * (broadcast["weight"] * log_q - broadcast["others"])).sum(-1).mean()

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        if self.fresh:
            for memory in carry["model"].memory:
                memory.zero_()
        super().train_step(net, carry, batch, broadcast, client_state)


@dataclass(frozen=True, kw_only=True)
class Mutual(LocalOnly):
    """Base of RHFL and FedHNL.

    Clients pre-train. Each round weighs the clients, aligns them on public images, and trains each on its own data.
    There are three switches: hma (alignment), cl (robust loss on the client's own data), cws (weights). With all of
    them off, it equals `local`.
    """

    needs_public = True

    pretrain: Annotated[
        int, Field(ge=0, description="Epochs of every client before the first round, one round of its own.")
    ] = 40
    pretrain_loss: Annotated[
        Literal["own", "ce"],
        Field(description="Loss of the pre-training. own: as in rounds on the own data; ce: cross entropy."),
    ] = "own"
    public: Annotated[int, Field(ge=0, description="Public images per round; 0 = all.")] = 0
    public_batch: Annotated[int, Field(ge=1, description="Public images between two exchanges of soft outputs.")] = 256
    hma: Annotated[
        bool, Field(description="Heterogeneous model alignment: clients learn from each other on public images.")
    ] = True
    cl: Annotated[bool, Field(description="Combinational loss lambda·CE + RCE on the own data; off: CE.")] = True
    cws: Annotated[
        bool, Field(description="Client weighting by label quality and progress; off: all weights are equal.")
    ] = True
    cws_target: Annotated[
        Literal["kl", "cl"],
        Field(
            description="Term that the weights multiply: learning from others (the text), or the client's own loss "
            "(equation 13 as printed)."
        ),
    ] = "kl"
    eta: Annotated[
        float, Field(ge=0, description="Weight of a client's confidence in its teaching weight (RHFL's beta).")
    ] = 0.5
    ce_weight: Annotated[
        float, Field(ge=0, description="lambda, weight of the cross entropy beside the reverse one.")
    ] = 0.1
    rce_weight: Annotated[float, Field(ge=0, description="Weight of the reverse cross entropy.")] = 1.0
    confidence_ce: Annotated[float | None, Field(ge=0, description="ce_weight of the loss for the confidence.")] = None
    confidence_rce: Annotated[float | None, Field(ge=0, description="rce_weight of the loss for the confidence.")] = (
        None
    )
    kl: Annotated[
        Literal["forward", "reverse"],
        Field(description="KL(others, own) as in RHFL's code, or KL(own, others) as in Liu et al.'s (2024) text."),
    ] = "forward"
    denominator: Annotated[
        Literal["signed", "abs"],
        Field(description="Confidences are divided by their sum, as printed, or by the sum of their sizes."),
    ] = "signed"
    normalise: Annotated[
        Literal["softmax", "sum"], Field(description="Weights by softmax, or divided by their sum (RHFL+).")
    ] = "softmax"
    fresh_optimizer_per_batch: Annotated[
        bool, Field(description="Parity with RHFL: a new optimiser for each public batch.")
    ] = False

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        state.notes["losses"] = [None] * fed.n  # last loss of each client
        state.server["cohort"] = []
        return state

    def run_pretraining(self, fed: Federation, state: State) -> dict[str, float]:
        return LocalOnly.run_pretraining(replace(self, cl=False) if self.pretrain_loss == "ce" else self, fed, state)

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        clients = state.server["cohort"] = fed.sample_cohort(state.round, candidates=candidates)
        alike = [1 / max(1, len(clients) - 1)] * len(clients)
        on_own = self.cws_target == "cl"
        weighed = self.cws and (self.hma or on_own)  # otherwise the weights would not be used
        weights = self._weigh_clients(fed, state, clients, alike) if weighed else alike
        if self.hma and len(clients) > 1:
            self._align_models(fed, state, clients, alike if on_own else weights)
        fed.fit(
            self,
            state,
            clients,
            {},
            per_client=[{"weight": w} for w in weights] if self.cws and on_own else None,
            **fit_options,
        )
        report = {"weight_min": min(weights), "weight_max": max(weights)} if weighed else {}
        return {"clients": len(clients), **report}

    def _weigh_clients(self, fed: Federation, state: State, clients: list[int], alike: list[float]) -> list[float]:
        """Compute weights from the clients' losses. In the first round there is no progress, so weights are equal."""
        last_losses = state.notes["losses"]
        now = [answer["loss"] for answer in fed.run_on_clients(state, clients, self._measure_loss)]
        before, first = [last_losses[c] for c in clients], all(loss is None for loss in last_losses)
        for c, loss in zip(clients, now, strict=True):
            # None, as for a client that has not taken part, because JSON has no infinity
            last_losses[c] = loss if math.isfinite(loss) else None
        return alike if first else client_weights(now, before, self.eta, self.denominator, self.normalise)

    def _measure_loss(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, float]:
        """Client-side code: compute the mean combinational loss over the client's samples, with any training loss."""
        ce = self.ce_weight if self.confidence_ce is None else self.confidence_ce
        rce = self.rce_weight if self.confidence_rce is None else self.confidence_rce
        return {"loss": float(losses.sce(client.predict(client.state["model"]), client.targets, ce, rce).mean())}

    def _align_models(self, fed: Federation, state: State, clients: list[int], weights: list[float]) -> None:
        ids = fed.draw_public_ids(state.round, "align", self.public)
        fed.fit_lockstep(
            Align(self.train, self.kl, self.fresh_optimizer_per_batch),
            state,
            clients,
            {"ids": ids} if self.public else {},  # all images need no list
            partial(mix_messages, weights=weights, kl=self.kl),
            ids=ids,
            batch=self.public_batch,
            tag="align",
        )

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the loss on the client's own data.

        With equation 13 of Liu et al. (2024) as printed, it is multiplied by the client's weight.
        """
        logits = net.train(w, batch.x, batch.drop(net))
        if self.cl:
            loss = losses.sce(logits, batch.y, self.ce_weight, self.rce_weight).mean()
        else:
            loss = losses.mean_ce(logits, batch.y)
        return loss * broadcast["weight"] if "weight" in broadcast else loss

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the models of all clients.

        If not all clients take part in a round, a second view has the models of its participants (Di et al., 2024).
        """
        everybody = super().list_models(fed, state)
        if fed.cohort >= len(fed.all):
            return everybody
        return {**everybody, "participants": [(c, ClientEntry("model")) for c in state.server["cohort"] or fed.all]}

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        losses_by_client = {c: loss for c, loss in enumerate(state.notes["losses"]) if loss is not None}
        return {"client_noise": losses_by_client} if losses_by_client else {}


@dataclass(frozen=True, kw_only=True)
class RHFL(Mutual):
    """RHFL (Fang and Ye, CVPR 2022): clients of any architecture teach each other on public images.

    Clients pre-train. In each round, weights are computed from the decrease of each client's symmetric cross entropy.
    Clients then make one pass over public images towards the weighted outputs of the others, and train on their own
    data.
    """

    example: ClassVar = {"pretrain": 5}
    wire: ClassVar = {"broadcast": ("ids", "others", "weight"), "update": ("loss", "log_p")}
    # switches of the ablation in Liu et al. (2024), and its open question
    excluded_settings = ("hma", "cl", "cws", "cws_target", "pretrain_loss")  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class FedHNL(Mutual):
    """FedHNL (Liu et al., 2024): RHFL's alignment on public images, with a switch for each of its three parts.

    hma aligns models of any architecture, cl is the robust loss on the client's own data, and cws gives the teaching
    weights. With all of them off, it is local-only training.
    """

    example: ClassVar = {"pretrain": 5}
    wire: ClassVar = {"broadcast": ("ids?", "others?", "weight?"), "update": ("loss?", "log_p?")}  # its switches decide
    # RHFL's and RHFL+'s
    excluded_settings = ("rce_weight", "confidence_ce", "confidence_rce", "normalise")  # type: ignore[assignment]

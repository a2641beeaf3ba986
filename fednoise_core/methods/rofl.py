"""RoFL, Robust Federated Learning with noisy labels (Yang et al., IEEE Intelligent Systems 2022).

Clients and server agree on a centroid of features for each class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    Entry,
    Federation,
    Layout,
    Net,
    State,
    Trained,
    Weights,
    Work,
    resolve_warmup,
)
from fednoise_core.methods.coteaching import ForgetRate, Ramp
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import cosine_similarity, p_wrong_by_rank
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class RoFL(FedAvg):
    """RoFL (Yang et al., 2022): clients share a centroid of features per class; labels that disagree are replaced.

    Each step uses its small-loss samples. If the centroid of the label is the nearest centroid, features are pulled to
    it. Other labels are replaced by the broadcast model's prediction after `label_rounds`.
    """

    family = "selection"
    example: ClassVar = {"forget_rate": 0.2}
    wire: ClassVar = {"broadcast": ("model", "centroids"), "update": ("model", "centroids")}

    forget_rate: ForgetRate
    ramp: Ramp = 0
    label_rounds: Annotated[
        Rounds,
        Field(
            description="T_pl, rounds on given labels, in which the pull increases, or their share; 0 = a tenth, "
            "rounded up."
        ),
    ] = 0
    centroid: Annotated[
        float, Field(ge=0, description="lambda_cen, pull of features to the centroid of their label.")
    ] = 1.0
    entropy: Annotated[float, Field(ge=0, description="lambda_e, weight of the mean entropy of predictions.")] = 0.8
    reduction: Annotated[
        Literal["mean", "sum"],
        Field(description="Of the pull over a step's samples. sum: as written; grows with the batch."),
    ] = "mean"

    # the server's side

    def init_state(self, fed: Federation) -> State:
        """Start from centroids of zeros.

        A row of zeros stands for a class that no client has sent a centroid for.
        The model is that of FedAvg.
        """
        state = super().init_state(fed)
        device = state.server["model"].flat.device
        state.server["centroids"] = torch.zeros(fed.classes, fed.net().features_size, device=device)
        return state

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {**super().make_broadcast(fed, state), "centroids": state.server["centroids"]}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        state.server["centroids"] = merge_centroids(
            state.server["centroids"], torch.stack([update["centroids"] for update in updates])
        )

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Prepare predictions, centroids of new classes, and rates, from the round and the broadcast model."""
        f, w, t, warmup = (
            broadcast["centroids"],
            broadcast["model"],
            client.round - 1,
            resolve_warmup(self.train.rounds, self.label_rounds),
        )
        new = f.norm(dim=1) == 0
        if new.any():
            f = torch.where(
                new[:, None], _class_means(client.features(w), _encode_labels(client.labels, client.classes)), f
            )
        tau = losses.forget_rate_at(t, self.forget_rate, resolve_warmup(self.train.rounds, self.ramp))
        pull = torch.tensor(self.centroid * min(1.0, t / warmup), device=f.device)
        aux = {"guess": client.predict(w).argmax(1)} if t >= warmup else {}
        return Work(aux=aux, facts={"start": f, "keep": 1.0 - tau, "pull": pull})

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        layout = Layout([Entry("f", tuple(client_state["start"].shape), "stat")])
        return {"model": broadcast["model"], "centroids": Weights(layout, client_state["start"].reshape(-1))}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        model, f, y = carry["model"], carry["centroids"].w["f"], batch.y
        h = net.features(model.w, batch.x, train=True, u=batch.drop(net))
        logits = net.head(model.w, h)
        h = h.to(f.dtype)
        per = self.compute_loss(logits, y)
        pick = losses.small_loss_mask(per, client_state["keep"])
        agrees = cosine_similarity(h.detach()[:, None], f).argmax(1) == y
        if "guess" in batch.aux:
            per = self.compute_loss(logits, torch.where(agrees, y, batch.aux["guess"]))
        loss = (per * pick).sum() / pick.sum()
        if self.centroid:
            drawn = (h - f.index_select(0, y)).square().sum(1) * agrees * pick
            loss = loss + client_state["pull"] * (drawn.sum() / pick.sum() if self.reduction == "mean" else drawn.sum())
        if self.entropy:
            log_p = losses.log_probs(logits)
            loss = loss - self.entropy * ((log_p.exp() * log_p).sum(1) * pick).sum() / pick.sum()
        model.backward(loss)
        model.update(broadcast["lr"])
        with torch.no_grad():
            f.copy_(move_centroids(f, _class_means(h, _encode_labels(y, net.classes) * pick[:, None])))

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {"model": carry["model"].values(), "centroids": carry["centroids"].values()["f"]}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the rank of the global model's loss.

        P(wrong) is above 1/2 for the share of samples that is forgotten. The proposed label is the model's prediction.
        """
        logits = client.predict(broadcast["model"])
        return p_wrong_by_rank(losses.ce(logits, client.labels), self.forget_rate), logits.argmax(1)


def _encode_labels(y: Tensor, classes: int) -> Tensor:
    """Encode labels as one-hot floats [n, K], without the synchronisation with the host of torch's one_hot."""
    return (y[:, None] == torch.arange(classes, device=y.device)).float()


def _class_means(h: Tensor, share: Tensor) -> Tensor:
    """Compute the mean feature of each class.

    Args:
        h: Features [n, d].
        share: How much each sample counts for each class [n, K].

    Returns:
        [K, d], zeros for a class without samples.
    """
    share = share.to(h.dtype)
    return losses.matmul_full_precision(share.T, h) / share.sum(0).clamp_min(1)[:, None]


def move_centroids(f: Tensor, seen: Tensor) -> Tensor:
    """Move the centroids towards the means of the round.

    f <- (1 - s²) f + s² seen, where s is the cosine of the two, row by row. A row of zeros has no effect.

    Args:
        f: Centroids [K, d].
        seen: Means of the round [K, d].
    """
    s = cosine_similarity(f, seen).square()[:, None]
    return (1 - s) * f + s * seen


def merge_centroids(old: Tensor, new: Tensor) -> Tensor:
    """Merge the clients' centroids with weights max(0, cos(old, new)).

    If the weights of a class sum to less than 1e-6, as for a new class, it uses the mean over the clients that have the
    class, or `old` if no client has it. (The authors' order of steps gives negative weights, and NaN in the last case.)

    Args:
        old: [K, d].
        new: [S, K, d], one row of centroids per client.
    """
    has = (new.norm(dim=2) > 0).to(new.dtype)
    s = cosine_similarity(old, new).clamp_min(0)
    weight = torch.where(s.sum(0) >= 1e-6, s, has)
    total = weight.sum(0)[:, None]
    return torch.where(total > 0, (weight[:, :, None] * new).sum(0) / total.clamp_min(1e-12), old)

"""FedRN (Kim et al., CIKM 2022): models of reliable neighbours help a client to find its clean labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    Entry,
    Federation,
    Layout,
    Local,
    Net,
    Phase,
    State,
    Train,
    Trained,
    Weights,
    Work,
    resolve_rounds,
)
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import cosine_similarity, low_loss, scale_to_unit
from fednoise_core.settings.declare import Rounds, Share

HEAD = ("head.weight", "head.bias")
TRUSTED = 0.5  # posterior above which a label is trusted


def score_labels(client: Client, w: Weights, word: str) -> Tensor:
    """Compute P(label is right) by model `w`, on the client.

    It is the posterior of the low-loss group in a mixture of two.

    Args:
        client: The client.
        w: The model.
        word: Names the seed of the mixture.

    Returns:
        float64 [n].
    """
    return low_loss(losses.ce(client.predict(w), client.labels), seed=client.derive_seed("right", word))


@dataclass(frozen=True)
class Heads(Local):
    """Tunes the heads of copies of the neighbours' models on the labels that the client's own model trusts.

    The bodies do not change and are in evaluation mode, so each image passes through them once. Nothing is sent. The
    client stores "clean" [n], the mean of its own and its neighbours' posteriors, weighted by `broadcast["scores"]`
    [1 + k], in this order.
    """

    train: Train

    passes = 0  # a step sees features only: no pass through the net

    def get_augmentations(self) -> list[Any]:
        return ["none"]  # features are computed from images without augmentation

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        scores = score_labels(client, _take_own_model(client, broadcast), "own")
        client.state["clean"] = scores
        aux = {name: client.features(broadcast[name]) for name in _list_neighbours(broadcast)}
        return Work(samples=(scores > TRUSTED).nonzero().squeeze(1), aux=aux)

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        return {name: _copy_head(broadcast[name]) for name in _list_neighbours(broadcast)}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        for name, head in carry.items():
            head.backward(losses.mean_ce(net.head(head.w, batch.aux[name]), batch.y))
            head.update(broadcast["lr"])

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {name: head.values() for name, head in carry.items()}

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        posteriors = [client.state["clean"]]
        for name, head in update.items():
            tuned = broadcast[name].clone()  # the neighbour's model itself must not change
            for part in HEAD:
                tuned[part].copy_(head[part])
            posteriors.append(score_labels(client, tuned, name))
        weight = (broadcast["scores"] / broadcast["scores"].sum()).to(client.labels.device)
        client.state["clean"] = (weight[:, None] * torch.stack(posteriors)).sum(0)
        return {}


@dataclass(frozen=True, kw_only=True)
class FedRN(FedAvg):
    """FedRN (Kim et al., CIKM 2022): neighbours' models help a client to tell which of its labels are right.

    After a warm-up, each client trains on the samples that its own last model and the models of k neighbours trust on
    average. Neighbours are clients whose models have a high accuracy on their own labels, or similar predictions.
    """

    family = "selection"
    example: ClassVar = {"neighbours": 2}
    wire: ClassVar = {
        "broadcast": ("model", "probe", "near*?", "scores?", "asked"),
        "update": ("model", "skill", "answer"),
        "relay": ("model",),
    }

    neighbours: Annotated[int, Field(ge=0, description="k, number of neighbours of a client.")] = 2
    weight: Annotated[
        Share, Field(description="w, weight of a neighbour's accuracy on its labels; 1 - w: of its similarity.")
    ] = 0.6
    warmup: Annotated[Rounds, Field(description="Rounds on all labels, or their share; 0 = a fifth of all.")] = 0

    @property
    def warm_rounds(self) -> int:
        return min(resolve_rounds(self.train.rounds, self.warmup or 0.2), self.train.rounds)

    # the server's side

    def init_state(self, fed: Federation) -> State:
        """Send one image of Gaussian noise (the probe) to all clients. The server stores it, too.

        The similarity of two models is the similarity of their logits on this image.
        """
        state = super().init_state(fed)
        device = state.server["model"].flat.device
        probe = torch.randn(1, *fed.net().shape, generator=fed.random_stream("probe")).to(device)
        fed.run_on_clients(state, fed.all, _keep_probe, {"probe": probe})
        state.server["probe"] = probe
        state.server["told"] = {}  # accuracy and answer of each client that has trained
        return state

    def list_phases(self, fed: Federation) -> list[Phase]:
        return [
            Phase("warm-up", self.run_round, self.warm_rounds),
            Phase("neighbours", self.round_with_neighbours, self.train.rounds),
        ]

    def round_with_neighbours(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None
    ) -> dict[str, float] | None:
        """Fit the cohort twice: tune the neighbours' heads, then train on the trusted samples.

        All neighbours' models are from the start of the round.

        Returns:
            The report of FedAvg's round, and the number of clients that had neighbours.
        """
        clients, asked, per_client = fed.sample_cohort(state.round, candidates=candidates), [], []
        for c in clients:
            neighbours, scores = self.choose_neighbours(fed, state, c)
            if neighbours:
                extra = {} if c in state.server["told"] else self.make_broadcast(fed, state)
                models = {
                    f"near{k}": fed.relayed_message(state, neighbour, "model") for k, neighbour in enumerate(neighbours)
                }
                asked.append(c)
                per_client.append({**extra, **models, "scores": torch.tensor(scores, dtype=torch.float64)})
        tuned = set(
            fed.fit(Heads(self.train), state, asked, {}, per_client=per_client, epochs=1, tag="heads").participants
        )
        per_client = [{"asked": c in tuned} for c in clients]  # others had no neighbours, or their tuning diverged
        report = super().run_round(fed, state, candidates, per_client=per_client) or {}
        return {**report, "neighbours": len(tuned)}

    def choose_neighbours(self, fed: Federation, state: State, c: int) -> tuple[list[int], list[float]]:
        """Choose the neighbours of client c, best first (ties: the lower number).

        score = w·accuracy + (1 - w)·cosine of the logits on the probe, both min-max scaled over the clients that have
        trained. The client's own cosine is 1. If client c has not trained yet, the global model is used, with a scaled
        accuracy of 0.5.

        Returns:
            The neighbours, and scores in 0..1: first the client's own score, then those of the neighbours.
        """
        server, answers = state.server, state.server["told"]
        answered = sorted(answers)
        if not answered:
            return [], [1.0]
        answer = answers[c]["answer"] if c in answers else _answer_probe(fed.net(), server["model"], server["probe"])
        able = scale_to_unit(
            torch.tensor([answers[j]["skill"] for j in answered], dtype=torch.float64, device=answer.device)
        )
        alike = cosine_similarity(answer.double(), torch.stack([answers[j]["answer"] for j in answered]).double())
        alike = scale_to_unit(torch.cat([alike, torch.ones_like(alike[:1])]))[:-1]  # with its cosine to itself, 1
        scores = self.weight * able + (1 - self.weight) * alike
        own_score = self.weight * (float(able[answered.index(c)]) if c in answers else 0.5) + 1 - self.weight
        best = [j for j in torch.argsort(scores, descending=True, stable=True).tolist() if answered[j] != c]
        best = best[: self.neighbours]
        weights = [own_score, *scores[best].tolist()]
        return [answered[j] for j in best], weights if sum(weights) > 0 else [1.0] * len(weights)

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        new = {
            c: {"skill": update["skill"], "answer": update["answer"]}
            for c, update in zip(clients, updates, strict=True)
        }
        state.server["told"] = {**state.server["told"], **new}

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        if "asked" not in broadcast:  # warm-up
            return None
        if not broadcast["asked"]:
            client.state["clean"] = score_labels(client, _take_own_model(client, broadcast), "own")
        trusted = client.state["clean"] > TRUSTED
        return Work(samples=trusted.nonzero().squeeze(1)) if trusted.any() else None

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        model = update["model"]
        client.state["model"] = model
        skill = float((client.predict(model).argmax(1) == client.labels).double().mean())
        answer = _answer_probe(client.net, model, client.state["probe"])
        return {**update, "skill": skill, "answer": answer, "relay": {"model": model}}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the posteriors of the client's last round.

        P(wrong) is one minus this posterior. If the client had no round after the warm-up, the posterior comes from the
        global model. The proposed label is the global model's prediction.
        """
        clean = (
            client.state["clean"] if "clean" in client.state else score_labels(client, broadcast["model"], "suspects")
        )
        return 1.0 - clean, client.predict(broadcast["model"]).argmax(1)


def _keep_probe(client: Client, broadcast: Mapping[str, Any]) -> None:
    client.state["probe"] = broadcast["probe"]


def _answer_probe(net: Net, w: Weights, probe: Tensor) -> Tensor:
    """Compute logits [K] on the probe [1, C, H, W]. Dropout that is on in evaluation drops no channel here."""
    with torch.no_grad():
        return net.predict(w, probe, torch.ones(1, net.draws, device=probe.device)).squeeze(0)


def _take_own_model(client: Client, broadcast: Mapping[str, Any]) -> Weights:
    """Return the client's own last model, or the broadcast model if the client has not trained yet."""
    return client.state["model"] if "model" in client.state else broadcast["model"]


def _list_neighbours(broadcast: Mapping[str, Any]) -> list[str]:
    return [name for name in broadcast if name.startswith("near")]


def _copy_head(w: Weights) -> Weights:
    head = Layout([Entry(part, tuple(w[part].shape)) for part in HEAD]).zeros(w.flat.device)
    for part in HEAD:
        head[part].copy_(w[part])
    return head

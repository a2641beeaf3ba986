"""FedRN (Kim et al., CIKM 2022): a client asks reliable neighbours' models which of its labels are right."""

from __future__ import annotations

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

__all__ = ["FedRN", "Heads"]

HEAD = ("head.weight", "head.bias")
TRUSTED = 0.5  # posterior above which a label is trusted


def right(me: Client, w: Weights, word: str) -> Tensor:
    """Client-side: P(label is right) [n] float64, of the low-loss group by model `w`. word: names the seed."""
    return low_loss(losses.ce(me.predict(w), me.labels), seed=me.seed("right", word))


@dataclass(frozen=True)
class Heads(Local):
    """Tunes the heads of copies of the neighbours' models on the labels that the client's own model trusts.

    Bodies stay as they are and in evaluation mode, so each image passes through them once. Nothing goes up: the client
    keeps "clean" [n], the mean of its own and its neighbours' posteriors, weighted by `down["scores"]` [1 + k], its own
    first.
    """

    train: Train

    passes = 0  # a step sees features only: no pass through the net

    def augments(self) -> list[Any]:
        return ["none"]  # features were made of the images as they are

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        own = right(me, _own(me, down), "own")
        me.mine["clean"] = own
        aux = {name: me.features(down[name]) for name in _near(down)}
        return Work(samples=(own > TRUSTED).nonzero().squeeze(1), aux=aux)

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        return {name: _head(down[name]) for name in _near(down)}

    def step(
        self, net: Net, carry: Mapping[str, Trained], batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]
    ) -> None:
        for name, head in carry.items():
            head.backward(losses.mean_ce(net.head(head.w, batch.aux[name]), batch.y))
            head.update(down["lr"])

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        return {name: head.values() for name, head in carry.items()}

    def after(self, me: Client, up: dict[str, Any], down: Mapping[str, Any]) -> dict[str, Any]:
        told = [me.mine["clean"]]
        for name, head in up.items():
            tuned = down[name].clone()  # the neighbour's model is not ours to change
            for part in HEAD:
                tuned[part].copy_(head[part])
            told.append(right(me, tuned, name))
        weight = (down["scores"] / down["scores"].sum()).to(me.labels.device)
        me.mine["clean"] = (weight[:, None] * torch.stack(told)).sum(0)
        return {}


@dataclass(frozen=True, kw_only=True)
class FedRN(FedAvg):
    """FedRN (Kim et al., CIKM 2022): neighbours' models help a client to tell which of its labels are right.

    After a warm-up each client trains on the samples that its own last model and k neighbours' trust on average: models
    of other clients with a high accuracy on their own labels, or with like answers.
    """

    example: ClassVar = {"neighbours": 2}
    wire: ClassVar = {
        "down": ("model", "probe", "near*?", "scores?", "asked"),
        "up": ("model", "skill", "answer"),
        "relay": ("model",),
    }

    neighbours: Annotated[int, Field(ge=0, description="k, models of other clients that a client asks.")] = 2
    weight: Annotated[
        Share, Field(description="w, of a neighbour's accuracy on its own labels; 1 - w: of its likeness.")
    ] = 0.6
    warmup: Annotated[Rounds, Field(description="Rounds on all labels, or their share; 0 = a fifth of all.")] = 0

    @property
    def warm_rounds(self) -> int:
        return min(resolve_rounds(self.train.rounds, self.warmup or 0.2), self.train.rounds)

    # the server's side

    def init(self, fed: Federation) -> State:
        """Clients get one image of Gaussian noise: how alike two models answer on it is how alike they are."""
        state = super().init(fed)
        device = state.server["model"].flat.device
        probe = torch.randn(1, *fed.net().shape, generator=fed.stream("probe")).to(device)
        fed.on_clients(state, fed.all, _keep_probe, {"probe": probe})
        state.server["probe"] = probe
        state.server["told"] = {}  # accuracy and answer of each client that has trained
        return state

    def phases(self, fed: Federation) -> list[Phase]:
        return [
            Phase("warm-up", self.round, self.warm_rounds),
            Phase("neighbours", self.round_with_neighbours, self.train.rounds),
        ]

    def round_with_neighbours(
        self, fed: Federation, state: State, among: Iterable[int] | None = None
    ) -> dict[str, float] | None:
        """Two fits of the cohort: tune the neighbours' heads, then train on what is trusted. All neighbours' models are
        those at the start of the round.
        """
        who, asked, each = fed.sample(state.round, among=among), [], []
        for c in who:
            near, scores = self.choose(fed, state, c)
            if near:
                own = {} if c in state.server["told"] else self.down(fed, state)
                models = {f"near{k}": fed.relayed(state, other, "model") for k, other in enumerate(near)}
                asked.append(c)
                each.append({**own, **models, "scores": torch.tensor(scores, dtype=torch.float64)})
        tuned = set(fed.fit(Heads(self.train), state, asked, {}, each=each, epochs=1, tag="heads").who)
        each = [{"asked": c in tuned} for c in who]  # others had no neighbours, or their tuning diverged
        report = super().round(fed, state, among, each=each) or {}
        return {**report, "neighbours": len(tuned)}

    def choose(self, fed: Federation, state: State, c: int) -> tuple[list[int], list[float]]:
        """The neighbours of client c, best first (ties: the lower number), and scores in 0..1: its own, then theirs.

        score = w·accuracy + (1 - w)·cosine of the answers on the probe, both min-max scaled over the clients that have
        trained; its own cosine is 1. A client that has not trained yet answers with the global model, at half skill.
        """
        server, told = state.server, state.server["told"]
        known = sorted(told)
        if not known:
            return [], [1.0]
        answer = told[c]["answer"] if c in told else _answer(fed.net(), server["model"], server["probe"])
        able = scale_to_unit(torch.tensor([told[j]["skill"] for j in known], dtype=torch.float64, device=answer.device))
        alike = cosine_similarity(answer.double(), torch.stack([told[j]["answer"] for j in known]).double())
        alike = scale_to_unit(torch.cat([alike, torch.ones_like(alike[:1])]))[:-1]  # to itself it is 1
        scores = self.weight * able + (1 - self.weight) * alike
        own = self.weight * (float(able[known.index(c)]) if c in told else 0.5) + 1 - self.weight
        best = [j for j in torch.argsort(scores, descending=True, stable=True).tolist() if known[j] != c]
        best = best[: self.neighbours]
        found = [own, *scores[best].tolist()]
        return [known[j] for j in best], found if sum(found) > 0 else [1.0] * len(found)

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        new = {c: {"skill": up["skill"], "answer": up["answer"]} for c, up in zip(who, ups, strict=True)}
        state.server["told"] = {**state.server["told"], **new}

    # the client's side

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        if "asked" not in down:  # warm-up
            return None
        if not down["asked"]:
            me.mine["clean"] = right(me, _own(me, down), "own")
        trusted = me.mine["clean"] > TRUSTED
        return Work(samples=trusted.nonzero().squeeze(1)) if trusted.any() else None

    def after(self, me: Client, up: dict[str, Any], down: Mapping[str, Any]) -> dict[str, Any]:
        model = up["model"]
        me.mine["model"] = model
        skill = float((me.predict(model).argmax(1) == me.labels).double().mean())
        answer = _answer(me.net, model, me.mine["probe"])
        return {**up, "skill": skill, "answer": answer, "relay": {"model": model}}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """P(wrong): one minus the posterior of the client's last round, or by the global model if it was never in one
        after the warm-up; proposed: the global model's guess.
        """
        clean = me.mine["clean"] if "clean" in me.mine else right(me, down["model"], "suspects")
        return 1.0 - clean, me.predict(down["model"]).argmax(1)


def _keep_probe(me: Client, down: Mapping[str, Any]) -> None:
    me.mine["probe"] = down["probe"]


def _answer(net: Net, w: Weights, probe: Tensor) -> Tensor:
    """Logits [K] on the probe [1, C, H, W]; dropout that stays on in evaluation keeps every channel here."""
    with torch.no_grad():
        return net.predict(w, probe, torch.ones(1, net.draws, device=probe.device)).squeeze(0)


def _own(me: Client, down: Mapping[str, Any]) -> Weights:
    """The client's own last model; the broadcast one if it has not trained yet."""
    return me.mine["model"] if "model" in me.mine else down["model"]


def _near(down: Mapping[str, Any]) -> list[str]:
    return [name for name in down if name.startswith("near")]


def _head(w: Weights) -> Weights:
    head = Layout([Entry(part, tuple(w[part].shape)) for part in HEAD]).zeros(w.flat.device)
    for part in HEAD:
        head[part].copy_(w[part])
    return head

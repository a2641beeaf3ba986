"""The forward loss with a matrix of each client (Di et al., 2024): loss correction, and T-revision, which goes on to
train model and matrix together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    Entry,
    Federation,
    Kept,
    Layout,
    Local,
    Net,
    Optimiser,
    Phase,
    State,
    Train,
    Trained,
    Weights,
    resolve_rounds,
)
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.methods.transition import anchor_rows, by_matrix, confident_rows
from fednoise_core.ops import losses, optim
from fednoise_core.ops.optim import Adam
from fednoise_core.settings.declare import Rounds, Share

__all__ = ["LC", "Corrected", "Revision", "TRevision"]


@dataclass(frozen=True, kw_only=True)
class Corrected(FedAvg):
    """FedAvg whose clients train on the forward loss as soon as they keep a matrix "T"."""

    step_reads = ("T",)

    def matrix(self, p: Tensor, y: Tensor) -> Tensor:
        """T [K, K] float32 from predictions p [n, K] and given labels y [n]."""
        raise TypeError(f"{type(self).__name__} does not say how its matrix is estimated")

    def estimate(self, fed: Federation, state: State) -> None:
        """Once, every client, not only the round's cohort, estimates its T with the global model; T stays with it."""
        if "estimated" in state.notes:
            return
        state.notes["estimated"] = state.round
        fed.on_clients(state, fed.all, self._estimate, self.down(fed, state))

    def _estimate(self, me: Client, down: Mapping[str, Any]) -> None:
        me.mine["T"] = self.matrix(losses.log_probs(me.predict(down["model"])).exp(), me.labels)

    def objective(self, net: Net, w: Weights, batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]) -> Tensor:
        """Forward correction -log (T' p)_y."""
        if "T" not in mine:
            return super().objective(net, w, batch, down, mine)
        return losses.forward_correction(net.train(w, batch.x, batch.drop(net)), batch.y, mine["T"]).mean()

    def estimates(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"transition": Kept("T")} if "estimated" in state.notes else {}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """By Bayes' rule from the model and the client's T; no opinion before it is estimated."""
        return by_matrix(me.predict(down["model"]), me.labels, me.mine["T"]) if "T" in me.mine else None


@dataclass(frozen=True, kw_only=True)
class LC(Corrected):
    """Loss correction (Patrini et al., CVPR 2017; Di et al., 2024): the forward loss with a matrix of each client.

    FedAvg until `switch`; then every client counts its matrix T_c once, from the labels of samples that the global
    model is sure about, and trains on -log (T_c' p)_y.
    """

    switch: Annotated[
        Rounds, Field(description="Rounds before the estimate, or their share; 0 = half of all (150 of 300).")
    ] = 0
    confidence: Annotated[Share, Field(description="Largest probability above which a sample is counted.")] = 0.95

    def phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        switch = min(resolve_rounds(rounds, self.switch or 0.5), rounds)
        return [Phase("plain", self.round, switch), Phase("corrected", self.round, rounds, enter=self.estimate)]

    def matrix(self, p: Tensor, y: Tensor) -> Tensor:
        return confident_rows(p, y, self.confidence)


@dataclass(frozen=True)
class Revision(Local):
    """Descend mean p_y/((T + D)' p)_y CE over the model and the client's slack D, both by Adam."""

    train: Train
    decay: float

    step_reads = ("T",)

    def optimiser(self, name: str) -> Optimiser:
        return Adam(weight_decay=self.decay, clip=self.train.clip)

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        T = mine["T"]
        none = Layout([Entry("D", tuple(T.shape))]).zeros(T.device)
        return {"model": down["model"], "slack": mine.get("slack", none)}

    def step(
        self, net: Net, carry: Mapping[str, Trained], batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]
    ) -> None:
        model, slack = carry["model"], carry["slack"]
        logits = net.train(model.w, batch.x, batch.drop(net))
        optim.compute_gradients(losses.reweighted_ce(logits, batch.y, mine["T"] + slack.w["D"]).mean(), model, slack)
        for trained in (model, slack):
            trained.update(down["lr"])

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        return {"model": carry["model"].values(), "mine": {"slack": carry["slack"].values()}}


@dataclass(frozen=True, kw_only=True)
class TRevision(Corrected):
    """T-revision (Xia et al., NeurIPS 2019; Di et al., 2024): a matrix of each client, trained on with the model.

    FedAvg; after `switch` every client estimates T_c from anchor points; forward loss; after `revise` importance
    weights from T_c + D_c, where the slack D_c is trained and stays with the client.
    """

    switch: Annotated[
        Rounds, Field(description="Rounds before the estimate, or their share; 0 = a fifteenth of all (20 of 300).")
    ] = 0
    revise: Annotated[
        Rounds, Field(description="Rounds before the revision, or their share; 0 = 8/15 of all (160 of 300).")
    ] = 0
    percentile: Annotated[
        float, Field(gt=0, le=100, description="Predictions from this one up are no anchor points; 100: all may be.")
    ] = 97.0
    revision_lr: Annotated[float, Field(gt=0, description="Of Adam in the revision, for model and slack.")] = 5e-7
    revision_decay: Annotated[float, Field(ge=0, description="Weight decay of the revision, for model and slack.")] = (
        1e-4
    )

    def phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        switch = min(resolve_rounds(rounds, self.switch or 1 / 15), rounds)
        revise = min(max(resolve_rounds(rounds, self.revise or 8 / 15), switch), rounds)
        return [
            Phase("plain", self.round, switch),
            Phase("corrected", self.round, revise, enter=self.estimate),
            # estimates where there were no rounds of the forward loss
            Phase("revised", self.revision, rounds, enter=self.estimate),
        ]

    def matrix(self, p: Tensor, y: Tensor) -> Tensor:
        return anchor_rows(p, self.percentile)

    def revision(self, fed: Federation, state: State, among: Iterable[int] | None = None) -> dict[str, float] | None:
        """A round in which clients train `Revision` instead."""
        who = fed.sample(state.round, among=among)
        local = Revision(self.train, self.revision_decay)
        who, ups = fed.fit(local, state, who, self.down(fed, state), lr=self.revision_lr)
        if who:
            self.merge(fed, state, who, ups)
        return {"clients": len(who)}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """By Bayes' rule from the model and T_c + D_c."""
        if "T" not in me.mine:
            return None
        T = me.mine["T"] + (me.mine["slack"]["D"] if "slack" in me.mine else 0.0)
        return by_matrix(me.predict(down["model"]), me.labels, T)

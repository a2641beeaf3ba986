"""The forward loss with a separate transition matrix for each client (Di et al., 2024).

The methods are loss correction, and T-revision, which later trains model and matrix together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    ClientEntry,
    Entry,
    Federation,
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
from fednoise_core.methods.transition import anchor_rows, confident_rows, judge_by_matrix
from fednoise_core.ops import losses, optim
from fednoise_core.ops.optim import Adam
from fednoise_core.settings.declare import Rounds, Share


@dataclass(frozen=True, kw_only=True)
class Corrected(FedAvg):
    """FedAvg whose clients train on the forward loss as soon as their client state has a matrix "T"."""

    family = "transition"

    def estimate_matrix(self, p: Tensor, y: Tensor) -> Tensor:
        """Estimate the client's matrix T.

        Args:
            p: Predictions [n, K].
            y: Given labels [n].

        Returns:
            float32 [K, K].
        """
        raise TypeError(f"{type(self).__name__} does not say how its matrix is estimated")

    def estimate_all(self, fed: Federation, state: State) -> None:
        """Estimate T with the global model on every client, not only on the round's cohort.

        T stays with the client. Only the first call has an effect.
        """
        if "estimated" in state.notes:
            return
        state.notes["estimated"] = state.round
        fed.run_on_clients(state, fed.all, self._estimate_own, self.make_broadcast(fed, state))

    def _estimate_own(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        client.state["T"] = self.estimate_matrix(
            losses.log_probs(client.predict(broadcast["model"])).exp(), client.labels
        )

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Forward correction -log (T' p)_y."""
        if "T" not in client_state:
            return super().compute_objective(net, w, batch, broadcast, client_state)
        return losses.forward_correction(net.train(w, batch.x, batch.drop(net)), batch.y, client_state["T"]).mean()

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"transition": ClientEntry("T")} if "estimated" in state.notes else {}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by Bayes' rule from the model and the client's T. None before T is estimated."""
        return (
            judge_by_matrix(client.predict(broadcast["model"]), client.labels, client.state["T"])
            if "T" in client.state
            else None
        )


@dataclass(frozen=True, kw_only=True)
class LC(Corrected):
    """Loss correction (Patrini et al., CVPR 2017; Di et al., 2024): the forward loss with a matrix of each client.

    It is FedAvg until `switch`. Then every client counts its matrix T_c once, from the labels of samples with a
    confident prediction of the global model, and trains on -log (T_c' p)_y.
    """

    switch: Annotated[
        Rounds, Field(description="Rounds before the estimate, or their share; 0 = half of all (150 of 300).")
    ] = 0
    confidence: Annotated[Share, Field(description="Largest probability above which a sample is counted.")] = 0.95

    def list_phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        switch = min(resolve_rounds(rounds, self.switch or 0.5), rounds)
        return [
            Phase("plain", self.run_round, switch),
            Phase("corrected", self.run_round, rounds, enter=self.estimate_all),
        ]

    def estimate_matrix(self, p: Tensor, y: Tensor) -> Tensor:
        return confident_rows(p, y, self.confidence)


@dataclass(frozen=True)
class Revision(Local):
    """Minimise the mean of p_y/((T + D)' p)_y CE over the model and the client's slack D, both by Adam."""

    train: Train
    decay: float

    def make_optimiser(self, name: str) -> Optimiser:
        return Adam(weight_decay=self.decay, clip=self.train.clip)

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        T = client_state["T"]
        none = Layout([Entry("D", tuple(T.shape))]).zeros(T.device)
        return {"model": broadcast["model"], "slack": client_state.get("slack", none)}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        model, slack = carry["model"], carry["slack"]
        logits = net.train(model.w, batch.x, batch.drop(net))
        loss = losses.reweighted_ce(logits, batch.y, client_state["T"] + slack.w["D"]).mean()
        optim.compute_gradients(loss, model, slack)
        for trained in (model, slack):
            trained.update(broadcast["lr"])

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {"model": carry["model"].values(), "client_state": {"slack": carry["slack"].values()}}


@dataclass(frozen=True, kw_only=True)
class TRevision(Corrected):
    """T-revision (Xia et al., NeurIPS 2019; Di et al., 2024): a matrix of each client, trained on with the model.

    It is FedAvg until `switch`. Then every client estimates T_c from anchor points and trains on the forward loss.
    After `revise` it trains with importance weights from T_c + D_c, where the slack D_c is trained and stays with the
    client.
    """

    switch: Annotated[
        Rounds, Field(description="Rounds before the estimate, or their share; 0 = a fifteenth of all (20 of 300).")
    ] = 0
    revise: Annotated[
        Rounds, Field(description="Rounds before the revision, or their share; 0 = 8/15 of all (160 of 300).")
    ] = 0
    percentile: Annotated[
        float, Field(gt=0, le=100, description="Anchor points are below this percentile; 100: no limit.")
    ] = 97.0
    revision_lr: Annotated[float, Field(gt=0, description="Learning rate of the revision, for model and slack.")] = 5e-7
    revision_decay: Annotated[float, Field(ge=0, description="Weight decay of the revision, for model and slack.")] = (
        1e-4
    )

    def list_phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        switch = min(resolve_rounds(rounds, self.switch or 1 / 15), rounds)
        revise = min(max(resolve_rounds(rounds, self.revise or 8 / 15), switch), rounds)
        return [
            Phase("plain", self.run_round, switch),
            Phase("corrected", self.run_round, revise, enter=self.estimate_all),
            # estimates T if there were no rounds with the forward loss
            Phase("revised", self.run_revision, rounds, enter=self.estimate_all),
        ]

    def estimate_matrix(self, p: Tensor, y: Tensor) -> Tensor:
        return anchor_rows(p, self.percentile)

    def run_revision(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None
    ) -> dict[str, float] | None:
        """Run a round in which clients train `Revision` instead of the method itself.

        Model and slack are trained together by Adam, at the rate `revision_lr`.
        The slack stays with the client.
        """
        local = Revision(self.train, self.revision_decay)
        return self.run_round(fed, state, candidates, local=local, lr=self.revision_lr)

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by Bayes' rule from the model and T_c + D_c."""
        if "T" not in client.state:
            return None
        T = client.state["T"] + (client.state["slack"]["D"] if "slack" in client.state else 0.0)
        return judge_by_matrix(client.predict(broadcast["model"]), client.labels, T)

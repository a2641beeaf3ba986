"""Local-only training: every client for itself, the baseline of Liu et al. (2024)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fednoise_core.engine.api import (
    ClientEntry,
    EvaluatedModels,
    Federation,
    Local,
    Net,
    Phase,
    State,
    Trained,
    Weights,
)
from fednoise_core.methods.fedavg import FedAvg


class OwnModel(Local):
    """Trains the client's own model, which is in the client state."""

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": client_state["model"]}

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {"client_state": {"model": carry["model"].values()}}


@dataclass(frozen=True, kw_only=True)
class LocalOnly(OwnModel, FedAvg):
    """Local-only training, no exchange (baseline of Liu et al., 2024).

    In a round the cohort trains its own models, so that the work equals the other methods'. Liu et al. (2024)
    pre-train for 40 epochs.
    """

    family = "personal"
    wire: ClassVar = {"broadcast": (), "update": ()}
    several_nets = True
    excluded_settings = ("weighting", "server_lr")  # nothing is averaged

    pretrain: Annotated[
        int, Field(ge=0, description="Epochs of every client before the first round, one round of its own.")
    ] = 0

    def init_state(self, fed: Federation) -> State:
        """Draw a model for every client.

        Clients with the same architecture have different initial models, because they never exchange models.
        Each draw has its own random stream.
        """
        return State.of_clients((c, {"model": fed.init_weights("model", c, client=c)}) for c in fed.all)

    def list_phases(self, fed: Federation) -> list[Phase]:
        first = [Phase("pretrain", self.run_pretraining, 1)] if self.pretrain else []
        return [*first, Phase("train", self.run_round, len(first) + self.train.rounds)]

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {}

    def run_pretraining(self, fed: Federation, state: State) -> dict[str, float]:
        fed.fit(self, state, fed.all, {}, epochs=self.pretrain, tag="pretrain")
        return {"clients": len(fed.all)}

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        clients = fed.sample_cohort(state.round, candidates=candidates)
        fed.fit(self, state, clients, {}, **fit_options)
        return {"clients": len(clients)}

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        return {"personal": [(c, ClientEntry("model")) for c in fed.all]}

"""Ditto (Li et al., ICML 2021): FedAvg with an additional personal model for every client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fednoise_core.engine.api import (
    SERVER,
    Batch,
    ClientEntry,
    EvaluatedModels,
    Federation,
    Net,
    State,
    Trained,
    Weights,
)
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Ditto(FedAvg):
    """Ditto (Li et al., ICML 2021): FedAvg with personal models that are pulled towards the broadcast model.

    v <- v - lr (grad CE(v) + lambda (v - theta_g)) on the same batches as the model that is averaged.
    v starts from the first broadcast that the client receives, and is never sent.
    """

    family = "personal"
    example: ClassVar = {"strength": 1.0}

    strength: Annotated[
        float, Field(ge=0, description="lambda, pull of personal models towards the broadcast one.")
    ] = 1.0

    passes = 2

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        state.server["trained"] = []  # clients that have a personal model
        return state

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": broadcast["model"], "personal": client_state.get("personal", broadcast["model"])}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        super().train_step(net, carry, batch, broadcast, client_state)  # FedAvg's step, without the personal model
        personal = carry["personal"]
        grad = personal.backward(self.compute_objective(net, personal.w, batch, broadcast, client_state))
        grad.add_(personal.w.trained.detach() - broadcast["model"].trained, alpha=self.strength)
        personal.update(broadcast["lr"])

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {"model": carry["model"].values(), "client_state": {"personal": carry["personal"].values()}}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        state.server["trained"] = sorted({*state.server["trained"], *clients})

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the personal models of the clients that have trained, and the global model.

        Before the first round the personal view has the initial model of all clients.
        The personal view is the headline.
        """
        start = [(SERVER, state.server["model"])]
        personal = [(c, ClientEntry("personal")) for c in state.server["trained"]]
        return {"personal": personal or start, "global": start}  # type: ignore[dict-item]

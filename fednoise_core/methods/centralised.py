"""Training on the pooled samples of all clients, as a reference for the cost of federation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import SERVER, EvaluatedModels, Federation, FromClientState, Net, State, Trained, Weights
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Centralised(FedAvg):
    """Training on the pooled data, the upper reference; no federated method.

    One client holds the samples and given labels of all clients (`pooled`), which are sent once before the first round.
    A round is the training between two evaluations. The optimiser keeps its memory between rounds.
    """

    wire: ClassVar = {"broadcast": (), "update": ("images", "labels")}
    pooled = True
    excluded_settings = ("weighting", "server_lr")  # nothing is averaged

    epochs: Annotated[
        int,
        Field(
            ge=0,
            description="Epochs over all samples in a round; 0 = fraction times local epochs, rounded, at least 1, "
            "which is about the work of FedAvg.",
        ),
    ] = 0

    def init_state(self, fed: Federation) -> State:
        return State.of_clients((c, {"model": fed.init_weights("model")}) for c in fed.all)

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {}

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": client_state["model"]}

    def restore_optimiser(
        self, name: str, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Sequence[Tensor] | None:
        return client_state.get("memory")

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        return {"client_state": {"model": carry["model"].values(), "memory": carry["model"].copy_memory()}}

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        epochs = self.epochs or max(1, round(self.train.epochs * self.train.fraction))
        fed.fit(self, state, fed.all, {}, **{"epochs": epochs, **fit_options})
        return None

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        return {"global": [(SERVER, FromClientState(_take_pooled_model))]}


def _take_pooled_model(client_states: Mapping[int, Mapping[str, Any]]) -> Weights:
    """The model of the only client."""
    return client_states[0]["model"]

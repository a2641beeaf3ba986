"""Ditto (Li et al., ICML 2021): FedAvg, and beside it a model of its own for every client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fednoise_core.engine.api import SERVER, Batch, Federation, Kept, Net, State, Trained, Views, Weights
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Ditto(FedAvg):
    """Ditto (Li et al., ICML 2021): FedAvg, and beside it a personal model pulled towards the broadcast one.

    v <- v - lr (grad CE(v) + lambda (v - theta_g)) on the same batches as the model that is averaged.
    v starts at the first broadcast that the client gets and never leaves it.
    """

    example: ClassVar = {"strength": 1.0}

    strength: Annotated[
        float, Field(ge=0, description="lambda, pull of personal models towards the broadcast one.")
    ] = 1.0

    passes = 2

    def init(self, fed: Federation) -> State:
        state = super().init(fed)
        state.server["trained"] = []  # clients that have a personal model
        return state

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": down["model"], "personal": mine.get("personal", down["model"])}

    def step(
        self, net: Net, carry: Mapping[str, Trained], batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]
    ) -> None:
        super().step(net, carry, batch, down, mine)  # FedAvg's: the personal model has no part in it
        own = carry["personal"]
        grad = own.backward(self.objective(net, own.w, batch, down, mine))
        grad.add_(own.w.trained.detach() - down["model"].trained, alpha=self.strength)
        own.update(down["lr"])

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        return {"model": carry["model"].values(), "mine": {"personal": carry["personal"].values()}}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        state.server["trained"] = sorted({*state.server["trained"], *who})

    def views(self, fed: Federation, state: State) -> Views:
        """personal: the clients that have trained; before the first round what everybody would start from."""
        start = [(SERVER, state.server["model"])]
        own = [(c, Kept("personal")) for c in state.server["trained"]]
        return {"personal": own or start, "global": start}  # type: ignore[dict-item]

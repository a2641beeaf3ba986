"""Forward correction after a prestop (baseline of Yu et al., 2025): each client estimates its matrix every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, Kept, State, Work
from fednoise_core.methods.prestop import Prestop
from fednoise_core.methods.transition import by_matrix, tail_rows, weighted
from fednoise_core.ops import losses

__all__ = ["ForwardPrestop"]


@dataclass(frozen=True, kw_only=True)
class ForwardPrestop(Prestop):
    """Forward correction after a prestop (baseline of Yu et al., 2025).

    FedAvg until accuracy stops rising; then, in every round, a client estimates T from the broadcast model's most
    confident predictions and trains on -log (T' p)_y.
    """

    percentile: Annotated[float, Field(ge=0, le=100, description="Of each column: predictions above make the row.")] = (
        97.0
    )
    prior_weighting: Annotated[
        bool, Field(description="Weigh p by the client's label shares, as 002's code does; false: the textbook's loss.")
    ] = True

    second = "corrected"

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        if "stopped" not in down:
            return None
        T = tail_rows(losses.log_probs(me.predict(down["model"])).exp(), self.percentile)
        me.mine["T"] = T  # as it is, for the estimates
        return Work(facts={"corrects": weighted(T, me.labels) if self.prior_weighting else T})

    def estimates(self, fed: Federation, state: State) -> dict[str, Any]:
        stopped = state.notes["prestop"]["round"]
        return {"transition": Kept("T")} if 0 < stopped < state.round else {}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """By Bayes' rule from the final model and the T it gives; no opinion if the rule never stopped phase 1."""
        if "stopped" not in down:
            return None
        logits = me.predict(down["model"])
        return by_matrix(logits, me.labels, tail_rows(losses.log_probs(logits).exp(), self.percentile))

"""Forward correction after a prestop (baseline of Yu et al., 2025): each client estimates its matrix every round."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, ClientEntry, Federation, State, Work
from fednoise_core.methods.prestop import Prestop
from fednoise_core.methods.transition import judge_by_matrix, tail_rows, weigh_by_shares
from fednoise_core.ops import losses


@dataclass(frozen=True, kw_only=True)
class ForwardPrestop(Prestop):
    """Forward correction after a prestop (baseline of Yu et al., 2025).

    It is FedAvg until accuracy stops rising. Then, in every round, a client estimates T from the broadcast model's most
    confident predictions and trains on -log (T' p)_y.
    """

    percentile: Annotated[float, Field(ge=0, le=100, description="Percentile of a column; larger values are used.")] = (
        97.0
    )
    prior_weighting: Annotated[
        bool, Field(description="Weigh p by the client's label shares, as the authors do; false: the textbook's loss.")
    ] = True

    second = "corrected"

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        if "stopped" not in broadcast:
            return None
        T = tail_rows(losses.log_probs(client.predict(broadcast["model"])).exp(), self.percentile)
        client.state["T"] = T  # without weights, for the estimates
        return Work(facts={"corrects": weigh_by_shares(T, client.labels) if self.prior_weighting else T})

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        stopped = state.notes["prestop"]["round"]
        return {"transition": ClientEntry("T")} if 0 < stopped < state.round else {}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by Bayes' rule, with the final model and the T that is estimated with it.

        None if the prestop rule never ended phase 1.
        """
        if "stopped" not in broadcast:
            return None
        logits = client.predict(broadcast["model"])
        return judge_by_matrix(logits, client.labels, tail_rows(losses.log_probs(logits).exp(), self.percentile))

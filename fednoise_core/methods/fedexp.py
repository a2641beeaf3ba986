"""FedExP (Jhunjhunwala et al., ICLR 2023): a server step that is longer if the clients disagree more."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fednoise_core.engine.api import SERVER, EvaluatedModels, Federation, State, weighted_mean
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedExP(FedAvg):
    """FedExP (Jhunjhunwala et al., ICLR 2023): a server step that is longer if the clients disagree more.

    eta_g = max(1, sum_i p_i ||d_i||^2 / (2 (||sum_i p_i d_i||^2 + epsilon))) with displacements d_i = theta_i - theta_g
    of the trained numbers. Statistics are averaged. The mean of the last two models is evaluated.
    """

    example: ClassVar = {"epsilon": 0.001}
    excluded_settings = ("server_lr",)  # worked out every round

    weighting: Annotated[Literal["samples", "uniform"], Field(description="p_i; the paper's are equal.")] = "uniform"
    epsilon: Annotated[float, Field(gt=0, description="Keeps the step finite where displacements cancel.")] = 0.001

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        old = state.server["model"]
        super().merge_updates(fed, state, clients, updates)
        new = state.server["model"]
        moved = new.trained - old.trained
        lengths = [float((update["model"].trained - old.trained).double().square().sum()) for update in updates]
        spread = weighted_mean(lengths, self.weigh_updates(fed, state, clients, updates))
        step = max(1.0, spread / (2 * (float(moved.double().square().sum()) + self.epsilon)))
        if step > 1.0:
            new.trained.copy_(old.trained + moved * step)
        if state.round > 1:  # as in the code: the first model is not averaged with the initial model
            state.server["before"] = old
        state.notes["server_step"] = step

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        """Run a round of FedAvg.

        The round also reports eta_g, as "server_step".
        """
        report = super().run_round(fed, state, candidates, **fit_options) or {}
        return {**report, "server_step": state.notes.get("server_step", 1.0)}

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        last = state.server["model"]
        averaged = last.clone()
        if "before" in state.server:
            averaged.trained.copy_((last.trained + state.server["before"].trained) / 2)
        return {"averaged": [(SERVER, averaged)], "global": [(SERVER, last)]}

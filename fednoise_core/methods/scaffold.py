"""SCAFFOLD (Karimireddy et al., ICML 2020), option II."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, Net, State, Trained, Weights, weighted_mean
from fednoise_core.methods.fedavg import FedAvg

__all__ = ["Scaffold"]


@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """SCAFFOLD, option II (Karimireddy et al., ICML 2020): control variates on both sides.

    Control variates c (server) and c_i (clients) are flat vectors over the trained numbers; statistics are averaged,
    not controlled.

    A step uses g - c_i + c. The displacement is divided by the factor 1/(1 - momentum) by which momentum lengthens it,
    so that c_i keeps the size of a gradient.
    """

    wire: ClassVar = {"down": ("model", "control"), "up": ("model", "shift")}
    needs_train: ClassVar = {"optimiser": ("sgd",)}  # under another, displacement over rate is no gradient

    weighting: Annotated[
        Literal["samples", "uniform"], Field(description="The paper's server update is a plain mean.")
    ] = "uniform"

    step_reads = ("control",)

    def init(self, fed: Federation) -> State:
        state = super().init(fed)
        state.server["control"] = torch.zeros_like(state.server["model"].trained)
        return state

    def down(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"model": state.server["model"], "control": state.server["control"]}

    def prepare(self, me: Client, down: Mapping[str, Any]) -> None:
        me.mine.setdefault("control", torch.zeros_like(down["control"]))

    def correct(self, grad: Tensor, w: Weights, down: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        grad.add_(down["control"]).sub_(mine["control"])

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        model = carry["model"].values()
        reach = max(steps, 1) * down["lr"] / (1.0 - self.train.momentum)  # K_i * eta: the steps really taken
        # without a step, or at rate 0, nothing was learnt about the gradient
        moved = (down["model"].trained - model.trained) / reach if steps and self.train.lr else down["control"]
        new = mine["control"] - down["control"] + moved
        return {"model": model, "shift": new - mine["control"], "mine": {"control": new}}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        state.server["control"] = state.server["control"] + weighted_mean([up["shift"] for up in ups]) * (
            len(who) / fed.n
        )

"""SCAFFOLD (Karimireddy et al., ICML 2020), option II."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Work
from fednoise_core.engine.state import State
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.nets.net import Net
from fednoise_core.optim import Trained
from fednoise_core.tree import Weights, mean

__all__ = ["Scaffold"]


@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """SCAFFOLD, option II (Karimireddy et al., ICML 2020): control variates on both sides.

    Control variates c (server) and c_i (clients) are flat vectors over the trained numbers; statistics are averaged,
    not controlled.

    A step uses g - c_i + c. momentum_correction divides the displacement by the factor 1/(1 - momentum) by which
    momentum lengthens it, so that c_i keeps the size of a gradient (methods.md 5.3 g). weighted: the form of FedDyn's
    authors (5.3 e), in which c is the mean of the c_i by samples: with a_i = N_i C / N, a step uses g - c_i + c / a_i.
    """

    wire: ClassVar = {"down": ("model", "control", "clients_per_sample?"), "up": ("model", "shift")}
    needs_train: ClassVar = {"optimiser": ("sgd",)}  # under another, displacement over rate is no gradient

    weighting: Annotated[
        Literal["samples", "uniform"], Field(description="The paper's server update is a plain mean.")
    ] = "uniform"
    momentum_correction: Annotated[bool, Field(description="Divide the displacement by 1/(1 - momentum).")] = True
    weighted: Annotated[
        bool, Field(description="Control variates weighted by samples, as in the code of FedDyn's authors.")
    ] = False

    step_reads = ("control",)

    def init(self, fed: Federation) -> State:
        state = super().init(fed)
        state.server["control"] = torch.zeros_like(state.server["model"].trained)
        return state

    def down(self, fed: Federation, state: State) -> dict[str, Any]:
        scale = {"clients_per_sample": fed.n / sum(fed.sizes)} if self.weighted else {}
        return {"model": state.server["model"], "control": state.server["control"], **scale}

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        me.mine.setdefault("control", torch.zeros_like(down["control"]))
        if not self.weighted:
            return None
        return Work(facts={"pull": down["control"] / (me.n * down["clients_per_sample"])})

    def correct(self, grad: Tensor, w: Weights, down: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        grad.add_(mine["pull"] if self.weighted else down["control"]).sub_(mine["control"])

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        model = carry["model"].values()
        reach = max(steps, 1) * down["lr"]  # K_i * eta: the steps really taken
        if self.momentum_correction:
            reach = reach / (1.0 - self.train.momentum)
        # without a step, or at rate 0, nothing was learnt about the gradient
        moved = (down["model"].trained - model.trained) / reach if steps and self.train.lr else down["control"]
        new = mine["control"] - down["control"] + moved
        return {"model": model, "shift": new - mine["control"], "mine": {"control": new}}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        sizes, shifts = [fed.sizes[c] for c in who], [up["shift"] for up in ups]
        if self.weighted:
            shift = mean(shifts, sizes) * (sum(sizes) / sum(fed.sizes))
        else:
            shift = mean(shifts) * (len(who) / fed.n)
        state.server["control"] = state.server["control"] + shift

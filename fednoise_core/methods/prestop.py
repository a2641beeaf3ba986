"""The prestop rule: plain rounds until the clients' accuracy on their given labels stops rising (Yu et al., 2025)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    Batch,
    Client,
    Entry,
    Federation,
    Layout,
    Net,
    Phase,
    State,
    Trained,
    Weights,
    resolve_rounds,
)
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.settings.declare import Rounds

__all__ = ["Prestop"]

COUNTS = Layout([Entry("right", (1,), "stat"), Entry("seen", (1,), "stat")])  # predictions of a fit's steps


@dataclass(frozen=True, kw_only=True)
class Prestop(FedAvg):
    """FedAvg until the prestop round, then what the subclass does; base of the methods of Yu et al. (2025).

    In the first phase every client sends its accuracy on its given labels. From the round after the stop on, `down`
    has the entry "stopped".
    """

    wire: ClassVar = {"down": ("model", "stopped"), "up": ("model", "accuracy")}

    patience: Annotated[int, Field(ge=1, description="gamma_thr, rounds without a rise after which phase 1 ends.")] = 6
    start: Annotated[
        Rounds,
        Field(
            description="t_start, rounds that the rule lets pass, or their share; 0 = a fifth (40 of 200, as for "
            "CIFAR-10)."
        ),
    ] = 0
    latest: Annotated[
        Rounds,
        Field(description="Round after which phase 1 ends in any case, or its share of all; 0 = none, as in 002."),
    ] = 0
    monitor: Annotated[
        Literal["train", "pre_eval"],
        Field(
            description="Accuracy of the training batches as they pass (002's code), or of the broadcast model "
            "(its text)."
        ),
    ] = "train"
    compare: Annotated[
        Literal["best", "previous"], Field(description="With the best so far (code), or the round before (text).")
    ] = "best"
    tie: Annotated[
        Literal["count", "reset"], Field(description="An equal accuracy counts as no rise (code), or as one (text).")
    ] = "count"

    second = "second"  # the name of the phase after the stop

    # the server's side

    def init(self, fed: Federation) -> State:
        state = super().init(fed)
        state.notes["prestop"] = {"round": 0, "reference": 0.0, "misses": 0}  # round 0: not yet, or never
        return state

    def phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        first = Phase("watch", self.round, rounds, until=lambda state: bool(state.notes["prestop"]["round"]))
        return [first, Phase(self.second, self.round, rounds)]

    def down(self, fed: Federation, state: State) -> dict[str, Any]:
        return {**super().down(fed, state), **({"stopped": True} if state.notes["prestop"]["round"] else {})}

    def round(
        self, fed: Federation, state: State, among: Iterable[int] | None = None, **how: Any
    ) -> dict[str, float] | None:
        before = state.notes["prestop"]
        report = super().round(fed, state, among, **how) or {}
        after = state.notes["prestop"]
        return report if after is before else {**report, "watched_accuracy": after["accuracy"]}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        said = [float(up["accuracy"]) for up in ups if "accuracy" in up]
        if said:
            state.notes["prestop"] = self._watched(state, sum(said) / len(said))

    def _watched(self, state: State, accuracy: float) -> dict[str, Any]:
        """The note after one more round's accuracy. The best counted one starts at 0."""
        rounds, reference, misses = self.train.rounds, state.notes["prestop"]["reference"], 0
        counts = state.round > resolve_rounds(rounds, self.start or 0.2)
        if counts and not (accuracy > reference or (self.tie == "reset" and accuracy == reference)):
            misses = state.notes["prestop"]["misses"] + 1
        if self.compare == "previous":
            reference = accuracy
        elif counts:
            reference = max(accuracy, reference)
        stops = misses >= self.patience or (self.latest and state.round >= resolve_rounds(rounds, self.latest))
        now = state.round if stops else 0
        return {"round": now, "accuracy": accuracy, "reference": reference, "misses": misses}

    # the client's side

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        carry = super().begin(net, down, mine)
        if "stopped" in down or self.monitor != "train":
            return carry
        return {**carry, "counts": COUNTS.zeros(down["model"].flat.device)}

    def objective(self, net: Net, w: Weights, batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]) -> Tensor:
        """The forward loss -log (T' p)_y where the client prepared a matrix, the fact "corrects"."""
        if "corrects" not in mine:
            return super().objective(net, w, batch, down, mine)
        return losses.forward_correction(net.train(w, batch.x, batch.drop(net)), batch.y, mine["corrects"]).mean()

    def step(
        self, net: Net, carry: Mapping[str, Trained], batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]
    ) -> None:
        if "counts" not in carry:
            super().step(net, carry, batch, down, mine)
            return
        model, counts = carry["model"], carry["counts"].w
        logits = net.train(model.w, batch.x, batch.drop(net))
        with torch.no_grad():
            counts["right"].add_((logits.argmax(1) == batch.y).sum())
            counts["seen"].add_(len(batch.y))
        grad = model.backward(losses.mean_ce(logits, batch.y))
        self.correct(grad, model.w, down, mine)
        model.update(down["lr"])

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        up = super().finish(net, carry, down, mine, steps)
        if "counts" in carry and steps:  # a client that took no step saw nothing
            counts = carry["counts"].values()
            up["accuracy"] = counts["right"] / counts["seen"]
        return up

    def after(self, me: Client, up: dict[str, Any], down: Mapping[str, Any]) -> dict[str, Any]:
        if "stopped" in down or self.monitor != "pre_eval":
            return up
        right = me.predict(down["model"]).argmax(1) == me.labels
        return {**up, "accuracy": right.float().mean()[None]}

"""The prestop rule: plain rounds until the clients' accuracy on their given labels stops rising (Yu et al., 2025)."""

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

COUNTS = Layout([Entry("right", (1,), "stat"), Entry("seen", (1,), "stat")])  # predictions of a fit's steps


@dataclass(frozen=True, kw_only=True)
class Prestop(FedAvg):
    """FedAvg until the prestop round, then the training of the subclass. Base of the methods of Yu et al. (2025).

    In the first phase every client sends its accuracy on its given labels. From the round after the stop on,
    `broadcast` has the entry "stopped".
    """

    family = "transition"
    wire: ClassVar = {"broadcast": ("model", "stopped"), "update": ("model", "accuracy")}

    patience: Annotated[int, Field(ge=1, description="gamma_thr, rounds without a rise after which phase 1 ends.")] = 6
    start: Annotated[
        Rounds,
        Field(
            description="t_start, first rounds without the rule, or their share; 0 = a fifth (40 of 200, as for "
            "CIFAR-10)."
        ),
    ] = 0
    latest: Annotated[
        Rounds,
        Field(description="Round after which phase 1 ends in any case, or its share; 0 = none, as in the paper."),
    ] = 0
    monitor: Annotated[
        Literal["train", "pre_eval"],
        Field(
            description="Accuracy on training batches during training (the authors' code), or of the broadcast model "
            "(the text)."
        ),
    ] = "train"
    compare: Annotated[
        Literal["best", "previous"], Field(description="Compare with the best (code) or previous accuracy (text).")
    ] = "best"
    tie: Annotated[
        Literal["count", "reset"], Field(description="An equal accuracy counts as no rise (code), or as one (text).")
    ] = "count"

    second = "second"  # the name of the phase after the stop

    # the server's side

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        state.notes["prestop"] = {"round": 0, "reference": 0.0, "misses": 0}  # round 0: not yet, or never
        return state

    def list_phases(self, fed: Federation) -> list[Phase]:
        rounds = self.train.rounds
        first = Phase("watch", self.run_round, rounds, until=lambda state: bool(state.notes["prestop"]["round"]))
        return [first, Phase(self.second, self.run_round, rounds)]

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {**super().make_broadcast(fed, state), **({"stopped": True} if state.notes["prestop"]["round"] else {})}

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        before = state.notes["prestop"]
        report = super().run_round(fed, state, candidates, **fit_options) or {}
        after = state.notes["prestop"]
        return report if after is before else {**report, "watched_accuracy": after["accuracy"]}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        accuracies = [float(update["accuracy"]) for update in updates if "accuracy" in update]
        if accuracies:
            state.notes["prestop"] = self._count_watched(state, sum(accuracies) / len(accuracies))

    def _count_watched(self, state: State, accuracy: float) -> dict[str, Any]:
        """Update the note with the accuracy of one more round. The best accuracy starts at 0."""
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

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        carry = super().init_carry(net, broadcast, client_state)
        if "stopped" in broadcast or self.monitor != "train":
            return carry
        return {**carry, "counts": COUNTS.zeros(broadcast["model"].flat.device)}

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the forward loss -log (T' p)_y if the client has prepared a matrix (the fact "corrects")."""
        if "corrects" not in client_state:
            return super().compute_objective(net, w, batch, broadcast, client_state)
        logits = net.train(w, batch.x, batch.drop(net))
        return losses.forward_correction(logits, batch.y, client_state["corrects"]).mean()

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        if "counts" not in carry:
            super().train_step(net, carry, batch, broadcast, client_state)
            return
        model, counts = carry["model"], carry["counts"].w
        logits = net.train(model.w, batch.x, batch.drop(net))
        with torch.no_grad():
            counts["right"].add_((logits.argmax(1) == batch.y).sum())
            counts["seen"].add_(len(batch.y))
        grad = model.backward(losses.mean_ce(logits, batch.y))
        self.correct_gradient(grad, model.w, broadcast, client_state)
        model.update(broadcast["lr"])

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        update = super().make_update(net, carry, broadcast, client_state, steps)
        if "counts" in carry and steps:  # without a step there are no predictions
            counts = carry["counts"].values()
            update["accuracy"] = counts["right"] / counts["seen"]
        return update

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        if "stopped" in broadcast or self.monitor != "pre_eval":
            return update
        right = client.predict(broadcast["model"]).argmax(1) == client.labels
        return {**update, "accuracy": right.float().mean()[None]}

"""Local-only training: every client for itself, the baseline of Liu et al. (2024)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fednoise_core.engine.api import Federation, Kept, Local, Net, Phase, State, Trained, Views, Weights
from fednoise_core.methods.fedavg import FedAvg

__all__ = ["LocalOnly", "OwnModel"]


class OwnModel(Local):
    """Trains the model that the client keeps."""

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": mine["model"]}

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        return {"mine": {"model": carry["model"].values()}}


@dataclass(frozen=True, kw_only=True)
class LocalOnly(OwnModel, FedAvg):
    """Local-only training, no exchange (baseline of Liu et al., 2024).

    In a round the cohort trains its own models, so that the work equals the other methods'. Liu et al. (2024)
    pre-train for 40 epochs.
    """

    wire: ClassVar = {"down": (), "up": ()}
    several_nets = True
    excluded_settings = ("weighting", "server_lr")  # nothing is averaged

    pretrain: Annotated[
        int, Field(ge=0, description="Epochs of every client before the first round, one round of its own.")
    ] = 0

    def init(self, fed: Federation) -> State:
        """Every client starts from its own draw; clients of one architecture do not share it, since they never meet."""
        return State.of_clients((c, {"model": fed.fresh("model", c, client=c)}) for c in fed.all)

    def phases(self, fed: Federation) -> list[Phase]:
        first = [Phase("pretrain", self.warm, 1)] if self.pretrain else []
        return [*first, Phase("train", self.round, len(first) + self.train.rounds)]

    def down(self, fed: Federation, state: State) -> dict[str, Any]:
        return {}

    def warm(self, fed: Federation, state: State) -> dict[str, float]:
        fed.fit(self, state, fed.all, {}, epochs=self.pretrain, tag="pretrain")
        return {"clients": len(fed.all)}

    def round(
        self, fed: Federation, state: State, among: Iterable[int] | None = None, **how: Any
    ) -> dict[str, float] | None:
        who = fed.sample(state.round, among=among)
        fed.fit(self, state, who, {}, **how)
        return {"clients": len(who)}

    def views(self, fed: Federation, state: State) -> Views:
        return {"personal": [(c, Kept("model")) for c in fed.all]}

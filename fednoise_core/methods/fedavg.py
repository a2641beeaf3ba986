"""FedAvg (McMahan et al., AISTATS 2017): the base class of all methods, and the only round body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import SERVER, Client, Federation, Local, Phase, State, Train, Views, weighted_mean
from fednoise_core.settings.train import ValidatedSettings


@dataclass(frozen=True, kw_only=True)
class FedAvg(Local, ValidatedSettings):
    """FedAvg (McMahan et al., AISTATS 2017): mean of the cohort's models.

    Other methods say how they differ. Beside its settings a class may state: example, settings
    of the reference page's example; needs_public, its data sets must have a `public` part; several_nets, `train.net`
    may be a list; pooled, all samples lie with one client, as if there were no federation; above_chance
    {setting: other}, the setting must exceed 1/K unless the other is given; needs_train
    {setting: values}, the only values of that training setting that it works with; wire, the names of what crosses
    "down" to a client, "up" from it, and up to be handed on to other clients ("relay").
    """

    place = "method"
    example: ClassVar[dict[str, Any]] = {}
    needs_public: ClassVar[bool] = False
    several_nets: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    above_chance: ClassVar[dict[str, str]] = {}
    wire: ClassVar[Mapping[str, tuple[str, ...]]] = {"down": ("model",), "up": ("model",)}

    train: Train
    weighting: Annotated[
        Literal["samples", "uniform"], Field(description="Aggregation weights: by samples, or equal.")
    ] = "samples"
    server_lr: Annotated[float, Field(gt=0, description="eta_g; 1 is plain averaging.")] = 1.0

    # the server's side

    def init(self, fed: Federation) -> State:
        """The state before the first round."""
        return State(server={"model": fed.fresh("model")})

    def phases(self, fed: Federation) -> list[Phase]:
        """The stretches of rounds, in order. Default: one."""
        return [Phase("train", self.round, self.train.rounds)]

    def down(self, fed: Federation, state: State) -> dict[str, Any]:
        """What is broadcast at the start of a round."""
        return {"model": state.server["model"]}

    def round(
        self, fed: Federation, state: State, among: Iterable[int] | None = None, **how: Any
    ) -> dict[str, float] | None:
        """Sample, fit, merge. among: clients to sample from; how: options of `fed.fit`. Returns what the round reports:
        name -> number.
        """
        who = fed.sample(state.round, among=among)
        who, ups = fed.fit(self, state, who, self.down(fed, state), **how)
        if who:  # nobody: no update was finite, of which the engine tells
            self.merge(fed, state, who, ups)
        return {"clients": len(who)}

    def weights(
        self, fed: Federation, state: State, who: list[int], ups: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        """Aggregation weights, not yet normalised. ups: what the clients sent, for methods that weigh by it."""
        return [float(fed.sizes[c]) if self.weighting == "samples" else 1.0 for c in who]

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        """Put the clients' answers into `state.server`. Default: the mean model, or a step of server_lr towards it."""
        new = weighted_mean([up["model"] for up in ups], self.weights(fed, state, who, ups))
        if self.server_lr != 1.0:  # statistics are averaged only: a longer step could make a variance negative
            old = state.server["model"].trained
            new.trained.copy_(old + (new.trained - old) * self.server_lr)
        state.server["model"] = new

    # what the engine asks

    def views(self, fed: Federation, state: State) -> Views:
        """Models to evaluate, by name; the first is the headline."""
        return {"global": [(SERVER, state.server["model"])]}

    def estimates(self, fed: Federation, state: State) -> dict[str, Any]:
        """What the method believes about the noise, for diagnostics (shapes: engine.truth.Truth.estimates)."""
        return {}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Client-side, at the end: P(given label is wrong), or any score by which labels are more suspect [n], and the
        proposed label [n]; None if the method knows no better than its headline model.

        Of the score the order counts: how many labels are wrong at a site is estimated from the headline model
        (`wrong_labels.judge`), for all methods on one scale.
        """
        return None

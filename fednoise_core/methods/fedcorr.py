"""FedCorr (Xu et al., CVPR 2022): find noisy clients by intrinsic dimension, correct labels, fine-tune on clean
clients, train on all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, Phase, State, Weights, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.methods.mixup import mixed
from fednoise_core.ops import losses
from fednoise_core.ops.stats import local_intrinsic_dim, p_wrong_by_confidence, two_groups
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class FedCorr(FedAvg):
    """FedCorr (Xu et al., CVPR 2022): find noisy clients by LID, correct labels, fine-tune on clean ones, train on all.

    Three stages. An iteration of the first costs 1/fraction rounds of work; the rest of the budget of
    `train.rounds` is split 53:47 into the others, unless tune_rounds and full_rounds give them.
    """

    wire: ClassVar = {"down": ("model", "level"), "up": ("model", "lid", "level", "changed")}

    beta: Annotated[float, Field(ge=0, description="Weight of the adaptive proximal term of stage 1.")] = 5.0
    k: Annotated[int, Field(ge=1, description="Neighbours of the local intrinsic dimension.")] = 20
    kappa: Annotated[
        float, Field(ge=0, le=1, description="Noise level up to which a client counts as clean in stage 2.")
    ] = 0.1
    relabel: Annotated[float, Field(ge=0, le=1, description="pi, share of the estimated wrong samples looked at.")] = (
        0.5
    )
    confidence: Annotated[float, Field(ge=0, le=1, description="theta, confidence needed to relabel.")] = 0.5
    mixup: Annotated[float, Field(ge=0, description="Beta parameter of mixup; 0 = off.")] = 1.0
    iterations: Annotated[int, Field(ge=0, description="T1; 0 = 5 for runs of at least 200 rounds, else 2.")] = 0
    tune_rounds: Annotated[
        Rounds, Field(description="T2, or its share of all; 0 = 53 % of the rounds left after stage 1.")
    ] = 0
    full_rounds: Annotated[Rounds, Field(description="T3, or its share of all; 0 = the rest.")] = 0
    group: Annotated[int, Field(ge=1, description="Clients trained between two averagings in stage 1.")] = 1
    lid_eps: Annotated[float, Field(ge=0, description="Constant of the code's LID; 0 = the paper's.")] = 1e-6

    draws = 2  # of mixup

    def stages(self, fed: Federation) -> tuple[int, int, int]:
        """T1, T2, T3 at the cost of `train.rounds` rounds."""
        rounds = self.train.rounds
        first = self.iterations or (5 if rounds >= 200 else 2)
        rest = max(2, rounds - round(first * len(fed.all) / fed.cohort))
        tune = resolve_rounds(rounds, self.tune_rounds) if self.tune_rounds else max(1, round(0.53 * rest))
        return first, tune, resolve_rounds(rounds, self.full_rounds) if self.full_rounds else max(1, rest - tune)

    def init(self, fed: Federation) -> State:
        state = super().init(fed)
        state.server["lid"] = torch.zeros(fed.n, dtype=torch.float64)  # accumulated over iterations
        state.notes["level"] = [0.0] * fed.n  # mu, each client's estimated share of wrong labels
        state.notes["noisy"] = []
        return state

    def phases(self, fed: Federation) -> list[Phase]:
        first, tune, full = self.stages(fed)
        return [
            Phase("find", self.find, first),
            Phase("tune", self.tune, first + tune),
            Phase("all", self.round, first + tune + full, enter=self.relabel_noisy),
        ]

    # stage 1

    def find(self, fed: Federation, state: State) -> dict[str, float]:
        """One iteration: everyone once, then tell noisy clients by their LID, and correct their worst labels."""
        level, answered = state.notes["level"], set()
        for number, who in enumerate(fed.sweep(state.round, self.group)):
            each = [{"level": torch.tensor(level[c])} for c in who]
            who, ups = fed.fit(self, state, who, self.down(fed, state), each=each, tag=f"find{number}")
            if not who:
                continue
            answered |= set(who)
            for c, up in zip(who, ups, strict=True):
                state.server["lid"][c] += up["lid"]
            self.merge(fed, state, who, ups)
        seed = fed.seed("noisy clients", state.round)
        noisy = two_groups(state.server["lid"][fed.all].cpu().numpy(), seed=seed) > 0.5
        found = [c for c, is_noisy in zip(fed.all, noisy, strict=True) if is_noisy and c in answered]
        state.notes["noisy"] = found
        said = fed.on_clients(state, found, self._correct_worst, self.down(fed, state))
        state.notes["level"] = [0.0] * fed.n
        for c, answer in zip(found, said, strict=True):
            state.notes["level"][c] = answer["level"]
        return {"clients": len(fed.all), "noisy_clients": len(found), "relabelled": sum(s["changed"] for s in said)}

    def after(self, me: Client, up: dict[str, Any], down: Mapping[str, Any]) -> dict[str, Any]:
        """Client-side, in stage 1: mean LID of the local model's outputs. Its losses stay, for `_correct_worst`."""
        if "level" not in down:
            return up
        logits = me.predict(up["model"])
        me.mine["loss"] = losses.ce(logits, me.targets)
        return {**up, "lid": float(local_intrinsic_dim(torch.softmax(logits.float(), -1), self.k, self.lid_eps).mean())}

    def _correct_worst(self, me: Client, down: Mapping[str, Any]) -> dict[str, float]:
        """Client-side, for a noisy client: its level is the share of samples in the high group of its local model's
        losses. Of the floor(n*level*relabel) samples with the largest loss, those that the global model is sure about
        get its label.
        """
        loss = me.mine["loss"]
        high = int((two_groups(loss.cpu().numpy(), seed=me.seed("losses")) > 0.5).sum())
        worst = torch.argsort(loss, descending=True, stable=True)[: math.floor(high * self.relabel + 1e-9)]
        return {"level": high / me.n, **self._relabel(me, me.predict(down["model"]), worst)}

    def _relabel(self, me: Client, logits: Tensor, among: Tensor) -> dict[str, int]:
        sure, guess = torch.softmax(logits.float(), -1).max(-1)
        among = among[sure[among] > self.confidence]
        targets = me.targets.clone()
        changed = int((targets[among] != guess[among]).sum())
        targets[among] = guess[among]
        if changed:
            me.targets = targets
        return {"changed": changed}

    # stages 2 and 3

    def tune(self, fed: Federation, state: State) -> dict[str, float] | None:
        """FedAvg on the clients that count as clean (all, if none does)."""
        clean = [c for c in fed.all if state.notes["level"][c] <= self.kappa]
        return self.round(fed, state, among=clean or None)

    def relabel_noisy(self, fed: Federation, state: State) -> None:
        """Before stage 3: noisy clients take the global model's label wherever it is sure."""
        fed.on_clients(state, state.notes["noisy"], self._correct_all, self.down(fed, state))

    def _correct_all(self, me: Client, down: Mapping[str, Any]) -> dict[str, int]:
        return self._relabel(me, me.predict(down["model"]), torch.arange(me.n, device=me.labels.device))

    # the step

    def objective(self, net: Net, w: Weights, batch: Batch, down: Mapping[str, Any], mine: Mapping[str, Any]) -> Tensor:
        """Mixup cross entropy; the proximal term of stage 1 acts in `correct`."""
        if self.mixup:
            return mixed(net, w, batch, self.loss, self.mixup)
        return self.loss(net.train(w, batch.x, batch.drop(net)), batch.y).mean()

    def correct(self, grad: Tensor, w: Weights, down: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        """In stage 1 the gradient of beta*mu*||theta - theta_g|| (not squared), the square root kept away from 0."""
        if "level" in down:
            away = w.trained.detach() - down["model"].trained
            grad.add_(away * (self.beta * down["level"] / (away.square().sum() + 1e-12).sqrt()))

    # what the engine asks

    def estimates(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"client_noise": {c: float(state.server["lid"][c]) for c in fed.all}} if state.round else {}

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Relabelled samples are wrong; others by how little the model believes in their label, below 1/2."""
        p, proposed = p_wrong_by_confidence(me.predict(down["model"]), me.labels)
        changed = me.targets != me.labels
        return (p + changed) / 2, torch.where(changed, me.targets, proposed)

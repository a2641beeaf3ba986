"""FedCorr (Xu et al., CVPR 2022).

It finds noisy clients by intrinsic dimension, corrects labels, fine-tunes on clean clients, and trains on all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, Phase, State, Weights, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.methods.mixup import mixup_loss
from fednoise_core.ops import losses
from fednoise_core.ops.stats import local_intrinsic_dim, p_wrong_by_confidence, two_groups
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class FedCorr(FedAvg):
    """FedCorr (Xu et al., CVPR 2022): find noisy clients by LID, correct labels, fine-tune on clean ones, train on all.

    There are three stages. An iteration of stage 1 costs 1/fraction rounds of work. The rest of the `train.rounds`
    rounds is split 53:47 between stages 2 and 3, unless tune_rounds and full_rounds are given.
    """

    family = "correction"
    wire: ClassVar = {"broadcast": ("model", "level"), "update": ("model", "lid", "level", "changed")}

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

    def split_rounds(self, fed: Federation) -> tuple[int, int, int]:
        """Split the run into its three stages, with the total work of `train.rounds` rounds of FedAvg.

        Returns:
            Number of iterations of stage 1 (T1), and numbers of rounds of stages 2 and 3 (T2, T3). All clients train
            once in an iteration.
        """
        rounds = self.train.rounds
        first = self.iterations or (5 if rounds >= 200 else 2)
        remaining = max(2, rounds - round(first * len(fed.all) / fed.cohort))
        tune = resolve_rounds(rounds, self.tune_rounds) if self.tune_rounds else max(1, round(0.53 * remaining))
        return first, tune, resolve_rounds(rounds, self.full_rounds) if self.full_rounds else max(1, remaining - tune)

    def init_state(self, fed: Federation) -> State:
        state = super().init_state(fed)
        state.server["lid"] = torch.zeros(fed.n, dtype=torch.float64)  # accumulated over iterations
        state.notes["level"] = [0.0] * fed.n  # mu, each client's estimated share of wrong labels
        state.notes["noisy"] = []
        return state

    def list_phases(self, fed: Federation) -> list[Phase]:
        first, tune, full = self.split_rounds(fed)
        return [
            Phase("find", self.find_noisy, first),
            Phase("tune", self.fine_tune, first + tune),
            Phase("all", self.run_round, first + tune + full, enter=self.relabel_noisy),
        ]

    # stage 1

    def find_noisy(self, fed: Federation, state: State) -> dict[str, float]:
        """Run one iteration of stage 1.

        All clients train once. Noisy clients are detected by their local intrinsic dimension (LID), and the worst
        labels of these clients are corrected.
        """
        level, answered = state.notes["level"], set()
        for number, clients in enumerate(fed.iterate_cohorts(state.round, self.group)):
            per_client = [{"level": torch.tensor(level[c])} for c in clients]
            clients, updates = fed.fit(
                self, state, clients, self.make_broadcast(fed, state), per_client=per_client, tag=f"find{number}"
            )
            if not clients:
                continue
            answered |= set(clients)
            for c, update in zip(clients, updates, strict=True):
                state.server["lid"][c] += update["lid"]
            self.merge_updates(fed, state, clients, updates)
        seed = fed.derive_seed("noisy clients", state.round)
        noisy = two_groups(state.server["lid"][fed.all].cpu().numpy(), seed=seed) > 0.5
        noisy_clients = [c for c, is_noisy in zip(fed.all, noisy, strict=True) if is_noisy and c in answered]
        state.notes["noisy"] = noisy_clients
        answers = fed.run_on_clients(state, noisy_clients, self._correct_worst, self.make_broadcast(fed, state))
        state.notes["level"] = [0.0] * fed.n
        for c, answer in zip(noisy_clients, answers, strict=True):
            state.notes["level"][c] = answer["level"]
        return {
            "clients": len(fed.all),
            "noisy_clients": len(noisy_clients),
            "relabelled": sum(one["changed"] for one in answers),
        }

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        """Measure the mean LID of the local model's outputs, in stage 1 only.

        The losses stay with the client, for the correction of its worst labels.
        In later stages the update is sent as it is.
        """
        if "level" not in broadcast:
            return update
        logits = client.predict(update["model"])
        client.state["loss"] = losses.ce(logits, client.targets)
        lid = local_intrinsic_dim(torch.softmax(logits.float(), -1), self.k, self.lid_eps)
        return {**update, "lid": float(lid.mean())}

    def _correct_worst(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, float]:
        """Correct the worst labels of a noisy client, on the client.

        Its noise level is the share of samples in the high group of its local model's losses. Among the floor(n * level
        * relabel) samples with the largest loss, those with a confident prediction of the global model get its label.
        """
        loss = client.state["loss"]
        high = int((two_groups(loss.cpu().numpy(), seed=client.derive_seed("losses")) > 0.5).sum())
        worst = torch.argsort(loss, descending=True, stable=True)[: math.floor(high * self.relabel + 1e-9)]
        return {"level": high / client.n, **self._relabel_samples(client, client.predict(broadcast["model"]), worst)}

    def _relabel_samples(self, client: Client, logits: Tensor, candidates: Tensor) -> dict[str, int]:
        sure, guess = torch.softmax(logits.float(), -1).max(-1)
        candidates = candidates[sure[candidates] > self.confidence]
        targets = client.targets.clone()
        changed = int((targets[candidates] != guess[candidates]).sum())
        targets[candidates] = guess[candidates]
        if changed:
            client.targets = targets
        return {"changed": changed}

    # stages 2 and 3

    def fine_tune(self, fed: Federation, state: State) -> dict[str, float] | None:
        """Run a round of FedAvg on the clients that count as clean.

        These are the clients whose noise level is at most `kappa`.
        All clients take part if none counts as clean.
        """
        clean = [c for c in fed.all if state.notes["level"][c] <= self.kappa]
        return self.run_round(fed, state, candidates=clean or None)

    def relabel_noisy(self, fed: Federation, state: State) -> None:
        """Relabel the samples of noisy clients, once before stage 3.

        Samples with a confident prediction of the global model get the predicted label.
        This changes targets, not the given labels.
        """
        fed.run_on_clients(state, state.notes["noisy"], self._correct_all, self.make_broadcast(fed, state))

    def _correct_all(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, int]:
        return self._relabel_samples(
            client, client.predict(broadcast["model"]), torch.arange(client.n, device=client.labels.device)
        )

    # the step

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the mixup cross entropy. The proximal term of stage 1 is added in `correct_gradient`."""
        if self.mixup:
            return mixup_loss(net, w, batch, self.compute_loss, self.mixup)
        return self.compute_loss(net.train(w, batch.x, batch.drop(net)), batch.y).mean()

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        """In stage 1, add the gradient of beta*mu*||theta - theta_g|| (not squared). The norm is kept away from 0."""
        if "level" in broadcast:
            away = w.trained.detach() - broadcast["model"].trained
            grad.add_(away * (self.beta * broadcast["level"] / (away.square().sum() + 1e-12).sqrt()))

    # what the engine asks

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        return {"client_noise": {c: float(state.server["lid"][c]) for c in fed.all}} if state.round else {}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score relabelled samples as wrong.

        Other samples have scores below 1/2, given by the model's confidence in their label.
        The proposed label is the new target, or the model's prediction.
        """
        p, proposed = p_wrong_by_confidence(client.predict(broadcast["model"]), client.labels)
        changed = client.targets != client.labels
        return (p + changed) / 2, torch.where(changed, client.targets, proposed)

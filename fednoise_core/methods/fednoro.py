"""FedNoRo (Wu et al., IJCAI 2023).

It finds noisy clients by their losses per class. Noisy clients also learn from the broadcast model. Their weight is
smaller if their models are farther from those of clean clients.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, Phase, State, Weights, Work, resolve_rounds
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses
from fednoise_core.ops.stats import majority_group
from fednoise_core.settings.declare import Rounds, Share

SPLITS = 9  # seeds of the mixture
LARGEST = 3e38  # stands for a loss that overflowed


def scale_losses(rows: np.ndarray) -> np.ndarray:
    """Scale the clients' losses per class [n, K] to 0..1 over the clients (0 if all are equal).

    NaN, for a class that the client lacks, is replaced by the smallest loss of the class. Classes without clients are
    left out, so there may be fewer columns.
    """
    measured = rows[:, ~np.isnan(rows).all(0)]
    low, high = np.nanmin(measured, 0), np.nanmax(measured, 0)
    return np.nan_to_num((measured - low) / np.where(high > low, high - low, 1.0), nan=0.0)


def adjusted_kl(teacher: Tensor, adjusted: Tensor, log_prior: Tensor) -> Tensor:
    """Compute the KL divergence from the teacher's probabilities to softmax(adjusted).

    The sum goes over the classes that the client has, so that logits of the others get no gradient.

    Args:
        teacher: Probabilities [B, K].
        adjusted: Logits [B, K] plus `log_prior`.
        log_prior: [K], -inf for a class that the client lacks.

    Returns:
        [B].
    """
    log_p = losses.log_probs(adjusted).masked_fill(log_prior.isinf(), 0.0)
    return torch.xlogy(teacher, teacher).sum(-1) - (teacher * log_p).sum(-1)


def measure_distances(models: Sequence[Weights], noisy: Sequence[bool]) -> list[float]:
    """Measure the distances of the noisy clients' models to the clean clients' models.

    The distance of two models is the sum of the norms of the differences of all tensors, including running statistics.

    Returns:
        D in 0..1 for each model. It is 0 for clean clients. For noisy clients it is the distance to the nearest model
        of a clean client, divided by the largest such distance. All are 0 if no client is clean.
    """
    clean = [model for model, bad in zip(models, noisy, strict=True) if not bad]
    if not clean:
        return [0.0] * len(models)
    far = [
        min(_measure_distance(w, clean_model) for clean_model in clean) if bad else 0.0
        for w, bad in zip(models, noisy, strict=True)
    ]
    return [d / max(far) if d else 0.0 for d in far]


def _measure_distance(a: Weights, b: Weights) -> float:
    return float(torch.stack([(tensor - b[name]).norm() for name, tensor in a.views.items()]).sum())


@dataclass(frozen=True, kw_only=True)
class FedNoRo(FedAvg):
    """FedNoRo (Wu et al., IJCAI 2023): find noisy clients by losses per class, distil on them, weigh them by distance.

    After a warm-up with logit-adjusted cross entropy, a mixture model of the clients' losses per class finds the noisy
    clients. Their loss has a distillation term with the broadcast model as teacher. Their weight is smaller if they are
    farther from clean clients.
    """

    family = "selection"
    example: ClassVar = {"teacher": 0.8}
    answers_nan = True  # losses of classes that a client lacks
    wire: ClassVar = {"broadcast": ("model", "noisy"), "update": ("model", "losses")}

    warmup: Annotated[
        Rounds,
        Field(description="s_1, rounds before noisy clients are looked for, or their share; 0 = a tenth of all."),
    ] = 0
    ramp_to: Annotated[
        Rounds,
        Field(
            description="t_e, rounds after which the teacher's weight is full, or their share; at once if not after "
            "warmup; 0 = half of all."
        ),
    ] = 0
    teacher: Annotated[Share, Field(description="a, full weight of the teacher on noisy clients.")] = 0.8
    temperature: Annotated[float, Field(gt=0, description="Of the teacher's softmax.")] = 0.8

    second = "distil"  # the name of the phase after the warm-up

    @property
    def warm_rounds(self) -> int:
        return min(resolve_rounds(self.train.rounds, self.warmup or 0.1), self.train.rounds)

    # the server's side

    def list_phases(self, fed: Federation) -> list[Phase]:
        second = Phase(self.second, self.run_round, self.train.rounds, enter=self.detect_noisy)
        return [Phase("warm-up", self.run_round, self.warm_rounds), second]

    def detect_noisy(self, fed: Federation, state: State) -> None:
        """Find the noisy clients, once.

        A mixture model splits the clients into two groups by their losses per class. The group of larger losses is
        noisy. The split is a majority vote over several seeds.
        """
        answers = fed.run_on_clients(state, fed.all, self._class_losses, self.make_broadcast(fed, state))
        points = scale_losses(np.stack([answer["losses"].cpu().numpy() for answer in answers]))
        seeds = [fed.derive_seed("noisy clients", k, state.round) for k in range(SPLITS)]
        state.notes["noisy"] = [c for c, high in zip(fed.all, majority_group(points, seeds), strict=True) if high]

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        noisy = state.notes.get("noisy")
        if noisy is None:
            return super().run_round(fed, state, candidates, **fit_options)
        clients = fed.sample_cohort(state.round, candidates=candidates)
        per_client = [{"noisy": True} if c in noisy else {} for c in clients]
        report = super().run_round(fed, state, candidates, per_client=per_client, **fit_options) or {}
        return {**report, "noisy_clients": sum(c in noisy for c in clients)}

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        """Weigh updates as FedAvg does, times e^-D after the warm-up.

        D is the distance to the nearest clean client's model (`measure_distances`).
        """
        plain, noisy = super().weigh_updates(fed, state, clients, updates), state.notes.get("noisy", [])
        far = measure_distances([update["model"] for update in updates], [c in noisy for c in clients])
        return [weight * math.exp(-d) for weight, d in zip(plain, far, strict=True)]

    def teacher_weight(self, round: int) -> float:
        """Compute the teacher's weight w_t = a exp(-5 (1 - x)^2).

        x rises from 0 to 1 between warm-up and ramp_to.

        Args:
            round: From 1.
        """
        start, end = self.warm_rounds, resolve_rounds(self.train.rounds, self.ramp_to or 0.5)
        x = (round - 1 - start) / (end - start) if end > start else 1.0  # the paper counts rounds from 0
        return self.teacher * math.exp(-5 * (1 - min(max(x, 0.0), 1.0)) ** 2)

    # the client's side

    def _class_losses(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
        """Measure the mean loss [K] of the model per given label, on the client, with logits not adjusted.

        It is NaN (0/0) for a class that the client lacks.
        """
        loss = (
            losses.ce(client.predict(broadcast["model"]), client.labels)
            .double()
            .nan_to_num(nan=LARGEST, posinf=LARGEST)
        )
        one_hot = torch.nn.functional.one_hot(client.labels, client.classes).double()
        return {"losses": ((one_hot.T @ loss) / one_hot.sum(0)).float()}

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Prepare the log of the client's label shares [K] (-inf for a class that it lacks) and the teacher weight."""
        share = torch.bincount(client.labels, minlength=client.classes) / max(client.n, 1)
        weight = {"teacher_weight": self.teacher_weight(client.round)} if "noisy" in broadcast else {}
        return Work(facts={"log_prior": share.log(), **weight})

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the logit-adjusted cross entropy, on noisy clients mixed with the divergence from the teacher."""
        adjusted = net.train(w, batch.x, batch.drop(net)).float() + client_state["log_prior"]
        label_loss = losses.mean_ce(adjusted, batch.y)
        if "noisy" not in broadcast:
            return label_loss
        with torch.no_grad():
            seen = net.predict(broadcast["model"], batch.x, batch.drop(net)).float()
        kl = adjusted_kl(torch.softmax(seen / self.temperature, -1), adjusted, client_state["log_prior"]).mean()
        return client_state["teacher_weight"] * kl + (1 - client_state["teacher_weight"]) * label_loss

    # what the engine asks

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        if "noisy" not in state.notes:
            return {}
        return {"client_noise": {c: float(c in state.notes["noisy"]) for c in fed.all}}

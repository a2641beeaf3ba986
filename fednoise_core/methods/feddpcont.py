"""FedDPCont (Di et al., 2024): contrastive labels, drawn from a global distribution that is shared under label-DP."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, Phase, State, Weights, Work, resolve_rounds
from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import label_dp, losses
from fednoise_core.settings.declare import Rounds


@dataclass(frozen=True, kw_only=True)
class FedDPCont(FedAvg):
    """FedDPCont (Di et al., 2024): contrastive labels from a global distribution shared under label-DP.

    CE(z, y) - beta*CE(z, y'), y' drawn from the debiased global histogram of randomised labels.
    With a schedule of beta, the metric `beta` is its value in each round, and the phases are plain, rise and contrast.
    """

    family = "transition"
    example: ClassVar = {"keep": 0.2}
    above_chance: ClassVar = {"keep": "epsilon"}
    wire: ClassVar = {"broadcast": ("model", "epsilon?", "prior"), "update": ("model", "counts")}

    draw: Annotated[
        Literal["global", "local", "uniform"],
        Field(
            description="Source of contrastive labels. global: all clients' labels, by `release`. local: the client's "
            "own labels (the control in section 8.3). uniform: all classes equally. The last two send nothing."
        ),
    ] = "global"
    dp: Annotated[
        Literal["rr", "none"], Field(description="rr: randomised response; none: the exact histogram, no privacy.")
    ] = "rr"
    release: Annotated[
        Literal["once", "every_round"],
        Field(
            description="once: before the first round. every_round: all clients at the start of each of the R rounds, "
            "which costs R·epsilon in total."
        ),
    ] = "once"
    debias: Annotated[
        bool,
        Field(
            description="Debias by the inverse of T_DP; false: draw from the distribution of released labels without "
            "debiasing."
        ),
    ] = True
    keep: Annotated[float, Field(gt=0, lt=1, description="p, probability to report the true label, above 1/K.")] = 0.2
    epsilon: Annotated[float | None, Field(gt=0, description="Label-DP budget of a release; overrides keep.")] = None
    beta: Annotated[
        float | None,
        Field(ge=0, description="Weight of the contrast, at the end of the schedule; null: 1, or 2 with cores."),
    ] = None
    beta_schedule: Annotated[
        Literal["none", "cores"],
        Field(description="cores: weight 0 at first, then a linear rise to beta, as in CORES."),
    ] = "none"
    beta_start: Annotated[
        Rounds,
        Field(
            description="Rounds of weight 0 under the schedule, or their share; 0 = a tenth of all (CORES: 10 of 100)."
        ),
    ] = 0
    beta_rise: Annotated[
        Rounds,
        Field(
            description="Rounds of the rise from 0 to beta, or their share; 0 = three tenths of all (CORES: 30 of 100)."
        ),
    ] = 0
    beta_lr: Annotated[bool, Field(description="Divide the learning rate by 1 + beta of the round, as CORES does.")] = (
        False
    )
    mode: Annotated[
        Literal["sample", "expect"],
        Field(description="A fresh contrastive label per step (Eq. 2), or its expectation (Eq. 4)."),
    ] = "sample"
    neg_log_floor: Annotated[
        float, Field(ge=0, description="Upper bound of the negative term, -log 1e-8; 0 = unbounded.")
    ] = losses.CONTRAST_FLOOR

    draws = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        randomised = self.draw == "global" and self.dp == "rr"
        for key, is_set in (("epsilon", self.epsilon is not None), ("release", self.release == "every_round")):
            if is_set and not randomised:
                setting = f"draw {self.draw!r} and dp {self.dp!r}"
                raise SpecError(f"method.{key}: with {setting} no randomised label is released: leave it out")

    # the exchange of labels

    def init_state(self, fed: Federation) -> State:
        """Release the labels, if one release serves the whole run.

        The result is part of the state, so a resumed run does not draw again.
        Without a global distribution each client uses its own prior, and nothing is released.
        """
        state = super().init_state(fed)
        if self.draw != "global":
            fed.run_on_clients(state, fed.all, self._choose_prior)
        elif self.release == "once":
            self._share_prior(fed, state)
        return state

    def _share_prior(self, fed: Federation, state: State) -> None:
        """Collect the distribution of all clients' labels, and send it to all clients."""
        prior = torch.as_tensor(self._collect_prior(fed, state)).to(state.server["model"].flat)  # its type and device
        state.server["prior"] = prior
        fed.run_on_clients(state, fed.all, self._keep_prior, {"prior": prior})

    def _collect_prior(self, fed: Federation, state: State) -> np.ndarray:
        """Estimate the distribution [K] of all clients' labels from their releases or exact counts."""
        if self.dp == "none":
            counts = np.sum(
                [s["counts"].numpy() for s in fed.run_on_clients(state, fed.all, self._count_labels)], axis=0
            )
            return counts / counts.sum()
        epsilon, rounds = self.plan_release(fed.classes)
        release = fed.release_labels(state, epsilon, len(rounds))
        return release.estimate_prior() if self.debias else release.released_shares()

    def plan_release(self, classes: int) -> tuple[float, range]:
        """Plan the releases of randomised labels. A site of a real federation refuses any other release.

        Returns:
            Budget of one release, and the rounds with a release. 0 is before the first round.
        """
        if self.draw != "global" or self.dp == "none":
            return 0.0, range(0)
        rounds = range(1, self.train.rounds + 1) if self.release == "every_round" else range(1)
        return self.epsilon or label_dp.epsilon_of(self.keep, classes), rounds

    def _choose_prior(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        """Client-side code: set the prior to the distribution of the client's own labels, or to the uniform one."""
        labels = client.labels.cpu() if self.draw == "local" else torch.arange(client.classes)
        counts = torch.bincount(labels, minlength=client.classes).float()
        client.state["prior"] = (counts / counts.sum()).to(client.labels.device)

    def _keep_prior(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        """Client-side code: store the prior."""
        client.state["prior"] = broadcast["prior"]

    def _count_labels(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
        if self.draw != "global" or self.dp != "none":
            raise SpecError("method.dp: the exact histogram is sent with dp none only")
        return {"counts": torch.bincount(client.labels.cpu(), minlength=client.classes)}

    # the weight of the contrast

    def list_phases(self, fed: Federation) -> list[Phase]:
        if self.beta_schedule == "none":
            return super().list_phases(fed)
        rounds, (start, rise) = self.train.rounds, self._split_rounds()
        ends = {"plain": start, "rise": start + rise, "contrast": rounds}
        return [Phase(name, self.run_round, min(end, rounds)) for name, end in ends.items()]

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        if self.release == "every_round":
            self._share_prior(fed, state)
        beta = self.weight(state.round)
        if self.beta_lr:
            fit_options = {"lr": self.train.lr / (1 + beta), **fit_options}
        report = super().run_round(fed, state, candidates, **fit_options) or {}
        return report if self.beta_schedule == "none" else {**report, "beta": beta}

    def weight(self, round: int) -> float:
        """Compute beta of a round, counted from 1.

        cores: 0 in the first rounds, then evenly spaced from 0 to the last value, both included, like the linspace in
        CORES (Cheng et al., ICLR 2021).
        """
        if self.beta_schedule == "none":
            return 1.0 if self.beta is None else self.beta
        last, (start, rise) = 2.0 if self.beta is None else self.beta, self._split_rounds()
        return 0.0 if round <= start else last * min((round - start - 1) / max(rise - 1, 1), 1.0)

    def _split_rounds(self) -> tuple[int, int]:
        """Compute the number of rounds of weight 0, and the number of rounds of the rise."""
        rounds = self.train.rounds
        return resolve_rounds(rounds, self.beta_start or 0.1), resolve_rounds(rounds, self.beta_rise or 0.3)

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Compute the weight of the round. It is not sent, because every client knows the schedule."""
        return None if self.beta_schedule == "none" else Work(facts={"beta": self.weight(client.round)})

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        logits = net.train(w, batch.x, batch.drop(net))
        beta = client_state["beta"] if "beta" in client_state else self.weight(0)
        return (losses.ce(logits, batch.y) - beta * self._contrast_loss(logits, batch.u, client_state["prior"])).mean()

    def _contrast_loss(self, logits: Tensor, u: Tensor, prior: Tensor) -> Tensor:
        """Compute CE [B] with a drawn label, or its expectation, bounded for each class."""
        limit = self.neg_log_floor or float("inf")
        if self.mode == "expect":
            return losses.matmul_full_precision((-losses.log_probs(logits)).clamp_max(limit), prior)
        # cumsum is not deterministic on a GPU
        up_to = losses.matmul_full_precision(prior, prior.new_ones(len(prior), len(prior)).triu())
        drawn = (u[:, :1] >= up_to).sum(-1).clamp_max(len(prior) - 1)  # inverse of the cumulative distribution
        return losses.ce(logits, drawn).clamp_max(limit)

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        if self.draw == "local" or (self.release == "every_round" and "prior" not in state.server):
            return {}  # there is no global distribution, or not yet
        return {"label_prior": state.server.get("prior", torch.full((fed.classes,), 1 / fed.classes))}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by their peer loss, which compares them with labels from the shared prior.

        Labels with a positive peer loss are suspect, as in the sieve of CORES² (Cheng et al., 2021). P(wrong) is the
        logistic function of the expected peer loss.
        """
        logits = client.predict(broadcast["model"])
        per_class = -losses.log_probs(logits)
        peer = losses.ce(logits, client.labels) - per_class @ client.state["prior"]
        return torch.sigmoid(peer), logits.argmax(1)

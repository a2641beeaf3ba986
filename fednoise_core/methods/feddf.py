"""FedDF (Lin et al., NeurIPS 2020).

The server averages models of one architecture, then distils the ensemble of all received models into them on public
images.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import SERVER, EvaluatedModels, Federation, Local, Optimiser, State, Train, weighted_mean
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses, optim


def group_architectures(fed: Federation) -> dict[int, int]:
    """Group the clients by architecture.

    Returns:
        Client with samples -> first client with the same architecture, whose number identifies the architecture.
    """
    first: dict[Any, int] = {}
    return {c: first.setdefault((fed.net(c).name, fed.net(c).layout), c) for c in fed.all}


@dataclass(frozen=True)
class Distil(Local):
    """Move a model towards given logits on public images: tau² KL(softmax(z/tau)||softmax(student/tau))."""

    train: Train
    rule: Optimiser
    temperature: float

    def get_augmentations(self) -> list[Any]:
        return ["none"]  # the ensemble's logits are computed from images without augmentation

    def make_optimiser(self, name: str) -> Optimiser:
        return self.rule

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        q = torch.softmax(y.float() / self.temperature, -1)
        kl = losses.ce(logits / self.temperature, q) - losses.ce(y / self.temperature, q)
        return self.temperature**2 * kl


@dataclass(frozen=True, kw_only=True)
class FedDF(FedAvg):
    """FedDF (Lin et al., NeurIPS 2020): one average per architecture, taught by the ensemble on public images.

    In a round the server averages the received models of each architecture, and trains each average towards the mean
    logits of all received models, of whatever architecture.
    """

    example: ClassVar = {"distil_epochs": 1}
    needs_public = True
    several_nets = True
    excluded_settings = ("server_lr",)  # the average is where distillation starts

    public: Annotated[int, Field(ge=0, description="Public images per round; 0 = all.")] = 0
    distil_epochs: Annotated[
        int, Field(ge=0, description="Passes over them in a round; 0 = FedAvg for each architecture.")
    ] = 1
    distil_batch: Annotated[int, Field(ge=1, description="Public images in a step of distillation.")] = 256
    distil_lr: Annotated[float, Field(ge=0, description="Learning rate of distillation.")] = 1e-3
    distil_optimiser: Annotated[
        Literal["adam", "sgd"], Field(description="Optimiser of distillation, fresh in every round.")
    ] = "adam"
    schedule: Annotated[
        Literal["cosine", "constant"],
        Field(description="Of distil_lr over a round's steps: half a cosine wave down to 0, or constant."),
    ] = "cosine"
    temperature: Annotated[float, Field(gt=0, description="tau, of both softmaxes.")] = 1.0
    distil_clip: Annotated[float, Field(ge=0, description="Largest gradient norm of distillation; 0 = off.")] = 5.0

    def init_state(self, fed: Federation) -> State:
        firsts = dict.fromkeys(group_architectures(fed).values())
        return State(server={"models": {c: fed.init_weights("model", client=c) for c in firsts}})

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        """Return no common entries, because each client gets the model of its architecture."""
        return {}

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        clients, kind = fed.sample_cohort(state.round, candidates=candidates), group_architectures(fed)
        per_client = [{"model": state.server["models"][kind[c]]} for c in clients]
        return super().run_round(fed, state, candidates, per_client=per_client, **fit_options)

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        """Average the received models of each architecture, and distil the ensemble into the averages.

        Models of architectures without an update do not change.
        Without distillation this is FedAvg for each architecture.
        """
        kind, sent = group_architectures(fed), dict(zip(clients, updates, strict=True))
        students = {}
        for first in dict.fromkeys(kind[c] for c in clients):
            group = [c for c in clients if kind[c] == first]
            received = [sent[c] for c in group]
            students[first] = weighted_mean(
                [update["model"] for update in received], self.weigh_updates(fed, state, group, received)
            )
        if self.distil_epochs:
            self._distil_students(fed, state, clients, updates, students)
        state.server["models"] = {**state.server["models"], **students}

    def _distil_students(
        self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]], students: dict[int, Any]
    ) -> None:
        """Train the students on public images towards the mean logits of all received models.

        They stay as they are if logits overflow, which the evaluation will show.
        """
        ids = fed.draw_public_ids(state.round, "distillation", self.public)
        logits = [
            fed.predict(update["model"], ids=ids, net=fed.net(c)) for c, update in zip(clients, updates, strict=True)
        ]
        teacher = torch.stack(logits).mean(0)
        if not torch.isfinite(teacher).all():
            return
        rule = optim.make_optimiser(self.distil_optimiser, clip=self.distil_clip)
        _, taught = fed.fit(
            Distil(self.train, rule, self.temperature),
            state,
            [SERVER] * len(students),
            {},
            per_client=[{"model": student} for student in students.values()],
            epochs=self.distil_epochs,
            batch=self.distil_batch,
            lr=self.rate if self.schedule == "cosine" else self.distil_lr,
            on="public",
            ids=ids,
            targets=teacher,
            nets=list(students),
            tag="distil",
        )
        students.update((first, update["model"]) for first, update in zip(list(students), taught, strict=True))

    def rate(self, step: int, steps: int) -> float:
        """Compute the learning rate of a step of distillation: a cosine from `distil_lr` to 0.

        Args:
            step: Counted from 0.
            steps: Steps of the whole distillation.
        """
        return self.distil_lr * (1 + math.cos(math.pi * step / steps)) / 2

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the common model, or for each client the model of its architecture."""
        kind, models = group_architectures(fed), state.server["models"]
        if len(models) == 1:
            return {"global": [(SERVER, model) for model in models.values()]}
        return {"personal": [(c, models[kind[c]]) for c in fed.all]}

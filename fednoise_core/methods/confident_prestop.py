"""Confident learning after a prestop (baseline of Yu et al., 2025): clients remove labels that cleanlab rejects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, State, Weights, Work
from fednoise_core.methods.prestop import Prestop
from fednoise_core.ops import losses
from fednoise_core.ops.stats import confident_counts, label_issues, need_cleanlab, p_wrong_by_confidence


@dataclass(frozen=True, kw_only=True)
class ConfidentPrestop(Prestop):
    """Confident learning after a prestop (Northcutt et al., JAIR 2021; baseline of Yu et al., 2025).

    It is FedAvg until accuracy stops rising. Then, in every round, a client prunes its original data with the broadcast
    model and cleanlab (filter_by="both"), and trains on the rest. Its merge weight is the number of remaining samples.
    """

    wire: ClassVar = {"broadcast": ("model", "stopped"), "update": ("model", "accuracy", "kept")}
    second = "pruned"

    def init_state(self, fed: Federation) -> State:
        need_cleanlab()  # checked before the first round, not only after the prestop
        return super().init_state(fed)

    def _find_issues(self, client: Client, w: Weights) -> Tensor:
        """Mask [n] of labels to prune.

        A joint of fewer than three different numbers prunes nothing, as in the code of Yu et al. (2025).
        """
        p = losses.log_probs(client.predict(w)).exp()
        if len(confident_counts(p, client.labels).unique()) < 3:
            return torch.zeros_like(client.labels, dtype=torch.bool)
        return label_issues(p, client.labels)

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        if "stopped" not in broadcast:
            return None
        samples = (~self._find_issues(client, broadcast["model"])).nonzero().squeeze(1)
        client.state["kept"] = samples
        return Work(samples=samples)

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        update = super().after_fit(client, update, broadcast)
        return {**update, "kept": len(client.state["kept"])} if "stopped" in broadcast else update

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        if self.weighting == "samples" and updates and "kept" in updates[0]:
            return [float(update["kept"]) for update in updates]
        return super().weigh_updates(fed, state, clients, updates)

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the pruning with the final model.

        Pruned labels have scores above 1/2. Within both groups, the score is higher if the model's confidence in the
        label is lower. None if the prestop rule never ended phase 1.
        """
        if "stopped" not in broadcast:
            return None
        p, proposed = p_wrong_by_confidence(client.predict(broadcast["model"]), client.labels)
        return (p + self._find_issues(client, broadcast["model"])) / 2, proposed

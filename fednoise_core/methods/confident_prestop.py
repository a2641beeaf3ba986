"""Confident learning after a prestop (baseline of Yu et al., 2025): clients leave out what cleanlab holds for wrong."""

from __future__ import annotations

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

    FedAvg until accuracy stops rising; then, in every round, a client prunes its original data by the broadcast model
    and cleanlab (filter_by="both"), trains on what is left, and counts by the number of samples kept.
    """

    wire: ClassVar = {"down": ("model", "stopped"), "up": ("model", "accuracy", "kept")}
    second = "pruned"

    def init(self, fed: Federation) -> State:
        need_cleanlab()  # said before the first round, not after the prestop
        return super().init(fed)

    def _issues(self, me: Client, w: Weights) -> Tensor:
        """Mask [n]. A joint of fewer than three different numbers says nothing, as in 002's code."""
        p = losses.log_probs(me.predict(w)).exp()
        if len(confident_counts(p, me.labels).unique()) < 3:
            return torch.zeros_like(me.labels, dtype=torch.bool)
        return label_issues(p, me.labels)

    def prepare(self, me: Client, down: Mapping[str, Any]) -> Work | None:
        if "stopped" not in down:
            return None
        kept = (~self._issues(me, down["model"])).nonzero().squeeze(1)
        me.mine["kept"] = kept
        return Work(samples=kept)

    def after(self, me: Client, up: dict[str, Any], down: Mapping[str, Any]) -> dict[str, Any]:
        up = super().after(me, up, down)
        return {**up, "kept": len(me.mine["kept"])} if "stopped" in down else up

    def weights(
        self, fed: Federation, state: State, who: list[int], ups: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        if self.weighting == "samples" and ups and "kept" in ups[0]:
            return [float(up["kept"]) for up in ups]
        return super().weights(fed, state, who, ups)

    def suspects(self, me: Client, down: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """What the final model prunes lies above 1/2; within both groups by how little it believes in the label."""
        if "stopped" not in down:
            return None
        p, proposed = p_wrong_by_confidence(me.predict(down["model"]), me.labels)
        return (p + self._issues(me, down["model"])) / 2, proposed

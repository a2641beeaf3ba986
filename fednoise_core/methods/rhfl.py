"""RHFL (Fang and Ye, CVPR 2022): heterogeneous clients with noisy labels teach each other on public images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fednoise_core.methods.mutual import Mutual

__all__ = ["RHFL"]


@dataclass(frozen=True, kw_only=True)
class RHFL(Mutual):
    """RHFL (Fang and Ye, CVPR 2022): clients of any architecture teach each other on public images.

    Pre-train; then, each round: weights from the fall of each client's symmetric cross entropy, one pass over public
    images towards the weighed outputs of the others, training on one's own data (methods.md 5.18).
    """

    example: ClassVar = {"pretrain": 5}
    wire: ClassVar = {"down": ("ids", "others", "weight"), "up": ("loss", "log_p")}
    # switches of the ablation in paper 003, and its open question
    without = ("hma", "cl", "cws", "cws_target", "pretrain_loss")  # type: ignore[assignment]

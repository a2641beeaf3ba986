"""FedHNL: model alignment, combinational loss and client weighting (paper 003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fednoise_core.methods.mutual import Mutual

__all__ = ["FedHNL"]


@dataclass(frozen=True, kw_only=True)
class FedHNL(Mutual):
    """FedHNL (paper 003): RHFL's alignment on public images, with a switch for each of its three parts.

    hma aligns models of any architecture, cl is the robust loss on one's own data, cws weighs who teaches whom
    (methods.md 5.24). All off is local-only training.
    """

    example: ClassVar = {"pretrain": 5}
    wire: ClassVar = {"down": ("ids?", "others?", "weight?"), "up": ("loss?", "log_p?")}  # its switches decide
    # RHFL's and RHFL+'s
    without = ("rce_weight", "confidence_ce", "confidence_rce", "normalise")  # type: ignore[assignment]

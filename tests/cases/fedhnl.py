"""FedHNL on the toy world: all three parts."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"pretrain": 2, "public_batch": 4}


def traffic(run: Any) -> list[tuple[int, int]]:
    """Of each of 10 images 5 mixed probabilities down, 5 log-probabilities up, and a loss."""
    return [(0, 0)] * 2 + [(4 * 10 * 5 * 4, 4 * (8 + 10 * 5 * 4))] * 3

"""RHFL on the toy world: a subset of the public images, the direction that needs most, and all of RHFL+'s options."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {
    "pretrain": 2,
    "public": 6,
    "public_batch": 4,
    "kl": "reverse",
    "denominator": "abs",
    "normalise": "sum",
    "confidence_ce": 0.4,
    "confidence_rce": 0.9,
    "fresh_optimizer_per_batch": True,
}


def traffic(run: Any) -> list[tuple[int, int]]:
    """Down: which 6 images; then, for each, the others' 5 log-probabilities mixed, and with each of 2 batches the
    weight of them. Up: a loss, and 5 log-probabilities of each image.
    """
    return [(0, 0)] * 2 + [(4 * (6 * 8 + 6 * 5 * 4 + 2 * 4), 4 * (8 + 6 * 5 * 4))] * 3

"""RoFL on the toy world: features pulled from the second round on, labels replaced in the third."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"forget_rate": 0.4, "ramp": 2, "label_rounds": 2, "centroid": 0.1, "entropy": 0.1}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(0, 0)] + [(4 * (MODEL + 4 * 5 * 6),) * 2] * 3  # and 5 centroids of 6 features

"""RoFL on the toy world: labels are replaced and features pulled from the second round on."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"forget_rate": 0.4, "ramp": 2, "label_rounds": 1}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(0, 0)] + [(4 * (MODEL + 4 * 5 * 6),) * 2] * 3  # and 5 centroids of 6 features

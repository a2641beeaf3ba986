"""FedFixer on the toy world: one round on all samples, two on chosen ones."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"warmup": 1, "strength": 0.1, "confidence": 0.2}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(0, 0)] + [(4 * MODEL, 4 * MODEL)] * 3

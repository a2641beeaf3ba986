"""FedLSR on the toy world: the weight of the agreement rises from 0 over half to all."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"ramp": 2}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(0, 0)] + [(4 * (MODEL + 8), 4 * MODEL)] * 3  # and how far the ramp is

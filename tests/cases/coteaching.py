"""Co-teaching on the toy world."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"forget_rate": 0.4, "ramp": 2}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(0, 0)] + [(4 * (2 * MODEL + 8), 8 * MODEL)] * 3  # and the share to keep

"""Local-only training on the toy world."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"pretrain": 2}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(0, 0)] * 5

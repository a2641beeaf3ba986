"""FedDPCont on the toy world."""

from __future__ import annotations

from typing import Any

from cases import MODEL

NEEDED = {"mode": "expect"}  # with which each field alone may take any value
FIELDS: dict[str, Any] = {"keep": 0.6}


def traffic(run: Any) -> list[tuple[int, int]]:
    return [(7 * (8 + 5 * 4), 7 * 5 * 8)] + [(4 * MODEL, 4 * MODEL)] * 3  # once epsilon, a histogram and the prior

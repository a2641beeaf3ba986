"""FedEFC on the toy world: stopped after the second round, corrected in the third."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"latest": 2}


def traffic(run: Any) -> list[tuple[int, int]]:
    assert run.summary["notes"]["prestop"]["round"] == 2
    first = (4 * MODEL, 4 * (MODEL + 4))  # and the accuracy
    return [(0, 0), first, first, (4 * (MODEL + 8), 4 * MODEL)]  # and that phase 1 is over

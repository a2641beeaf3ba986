"""FedCorr on the toy world."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"iterations": 1, "tune_rounds": 1, "full_rounds": 1, "relabel": 1.0, "confidence": 0.25}


def traffic(run: Any) -> list[tuple[int, int]]:
    noisy = len(run.summary["notes"]["noisy"])
    clean = sum(level <= 0.1 for c, level in enumerate(run.summary["notes"]["level"]) if c != 2)
    assert noisy
    assert clean
    return [
        (0, 0),
        (7 * (MODEL + 4) + noisy * MODEL, 7 * (MODEL + 8) + noisy * 16),  # LID, then level and count up
        (min(4, clean) * MODEL,) * 2,
        (noisy * MODEL + 4 * MODEL, noisy * 8 + 4 * MODEL),
    ]

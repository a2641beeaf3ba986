"""FedNoRo on the toy world: one round of warm-up, the search, and two rounds with a teacher of rising weight."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"ramp_to": 3}


def traffic(run: Any) -> list[tuple[int, int]]:
    noisy = {r: set(run.outcome.fed.sample(r)) & set(run.summary["notes"]["noisy"]) for r in (2, 3)}
    assert any(noisy.values())
    rounds = [(4 * MODEL, 4 * MODEL)] + [(4 * MODEL + 8 * len(noisy[r]), 4 * MODEL) for r in (2, 3)]  # and the verdict
    search = (7 * MODEL, 7 * 5 * 4)  # once: the model to all, and a loss for each class
    return [(0, 0), rounds[0], (rounds[1][0] + search[0], rounds[1][1] + search[1]), rounds[2]]

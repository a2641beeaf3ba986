"""FedDF on the toy world: clients of even number run the perceptron, the others the convolutional net."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"public": 6, "distil_batch": 4}
CNN = 4 * (2 * 9 + 2 + 4 * 2 * 9 + 4 + 6 * 4 * 2 * 2 + 6 + 5 * 6 + 5)


def traffic(run: Any) -> list[tuple[int, int]]:
    cohorts = [run.outcome.fed.sample(r) for r in (1, 2, 3)]
    return [(0, 0)] + [(sum(CNN if c % 2 else MODEL for c in who),) * 2 for who in cohorts]  # distillation: nothing

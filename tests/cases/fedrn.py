"""FedRN on the toy world: one round of warm-up, two with neighbours."""

from __future__ import annotations

from typing import Any

from cases import MODEL

FIELDS: dict[str, Any] = {"warmup": 1, "neighbours": 2}


def traffic(run: Any) -> list[tuple[int, int]]:
    """A round: the model down; up the model, which is handed on, too, an accuracy and 5 logits. With neighbours also
    two models down, three scores and whether they were asked; those that have not trained before get the model twice.
    """
    fed, up = run.outcome.fed, 4 * (MODEL + 8 + 20)
    known, rows = set(fed.sample(1)), []
    for r in (2, 3):
        who = set(fed.sample(r))
        rows.append((4 * (MODEL + 2 * MODEL + 24 + 8) + len(who - known) * MODEL, up))
        known |= who
    return [(7 * 4 * 64, 0), (4 * MODEL, up), *rows]  # first the image of noise

"""RoFL on the toy world: features pulled from the second round on, labels replaced in the third."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"forget_rate": 0.4, "ramp": 2, "label_rounds": 2, "centroid": 0.1, "entropy": 0.1}

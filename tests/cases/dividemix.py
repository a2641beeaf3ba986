"""DivideMix on the toy world: one round of warm-up, two of divided training."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"warmup": 1, "ramp": 2, "unlabelled": 5.0}

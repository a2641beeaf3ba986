"""FedFixer on the toy world: one round on all samples, two on chosen ones."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"warmup": 1, "strength": 0.1, "confidence": 0.2}

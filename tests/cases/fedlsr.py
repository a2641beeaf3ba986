"""FedLSR on the toy world: the weight of the agreement rises from 0 over half to all."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"ramp": 2}

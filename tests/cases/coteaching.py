"""Co-teaching on the toy world."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"forget_rate": 0.4, "ramp": 2}

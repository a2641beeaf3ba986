"""Paper 002's FedDyn on the toy world."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"mu": 0.01}

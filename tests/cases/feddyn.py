"""FedDyn on the toy world."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"alpha": 0.1}

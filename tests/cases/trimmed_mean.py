"""The trimmed mean on the toy world."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"trim": 0.25}

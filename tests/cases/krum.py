"""Krum on the toy world."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {"faulty": 0.25, "average": 2}

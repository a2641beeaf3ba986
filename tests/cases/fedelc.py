"""FedELC on the toy world: what crosses is what crosses in FedNoRo."""

from __future__ import annotations

from typing import Any

from cases.fednoro import traffic as traffic

FIELDS: dict[str, Any] = {}

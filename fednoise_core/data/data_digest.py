"""A short digest of the user's own data, so that decisions about their labels are not applied to others."""

from __future__ import annotations

from collections.abc import Mapping

from fednoise_core.io import digest

__all__ = ["data_digest"]


def data_digest(source_sha256: Mapping[str, str]) -> str:
    """16 hex digits for the content that `Arrays.source_sha256` lists; "" where it lists none (folders without CSV)."""
    return digest(dict(source_sha256)) if source_sha256 else ""

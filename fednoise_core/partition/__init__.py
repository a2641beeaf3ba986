"""Partitions: who holds which training sample. `make` takes a data set and a spec and gives the partition artifact.

Names below come from `registry` on first use: a training run reads a partition, and must not depend on how it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fednoise_core.partition.registry import LABELLED, PARTITIONS, Partition, make, needs_labels

__all__ = ["LABELLED", "PARTITIONS", "Partition", "make", "needs_labels"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.registry"), name)

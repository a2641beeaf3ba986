"""Label noise as functions over arrays: `inject` takes a data set and a noise spec and gives the labels artifact.

Names below come from `registry` on first use: a training run reads labels, and must not depend on how they were made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fednoise_core.noise.registry import (
        NOISES,
        LabelledData,
        Labels,
        NoiseResult,
        inject,
        keeps_generator,
        needs_donor,
        needs_file,
        needs_partition,
        nominal_rate,
    )

__all__ = [
    "NOISES",
    "LabelledData",
    "Labels",
    "NoiseResult",
    "inject",
    "keeps_generator",
    "needs_donor",
    "needs_file",
    "needs_partition",
    "nominal_rate",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.registry"), name)

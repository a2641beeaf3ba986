"""Federated learning with noisy labels: data, noise, partitions, methods, and one engine that simulates them.

Names below are imported on first use. So `import fednoise_core` is fast, and a workflow step depends only on what it
uses.
"""

from typing import Any

from fednoise_core.version import __version__ as __version__

_NAMES = {
    "Arrays": "fednoise_core.data.arrays:Arrays",
    "Labels": "fednoise_core.noise.labels:Labels",
    "METHODS": "fednoise_core.methods:METHODS",
    "NETS": "fednoise_core.nets:NETS",
    "Partition": "fednoise_core.data.partition:Partition",
    "Saving": "fednoise_core.engine.loop:Saving",
    "Stopped": "fednoise_core.engine.loop:Stopped",
    "Train": "fednoise_core.settings.train:Train",
    "arrays": "fednoise_core.data.from_arrays:arrays",
    "dataset": "fednoise_core.data.sources:read",
    "find_label_errors": "fednoise_core.api.find_label_errors:find_label_errors",
    "inject": "fednoise_core.noise.registry:inject",
    "load": "fednoise_core.api.run:load",
    "partition_of": "fednoise_core.partition.registry:make",
    "run": "fednoise_core.api.run:run",  # a module named as a function would hide it once imported
    "study": "fednoise_core.api.study:study",
}

__all__ = [  # noqa: RUF022
    "Arrays",
    "Labels",
    "METHODS",
    "NETS",
    "Partition",
    "Saving",
    "Stopped",
    "Train",
    "arrays",
    "dataset",
    "find_label_errors",
    "inject",
    "load",
    "partition_of",
    "run",
    "study",
]


def __dir__() -> list[str]:
    """Public names, imported or not. `help(fednoise_core)` and completion show them."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'fednoise_core' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _NAMES[name].split(":")
    return getattr(import_module(module), attribute)

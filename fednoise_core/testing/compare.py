"""Compare two runs, bit for bit or up to rounding."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from fednoise_core.ops.weights import Weights


def same_state(a: Any, b: Any) -> bool:
    """Compare two trees bit for bit.

    NaN equals NaN. Tensors must also agree in dtype and shape.
    Dataclasses are compared by their fields.
    """
    if dataclasses.is_dataclass(a):
        return same_state(vars(a), vars(b))
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(same_state(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same_state(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Weights):
        return a.layout == b.layout and same_state(a.flat, b.flat)
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    return bool(a == b or (a != a and b != b))


def golden_numbers(run: Any) -> dict[str, Any]:
    """Collect a few numbers of a run that change whenever its arithmetic changes.

    Args:
        run: The finished run.

    Returns:
        Numbers, lists and dicts, which JSON can hold.
    """
    models = [w for _, several in run.outcome.models() for w in several]
    view = run.summary["headline_view"]
    return {
        "accuracy": [v for _, v in run.curve],
        "loss": [v for _, v in run.outcome.record.curve(view, "loss")],
        "norms": [float(w.flat.double().norm()) for w in models],
        "work": run.summary["work"],
        "bytes": [run.summary["bytes_down"], run.summary["bytes_up"]],
        "epsilon": run.summary["epsilon"],
        "suspects": [list(s[:2]) for s in sorted(run.suspects, key=lambda s: (-s[2], s[0]))[:5]],
    }


def nearly_same(a: Any, b: Any) -> bool:
    """Compare two trees of numbers up to the rounding of other processors.

    An accuracy may differ by one test sample of 40.
    Any other number may differ by 1e-3, relative if it is above 1.
    """
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(
            abs(np.subtract(a[k], b[k])).max() < 0.03 if k == "accuracy" else nearly_same(a[k], b[k]) for k in a
        )
    if isinstance(a, list):
        return len(a) == len(b) and all(nearly_same(x, y) for x, y in zip(a, b, strict=True))
    if a == b:
        return True
    return isinstance(a, float) and isinstance(b, float | int) and abs(a - b) < 1e-3 * max(1, abs(b))

"""A callback for `fn.run(…, on_round=…)` that writes TensorBoard's files. Needs the extra `tensorboard`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fednoise_core.io import SpecError

__all__ = ["TensorBoard"]


class TensorBoard:
    """Writes every round's metrics into `folder`: what the round reports as `round/<metric>`, each view's as
    `<view>/<metric>`, over the rounds. `tensorboard --logdir FOLDER` shows them.

    Raises SpecError if the package tensorboard is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise SpecError(f"TensorBoard: {error}; pip install 'fednoise_core[tensorboard]'") from error
        self._writer = SummaryWriter(os.fspath(folder))

    def __call__(self, row: Mapping[str, Any]) -> None:
        views = row["views"]
        of_views = {name for metrics in views.values() for name in metrics}
        for name, value in row.items():
            if isinstance(value, float) and name not in of_views:
                self._writer.add_scalar(f"round/{name}", value, row["round"])
        for view, metrics in views.items():
            for name, value in metrics.items():
                self._writer.add_scalar(f"{view}/{name}", value, row["round"])
        self._writer.flush()
        if row["round"] == row["of"]:
            self._writer.close()

"""Export trained models as files that torch can read without fednoise (torch.export)."""

import copy
import json
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednoise_core.api.predict import Classifier
from fednoise_core.io import open_atomic
from fednoise_core.nets.net import Apply, Net
from fednoise_core.ops.weights import Weights

STATISTICS = ("running_mean", "running_var", "weight", "bias")
CLASS_NAMES = "class_names.json"  # file in the archive


class _AnyBatch(Apply):
    """Runs a body in evaluation mode. It never reads the batch size, because an export would fix it."""

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean, var, scale, shift = (self.w[f"{name}.{part}"] for part in STATISTICS)
        return F.batch_norm(x, mean, var, scale, shift, False, 0.1, 1e-5)


class _ExportNet(Net):
    def __init__(self, net: Net) -> None:
        vars(self).update(vars(net))

    def features(self, w: Weights, x: Tensor, *, train: bool = False, u: Tensor | None = None) -> Tensor:
        return self.body(_AnyBatch(w, False, u, self.dropout_at_eval), x)


def export_module(module: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a module as an exported program, whole or not at all.

    Args:
        module: Result of `predict.module_of`, in evaluation mode.
        path: File to write.
    """
    exported = copy.deepcopy(module).cpu()
    parts = [part for part in exported.modules() if isinstance(part, Classifier)]
    for part in parts:
        part._net = _ExportNet(part._net) if type(part._net) is Net else part._net
    images = torch.zeros(2, *parts[0]._net.shape)
    with torch.no_grad():
        program = torch.export.export(exported, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    names = json.dumps(parts[0].class_names)
    with open_atomic(Path(path), "wb") as file:
        torch.export.save(program, file, extra_files={CLASS_NAMES: names})

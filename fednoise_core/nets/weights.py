"""Weights from a file: what a net starts from instead of random numbers, such as ImageNet's for ResNet-50.

A file is safetensors with one tensor per name of the net's layout; torchvision's names are understood (its `fc` is our
`head`). `model.safetensors` of a finished run with one global model is such a file, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednoise_core.io import ArtifactError

if TYPE_CHECKING:
    from torch import Tensor

    from fednoise_core.ops.weights import Weights


def weight_files(net: Any) -> list[str]:
    """The weight files that a `train.net` setting names. Torch is not needed.

    Args:
        net: one net or a list.

    Returns:
        Sorted paths.
    """
    nets = net if isinstance(net, list | tuple) else [net]
    return sorted({str(spec["weights"]) for spec in nets if isinstance(spec, Mapping) and spec.get("weights")})


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file by name.

    Raises:
        ArtifactError: it is missing or damaged. The message names it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).is_file():
        cure = "`python -m workflow_scripts.steps pretrained` makes ImageNet's"
        raise ArtifactError(f"{path}: no such weights file; {cure}")
    try:
        return rename_torchvision(load_file(path))
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path}: damaged weights file ({error})") from error


def rename_torchvision(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Torchvision's names as ours: `fc` is `head`, and the counters of batch norm, which nothing uses, are left out."""
    used = {name: tensor for name, tensor in named.items() if not name.endswith(".num_batches_tracked")}
    return {f"head.{name[3:]}" if name.startswith("fc.") else name: tensor for name, tensor in used.items()}


def fill_weights(weights: Weights, named: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy tensors into weights, in place. A head of another shape, or none, leaves the head as it is.

    Raises:
        ArtifactError: another tensor is missing, unknown or of another shape. The message names it and `where`.
    """
    shapes = {name: tuple(view.shape) for name, view in weights.views.items()}
    head = {name for name in shapes if name.startswith("head.")}
    if any(name not in named or tuple(named[name].shape) != shapes[name] for name in head):
        shapes = {name: shape for name, shape in shapes.items() if name not in head}
        named = {name: tensor for name, tensor in named.items() if name not in head}
    for name in [*shapes, *named]:
        if name not in named or name not in shapes:
            problem = "is missing" if name in shapes else "is not in this net"
            raise ArtifactError(f"{where}: tensor {name!r} {problem}: weights of another architecture?")
        if tuple(named[name].shape) != shapes[name]:
            found = tuple(named[name].shape)
            raise ArtifactError(f"{where}: tensor {name!r} has shape {found}, the net needs {shapes[name]}")
    for name, tensor in named.items():
        weights[name].copy_(tensor)

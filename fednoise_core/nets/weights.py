"""Initial weights of a net from a file, such as weights pretrained on ImageNet, instead of random numbers.

A file has one tensor per name of the net's layout. torchvision's names are also accepted (its `fc` is our `head`).
`model.safetensors` of a finished run with one global model is such a file, too.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednoise_core.io import ArtifactError, SpecError

if TYPE_CHECKING:
    from torch import Tensor

    from fednoise_core.ops.weights import Weights


PUBLISHED = {  # net -> (address, sha256): torchvision's IMAGENET1K_V1, which the papers' `pretrained=True` meant
    "resnet18": (
        "https://download.pytorch.org/models/resnet18-f37072fd.pth",
        "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "resnet34": (
        "https://download.pytorch.org/models/resnet34-b627a593.pth",
        "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
    ),
    "resnet50": (
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
}
PUBLISHED_FILE = "data/weights/{net}.safetensors"  # made by the workflow's rule `pretrained`


def weight_files(net: Any) -> list[str]:
    """List the weight files that a `train.net` setting names. It works without torch.

    Args:
        net: one net or a list.

    Returns:
        Sorted paths.
    """
    nets = net if isinstance(net, list | tuple) else [net]
    named = [spec for spec in nets if isinstance(spec, Mapping) and spec.get("weights")]
    return sorted({name_file(str(spec["weights"]), str(spec.get("name"))) for spec in named})


def name_file(weights: str, net: str) -> str:
    """Name the file of the option `weights`.

    Raises:
        SpecError: `weights` is "imagenet", and there are no ImageNet weights for this net.
    """
    if weights != "imagenet":
        return weights
    if net not in PUBLISHED:
        raise SpecError(f"train.net.weights: no ImageNet weights are known for {net!r} (known: {', '.join(PUBLISHED)})")
    return PUBLISHED_FILE.format(net=net)


def check_first_layer(weights: str, net: str, first: Sequence[int]) -> None:
    """Check, before a download, that ImageNet's weights fit the net.

    Raises:
        SpecError: `weights` is "imagenet", but there are none for this net, or its first convolution has another shape.
    """
    if weights != name_file(weights, net) and tuple(first) != (64, 3, 7, 7):
        width, channels, *stem = first
        raise SpecError(
            "train.net.weights: ImageNet's are for colour images, `stem: 7x7` and `width: 64`; this net has "
            f"{channels} channels, a stem of {stem[0]}x{stem[1]} and width {width}"
        )


def read_start_weights(weights: str, net: str) -> dict[str, Tensor]:
    """Read the tensors that the option `weights` names.

    ImageNet's have no head. They are downloaded once, unless the workflow's file is there.

    Raises:
        SpecError: this net has no weights of ImageNet.
        ArtifactError: they are missing or damaged, or cannot be downloaded. The message names the file.
    """
    path = Path(name_file(weights, net))
    if weights == "imagenet" and not path.is_file():
        named = read_tensors(download_weights(*PUBLISHED[net]))
        return {name: tensor for name, tensor in named.items() if not name.startswith("head.")}
    return read_tensors(path)


def download_weights(url: str, sha256: str | None = None, folder: str | Path | None = None) -> Path:
    """Download published weights, if they aren't there.

    Args:
        url: their address.
        sha256: their digest (hex), or the beginning of it. Default: what torch's names of files end in.
        folder: where to look and to put them. Default: the folder that torch keeps downloads in.

    Returns:
        The file.

    Raises:
        ArtifactError: they are neither there nor can be downloaded.
    """
    import torch

    folder = Path(folder or Path(torch.hub.get_dir(), "checkpoints"))
    path = folder / url.rpartition("/")[2]
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), sha256 or path.stem.rpartition("-")[2], progress=False)
        except (OSError, RuntimeError) as error:
            cure = f"put this file into {folder}, or name a file or folder of your own as `weights`"
            raise ArtifactError(f"{path}: missing, and {url} gave none ({error}); {cure}") from error
    return path


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read all tensors of a state dict by our names.

    Args:
        path: a file .safetensors, .pth or .pt.

    Raises:
        ArtifactError: it is missing or damaged, or holds more than tensors. The message names it.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).is_file():
        raise ArtifactError(f'{path}: no such weights file; ImageNet\'s are called "imagenet"')
    if Path(path).suffix not in (".pth", ".pt"):
        try:
            return rename_torchvision(load_file(path))
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"{path}: damaged weights file ({error})") from error
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise ArtifactError(f"{path}: not a file of plain tensors ({str(error).splitlines()[0]})") from error
    loaded = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise ArtifactError(f"{path}: not a state dict of tensors")
    return rename_torchvision(loaded)


def rename_torchvision(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert torchvision's names: `fc` becomes `head`. The counters of batch norm are left out as unused."""
    used = {name: tensor for name, tensor in named.items() if not name.endswith(".num_batches_tracked")}
    return {f"head.{name[3:]}" if name.startswith("fc.") else name: tensor for name, tensor in used.items()}


def fill_weights(weights: Weights, named: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy tensors into weights, in place. The head is not changed if the file has none, or one of another shape.

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

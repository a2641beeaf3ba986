"""Feature vectors of images from a net of torchvision that was pretrained on ImageNet.

Images are encoded independently, so each site can encode its own images.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.nets.weights import download_weights, read_tensors
from fednoise_core.settings.declare import did_you_mean
from fednoise_core.settings.functions import spec_of

BATCH = 64


def encode_images(images: Any, encoder: Any, device: str | torch.device = "cpu") -> np.ndarray:
    """Encode images by the penultimate layer of a pretrained net. Equal images get equal vectors.

    Args:
        images: uint8 [n, H, W] or [n, H, W, C] with 1 or 3 channels. They are scaled to the image size of the net's
            training. Images that are not square are cropped to the centre.
        encoder: Name of a net of torchvision for classification, such as "resnet18", whose weights are downloaded once.
            Or {"name": …, "weights": …}, where the weights are a state dict (.pth, .pt or .safetensors), or a folder
            for torchvision's file, which is downloaded if it is missing.
        device: Device of the computation.

    Returns:
        float32 [n, d].

    Raises:
        SpecError: There is no such net, or images have another number of channels.
        ArtifactError: The weights are missing, damaged or of another net.
    """
    net, prepare = load_encoder(encoder)
    if len(images.shape) == 4 and images.shape[3] not in (1, 3):
        raise SpecError(f"encoder: expected images of 1 or 3 channels, got {images.shape[3]}")
    net.to(device)
    first, parts = dict[bytes, int](), list[Tensor]()
    places = np.empty(len(images), np.int64)  # first copy of each image, since rounding may differ between batches
    for start in range(0, len(images), BATCH):
        part = np.ascontiguousarray(images[start : start + BATCH])
        for row, image in enumerate(part, start):
            places[row] = first.setdefault(hashlib.sha256(image).digest(), row)
        x = torch.from_numpy(part.reshape(*part.shape[:3], -1)).to(device).permute(0, 3, 1, 2)
        with torch.inference_mode():
            parts.append(net(prepare(x.expand(-1, 3, -1, -1))).flatten(1).float().cpu())
    return torch.cat(parts).numpy()[places]


def load_encoder(encoder: Any) -> tuple[nn.Module, nn.Module]:
    """Load a pretrained net without its last layer, and the preprocessing of images for it.

    Args:
        encoder: As in `encode_images`.

    Returns:
        The net in evaluation mode, and a module that takes uint8 [B, 3, H, W].

    Raises:
        SpecError: There is no such net.
        ArtifactError: The weights are missing, damaged or of another net.
    """
    try:
        import torchvision
    except ImportError as error:
        raise SpecError("encoder: torchvision is not installed; `pip install torchvision`") from error
    spec = spec_of(encoder, "name", "encoder")
    name, names = spec.pop("name", None), torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise SpecError(f"encoder: unknown net {name!r}{did_you_mean(str(name), names)}")
    if unknown := spec.keys() - {"weights"}:
        raise SpecError(f"encoder: expected a name, or name and weights, got {unknown.pop()}")
    with torch.random.fork_rng(devices=[]):  # torchvision draws initial weights, which are then replaced
        net = torchvision.models.get_model(name)
    layers = [layer for layer, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise SpecError(f"encoder: {name} has no linear last layer, whose inputs would be the features")
    published, weights = torchvision.models.get_model_weights(name).DEFAULT, spec.get("weights")
    in_folder = weights is None or Path(weights).is_dir()
    named = read_tensors(download_weights(published.url, folder=weights) if in_folder else str(weights))
    net.set_submodule(layers[-1], nn.Identity())
    heads = (f"{layers[-1]}.", "head.")  # "head" in files of our own
    try:
        net.load_state_dict({key: tensor for key, tensor in named.items() if not key.startswith(heads)})
    except RuntimeError as error:
        problem = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ArtifactError(f"{weights or published.url}: weights of another net than {name}? {problem}") from error
    side = published.transforms().crop_size[0]
    return net.eval().requires_grad_(False), published.transforms(resize_size=side)

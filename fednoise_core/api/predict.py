"""Trained models as ordinary torch modules. They normalise raw images themselves and hold the class names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fednoise_core.data.array_checks import as_images
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.nets import build_net
from fednoise_core.nets.module import Factory, factory_name
from fednoise_core.nets.net import Net
from fednoise_core.ops.weights import Weights
from fednoise_core.settings.declare import check_keys, check_value
from fednoise_core.settings.words import short_repr

Positive = Annotated[int, Field(ge=1)]
FACTS = {  # the keys that are read from the metadata of a model file: key → type
    "nets": Annotated[
        dict[Annotated[str, Field(pattern=r"^((client)?\d{1,9}(/\d{1,9})?)?$")], dict[str, Any]], Field(min_length=1)
    ],
    "mean": list[float],
    "std": list[Annotated[float, Field(gt=0)]],
    "class_names": list[str],
}
NET_FACTS = {  # the keys that are read for each net
    "name": str,
    "options": dict[str, Any],
    "dropout_at_eval": bool,
    "shape": Annotated[list[Positive], Field(min_length=3, max_length=3)],
    "classes": Positive,
}


@dataclass(frozen=True, repr=False)
class Predictions:
    """Predictions for n images.

    Attributes:
        probabilities: float32 [n, K].
        labels: Most probable classes, int64 [n].
        names: Class names, or ().
    """

    probabilities: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...] = ()

    @property
    def named(self) -> list[str]:
        """Predicted class name of each image. If classes have no names, it is the class number as text."""
        return [self.names[label] if self.names else str(label) for label in self.labels.tolist()]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        few = ", ".join(self.named[:3])
        return f"<Predictions of {len(self)} images: {few}{', …' if len(self) > 3 else ''}>"


class Classifier(nn.Module):
    """Trained net that turns images into logits.

    Images [B, C, H, W] are integers in 0..255 or floats in 0..1. state_dict holds the net's own tensors under the names
    of its architecture (torchvision's for the ResNets). In training mode, batch norm updates its running statistics and
    dropout draws from torch's generator, as in any module.

    Args:
        net: Architecture.
        tensors: Tensors by the names of the architecture.
        facts: `class_names`, `mean` and `std` of the data set.

    Attributes:
        class_names: Names in order of the classes, or ().
        mean: Buffer [C, 1, 1] that is not part of state_dict.
        std: Buffer [C, 1, 1] that is not part of state_dict.

    Raises:
        ArtifactError: A tensor is missing or has another shape.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: Net, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        super().__init__()
        self._net, self.class_names = net, tuple(facts["class_names"])
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(facts[name]).view(net.shape[0], 1, 1), persistent=False)
        self._own = {entry.name: net.own_name(entry.name) for entry in net.layout.entries}
        for entry in net.layout.entries:
            key = self._own[entry.name]
            tensor = tensors.get(key)
            if tensor is None or tuple(tensor.shape) != entry.shape or not tensor.is_floating_point():
                raise ArtifactError(f"tensor {key!r} is missing, or its numbers are no floats of shape {entry.shape}")
            _register_tensor(self, key.split("."), tensor.clone(), trained=entry.kind != "stat")

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits.

        Args:
            images: [B, C, H, W], integers in 0..255 or floats in 0..1.

        Returns:
            Logits [B, K].
        """
        x = images.to(torch.float32)
        x = x if images.is_floating_point() else x / 255.0
        x = (x - self.mean) / self.std
        # looked up in every call, because `.to(device)` and optimisers may replace the tensors
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        w = cast("Weights", SimpleNamespace(views={name: tensors[key] for name, key in self._own.items()}))
        draws = self._net.draws if self.training else self._net.eval_draws
        u = torch.rand(len(x), draws, device=x.device) if draws else None
        return self._net.train(w, x, u) if self.training else self._net.predict(w, x, u)


class Ensemble(nn.Module):
    """Several trained nets whose logits are summed.

    Args:
        members: Nets of one data set, at least one.

    Attributes:
        class_names: Names in order of the classes, or ().
    """

    def __init__(self, members: list[Classifier]) -> None:
        super().__init__()
        self.members, self.class_names = nn.ModuleList(members), members[0].class_names

    def forward(self, images: Tensor) -> Tensor:
        """Compute the sum of the members' logits.

        Args:
            images: [B, C, H, W], uint8 or floats in 0..1.

        Returns:
            Logits [B, K].
        """
        return torch.stack([member(images) for member in self.members]).sum(0)


def _register_tensor(root: nn.Module, path: list[str], tensor: Tensor, *, trained: bool) -> None:
    """Register `tensor` in nested modules below `root`, so that `path` is its dotted name."""
    for part in path[:-1]:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root.get_submodule(part)
    if trained:
        root.register_parameter(path[-1], nn.Parameter(tensor))
    else:
        root.register_buffer(path[-1], tensor)


def module_of(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], client: int | None = None) -> nn.Module:
    """Make a module of models that `engine.models` collected.

    Args:
        tensors: Tensors by name, with the prefix of their model.
        facts: Description of the models.
        client: Client whose model to return, if every client has its own model.

    Returns:
        The module in evaluation mode. Several models of the server become one Ensemble.

    Raises:
        SpecError: There is no such model, or every client has its own model and `client` is not given.
        ArtifactError: The tensors do not fit the net.
    """
    prefixes = [prefix for prefix in facts["nets"] if owner_of_prefix(prefix) == client]
    if not prefixes:
        owners = ", ".join(str(owner) for owner in map(owner_of_prefix, facts["nets"]) if owner is not None)
        have = f"models of the clients {owners}" if owners else "one model for all; leave `client` out"
        missing = "no model for all" if client is None else f"no model of client {client!r}"
        raise SpecError(f"client: there is {missing}; there are {have}")
    members = []
    for prefix in prefixes:
        start = f"{prefix}/" if prefix else ""
        selected = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
        try:
            members.append(Classifier(_build_net(facts["nets"][prefix]), selected, facts))
        except (ValueError, RuntimeError) as error:  # also of build_net
            problem = str(error).partition("\n")[0]
            raise ArtifactError(f"{facts.get('file', 'model')}: {problem}") from error
    return (members[0] if len(members) == 1 else Ensemble(members)).eval()


def owner_of_prefix(prefix: str) -> int | None:
    """Return the client of the model prefix `client<c>` or `client<c>/<j>`, or None for a model of the server."""
    return int(prefix.split("/")[0].removeprefix("client")) if prefix.startswith("client") else None


def _build_net(described: Mapping[str, Any]) -> Net:
    fixed = {key: described[key] for key in ("name", "dropout_at_eval")}  # merged last, so options cannot replace them
    return build_net({**described["options"], **fixed}, tuple(described["shape"]), int(described["classes"]))


def predict_images(module: nn.Module, images: Any) -> Predictions:
    """Classify images.

    Args:
        module: Result of `module_of`.
        images: Integers 0..255, [n, H, W] or [n, H, W, C].

    Returns:
        Probabilities and labels.

    Raises:
        ArraysError: The images have another type or shape (a SpecError).
    """
    images = np.asarray(images)
    x = torch.from_numpy(as_images("images", images))
    x = x[:, None] if x.dim() == 3 else x.permute(0, 3, 1, 2)
    net = next(part for part in module.modules() if isinstance(part, Classifier))
    shape = tuple(net._net.shape)
    if tuple(x.shape[1:]) != shape:
        expected = shape[1:] if shape[0] == 1 else (*shape[1:], shape[0])
        raise SpecError(f"images: expected {expected} as in training, got {tuple(images.shape[1:])}")
    with torch.inference_mode():
        shares = torch.cat([module(part.to(net.mean.device)).softmax(1).cpu() for part in x.split(500)])
    return Predictions(shares.numpy(), shares.argmax(1).numpy(), net.class_names)


def read_models(path: Path, factory: Factory | str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a model.safetensors.

    Args:
        path: File to read.
        factory: As for `fn.load`. It replaces the factory that the file names, which is never called.

    Returns:
        Tensors by name, and the description of the models, with the path as `file`.

    Raises:
        ArtifactError: The file is missing or damaged.
        SpecError: The description is wrong. The message names the file and the key.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ArtifactError(f"{path}: no such file")
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["fednoise"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: damaged, or not the model of a run ({type(error).__name__}: {error})") from error
    check_value(dict[str, Any], facts, f"{path}: fednoise")
    check_keys(FACTS, facts, f"{path}: fednoise")
    for prefix, net in facts["nets"].items():
        place = f"{path}: fednoise.nets[{prefix!r}]"
        check_keys(NET_FACTS, net, place)
        if 0 < len(facts["class_names"]) < net["classes"]:
            raise SpecError(f"{path}: fednoise.class_names: expected {net['classes']}, got {len(facts['class_names'])}")
        for key in sorted({"name", "dropout_at_eval"} & net["options"].keys()):
            raise SpecError(f"{place}.options.{key}: expected no such option, got {short_repr(net['options'][key])}")
        if net["name"] == "module" or "factory" in net["options"]:
            if factory is None:  # a file is data, so only the caller may decide which code is imported and called
                named = f"a net is made by {short_repr(net['options'].get('factory'))}, which is not called"
                cure = "if you trust that code, pass fn.load(…, factory='module:function') or the function itself"
                raise SpecError(f"{path}: fednoise.nets: {named}; {cure}")
            net["options"]["factory"] = factory if isinstance(factory, str) else factory_name(factory)
    return tensors, {**facts, "file": str(path)}

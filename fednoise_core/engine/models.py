"""model.safetensors: the models of a finished run, with the metadata that is needed to use them elsewhere."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fednoise_core.data.arrays import Arrays
from fednoise_core.engine.loop import Outcome
from fednoise_core.engine.world import SERVER
from fednoise_core.io import open_atomic
from fednoise_core.ops.weights import count_bytes

LIMIT = 1 << 29  # largest size of model.safetensors in bytes; a hundred ResNet-18s would have 4.5 GB


def describe_data(arrays: Arrays) -> dict[str, Any]:
    """Collect the facts about images and classes that are needed to use the models.

    Returns:
        `mean` and `std` per channel, of pixels in 0..1, and `class_names` in order. [] if classes have no names.
    """
    return {"mean": list(arrays.mean), "std": list(arrays.std), "class_names": list(arrays.names)}


def collect_models(
    outcome: Outcome, about: Mapping[str, Any], limit: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Collect the final models of the headline view.

    A tensor has the name that it has in the net's module (torchvision's for the ResNets). The prefix is `client<c>/`
    for a client's model, and `<k>/` for several models of the server.

    Args:
        outcome: The finished run.
        about: Facts about the data set, from `describe_data`.
        limit: Largest total size in bytes. Further models are left out and counted, because the models of all clients
            could fill a disk.

    Returns:
        Tensors on the CPU by name, and the facts to store beside them.
    """
    tensors: dict[str, Tensor] = {}
    nets: dict[str, Any] = {}
    count = len(next(iter(outcome.views.values())))
    size = left_out = 0
    for k, (client, several) in enumerate(outcome.models()):
        size += sum(map(count_bytes, several))
        if k and limit is not None and size > limit:
            left_out = count - k
            break
        net = outcome.fed.net(client)
        for j, w in enumerate(several):
            parts = [f"client{client}"] if client != SERVER else [str(k)] if count > 1 else []
            prefix = "/".join([*parts, *([str(j)] if len(several) > 1 else [])])
            tensors |= {f"{prefix}/{n}" if prefix else n: t.cpu() for n, t in net.named_tensors(w).items()}
            nets[prefix] = net.describe_net()
    facts = {"nets": nets, "view": next(iter(outcome.views)), **about}
    return tensors, {**facts, **({"left_out": left_out} if left_out else {})}


def write_models(path: Path, outcome: Outcome, about: Mapping[str, Any]) -> None:
    """Write model.safetensors, whole or not at all.

    The facts are the metadata entry `fednoise`, as JSON.
    Models beyond `LIMIT` bytes are left out.
    """
    from safetensors.torch import save

    tensors, facts = collect_models(outcome, about, LIMIT)
    with open_atomic(path, "wb") as file:  # one metadata entry: safetensors does not keep the order of several
        file.write(save(tensors, {"fednoise": json.dumps(facts, sort_keys=True)}))

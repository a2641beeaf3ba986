"""Small nets: a two-layer perceptron and a two-convolution net, by default without normalisation (needed for exact
invariants)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.nets.net import Body, Ops
from fednoise_core.params import described

__all__ = ["mlp", "small_cnn"]


@described(
    example={"hidden": 64},
    input=(1, 28, 28),
    classes=10,
    smallest=1,
    parameters=50890,
)
def mlp(*, hidden: Annotated[int, Field(ge=1, description="Units of the hidden layer.")] = 64) -> Body:
    """Two linear layers.

    pixels -> `hidden` -> ReLU (784-64-10 for 28x28: 50,890 parameters)."""

    def body(ops: Ops, x: Tensor) -> Tensor:
        return torch.relu(ops.linear("hidden", x.flatten(1), hidden))

    return body


@described(
    example={"width": 8, "hidden": 64},
    input=(1, 28, 28),
    classes=10,
    smallest=4,
    parameters=52138,
)
def small_cnn(
    *,
    width: Annotated[
        int, Field(ge=1, description="Channels of the first convolution; the second has twice as many.")
    ] = 8,
    hidden: Annotated[int, Field(ge=1, description="Units of the hidden linear layer.")] = 64,
    norm: Annotated[bool, Field(description="Batch norm after each of the two poolings.")] = False,
) -> Body:
    """Two convolutions and two linear layers, without normalisation unless `norm` is true; small images on a CPU.

    conv 3x3 `width` - pool - conv 3x3 2*`width` - pool - linear `hidden`.

    ReLU follows the pooling: equal, and a quarter of the work.
    """

    def body(ops: Ops, x: Tensor) -> Tensor:
        for k, channels in enumerate((width, 2 * width), 1):
            x = F.max_pool2d(ops.conv(f"conv{k}", x, channels, 3, pad=1), 2)
            x = torch.relu(ops.norm(f"bn{k}", x) if norm else x)
        return torch.relu(ops.linear("hidden", x.flatten(1), hidden))

    return body

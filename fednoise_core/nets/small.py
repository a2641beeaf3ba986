"""Small nets: a two-layer perceptron and a two-convolution net without normalisation (needed for exact invariants)."""

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
) -> Body:
    """Two convolutions and two linear layers, no normalisation; small images on a CPU.

    conv 3x3 `width` - pool - conv 3x3 2*`width` - pool - linear `hidden`.

    ReLU follows the pooling: equal, and a quarter of the work.
    """

    def body(ops: Ops, x: Tensor) -> Tensor:
        x = torch.relu(F.max_pool2d(ops.conv("conv1", x, width, 3, pad=1), 2))
        x = torch.relu(F.max_pool2d(ops.conv("conv2", x, 2 * width, 3, pad=1), 2))
        return torch.relu(ops.linear("hidden", x.flatten(1), hidden))

    return body

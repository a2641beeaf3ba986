"""Small nets: a linear classifier, a two-layer perceptron, LeNet-5, and a two-convolution net.

By default they have no normalisation layers, so that tests can check exact invariants.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.nets.net import Body, Ops
from fednoise_core.settings.functions import with_settings


@with_settings(
    example={},
    input=(1, 28, 28),
    classes=10,
    smallest=1,
    parameters=7850,
)
def linear() -> Body:
    """A linear classifier, for feature vectors (784-10 for 28x28: 7,850 parameters)."""

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        return x.flatten(1)

    return run_body


@with_settings(
    example={"hidden": 64},
    input=(1, 28, 28),
    classes=10,
    smallest=1,
    parameters=50890,
)
def mlp(*, hidden: Annotated[int, Field(ge=1, description="Units of the hidden layer.")] = 64) -> Body:
    """Two linear layers.

    pixels -> `hidden` -> ReLU (784-64-10 for 28x28: 50,890 parameters).
    """

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        return torch.relu(ops.linear("hidden", x.flatten(1), hidden))

    return run_body


@with_settings(
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

    ReLU follows the pooling. The result is the same, for a quarter of the work.
    """

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        for k, channels in enumerate((width, 2 * width), 1):
            x = F.max_pool2d(ops.conv(f"conv{k}", x, channels, 3, pad=1), 2)
            x = torch.relu(ops.norm(f"bn{k}", x) if norm else x)
        return torch.relu(ops.linear("hidden", x.flatten(1), hidden))

    return run_body


@with_settings(
    example={},
    input=(1, 28, 28),
    classes=10,
    smallest=12,
    parameters=61706,
)
def lenet() -> Body:
    """LeNet-5 (LeCun et al., 1998) with ReLU and max-pooling.

    conv 5x5 6 - pool - conv 5x5 16 - pool - linear 120 - linear 84 = features.

    Images below 32 pixels are padded by 2 pixels, like the 28x28 digits in the paper. ReLU follows the pooling. The
    result is the same, for a quarter of the work.
    """

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        x = torch.relu_(F.max_pool2d(ops.conv("conv1", x, 6, 5, pad=2 if x.shape[2] < 32 else 0), 2))
        x = torch.relu_(F.max_pool2d(ops.conv("conv2", x, 16, 5), 2))
        return torch.relu_(ops.linear("fc2", torch.relu_(ops.linear("fc1", x.flatten(1), 120)), 84))

    return run_body

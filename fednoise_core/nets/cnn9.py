"""The 9-layer CNN of Co-teaching (Han et al., NeurIPS 2018), used by FedEFC and FedLSR."""

from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.nets.net import Body, Ops
from fednoise_core.settings.functions import with_settings

WIDTHS = (1, 1, 1, 2, 2, 2, 4, 2, 1)  # in units of the first block's channels


@with_settings(
    example={"dropout": 0.25, "init": "xavier", "dropout_at_eval": True},
    input=(3, 32, 32),
    classes=10,
    smallest=28,
    parameters=4434570,
)
def cnn9(
    *,
    dropout: Annotated[
        float, Field(ge=0, lt=1, description="Rate of the channel dropout after the third and sixth convolution.")
    ] = 0.25,
    width: Annotated[
        int,
        Field(
            ge=1,
            description="Channels of the first block, and number of features; other blocks have 2 or 4 times as many.",
        ),
    ] = 128,
) -> Body:
    """Co-teaching's 9-layer CNN (Han et al., NeurIPS 2018; FedEFC, FedLSR): batch norm, LeakyReLU, channel dropout.

    It has nine 3x3 convolutions with bias, each followed by batch norm and LeakyReLU(0.01). Max-pooling by 2 and
    channel dropout of rate `dropout` follow the third and the sixth. The last three have no padding. Global average
    pooling gives `width` features.

    Here LeakyReLU follows the pooling. The result is the same, because LeakyReLU is monotonic, and the map is a quarter
    as large. Images need at least 28 pixels a side. Below 32 pixels the last map is 1x1.
    """

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        for k, units in enumerate(WIDTHS, 1):
            x = ops.norm(f"bn{k}", ops.conv(f"conv{k}", x, units * width, 3, pad=1 if k < 7 else 0))
            if k not in (3, 6):
                x = F.leaky_relu_(x, 0.01)
                continue
            x = F.leaky_relu_(F.max_pool2d(x, 2), 0.01)
            if dropout:
                x = ops.dropout2d(x, dropout)
        return x.mean((2, 3))

    return run_body

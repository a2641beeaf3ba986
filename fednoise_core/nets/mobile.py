"""Light nets for 32x32 images: MobileNet V1 and V2, ShuffleNet (the clients of RHFL and FedHNL).

All end in global average pooling. For 32x32 images this equals the fixed pooling of the usual CIFAR versions.
"""

from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.io import SpecError
from fednoise_core.nets.net import Body, Ops
from fednoise_core.settings.functions import with_settings

V1 = (  # (out, stride)
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1),
)  # fmt: skip
V2 = (  # (expansion, out, blocks, stride of the first); the second stride is 1 where the paper has 2, for 32x32
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
SHUFFLE = ((1, 4), (2, 8), (4, 4))  # (out in units of the first stage's channels, units) of each stage, for two groups
Stem = Annotated[
    int, Field(ge=4, description="Channels of the first convolution, a multiple of 4; others are proportional.")
]


@with_settings(
    example={},
    input=(3, 32, 32),
    classes=10,
    smallest=1,
    parameters=3217226,
)
def mobilenet_v1(*, width: Stem = 32) -> Body:
    """MobileNet (Howard et al., 2017) with a stem of stride 1.

    32 * `width` features.
    """
    scale = _scale_width(width)

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        x = torch.relu_(_conv_norm(ops, "conv1", "bn1", x, width, 3))
        for k, (out, stride) in enumerate(V1, 1):
            x = torch.relu_(_conv_norm(ops, f"block{k}.conv1", f"block{k}.bn1", x, x.shape[1], 3, stride, x.shape[1]))
            x = torch.relu_(_conv_norm(ops, f"block{k}.conv2", f"block{k}.bn2", x, scale(out)))
        return x.mean((2, 3))

    return run_body


@with_settings(
    example={},
    input=(3, 32, 32),
    classes=10,
    smallest=1,
    parameters=2296922,
)
def mobilenet_v2(*, width: Stem = 32) -> Body:
    """MobileNetV2 (Sandler et al., CVPR 2018) in RHFL's form for 32×32 images.

    ReLU instead of ReLU6, and every block of stride 1 has a
    shortcut, through a 1x1 convolution with batch norm where the channels change; 40 * `width` features.
    """
    scale = _scale_width(width)

    def run_block(ops: Ops, x: Tensor, name: str, expansion: int, out: int, stride: int) -> Tensor:
        wide = expansion * x.shape[1]
        y = torch.relu_(_conv_norm(ops, f"{name}.conv1", f"{name}.bn1", x, wide))
        y = torch.relu_(_conv_norm(ops, f"{name}.conv2", f"{name}.bn2", y, wide, 3, stride, wide))
        y = _conv_norm(ops, f"{name}.conv3", f"{name}.bn3", y, out)
        if stride != 1:
            return y
        return y.add_(x if x.shape[1] == out else _conv_norm(ops, f"{name}.shortcut.0", f"{name}.shortcut.1", x, out))

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        x = torch.relu_(_conv_norm(ops, "conv1", "bn1", x, width, 3))
        for stage, (expansion, out, blocks, stride) in enumerate(V2, 1):
            for k in range(blocks):
                x = run_block(ops, x, f"layer{stage}.{k}", expansion, scale(out), stride if k == 0 else 1)
        return torch.relu_(_conv_norm(ops, "conv2", "bn2", x, scale(1280))).mean((2, 3))

    return run_body


@with_settings(
    example={},
    input=(3, 32, 32),
    classes=10,
    smallest=1,
    parameters=887582,
)
def shufflenet(
    *,
    width: Annotated[
        int,
        Field(
            ge=32,
            description="Channels of the first stage, a multiple of 8; the others have twice and four times as many.",
        ),
    ] = 200,
) -> Body:
    """ShuffleNet (Zhang et al., CVPR 2018) with two groups, in RHFL's form for 32×32 images.

    A 1x1 stem of 24 channels; 4 * `width` features. ReLU also follows the depthwise convolution, unlike in the paper.

    Raises SpecError for a width that the groups cannot share.
    """
    if width % 8:
        raise SpecError(f"train.net.width: {width} is not a multiple of 8, as ShuffleNet's groups need")

    def run_unit(ops: Ops, x: Tensor, name: str, out: int, stride: int) -> Tensor:
        main = out - x.shape[1] if stride == 2 else out  # a unit of stride 2 appends the pooled input
        inner, groups = main // 4, 1 if x.shape[1] == 24 else 2
        y = torch.relu_(_conv_norm(ops, f"{name}.conv1", f"{name}.bn1", x, inner, groups=groups))
        y = _shuffle_channels(y, groups)
        y = torch.relu_(_conv_norm(ops, f"{name}.conv2", f"{name}.bn2", y, inner, 3, stride, inner))
        y = _conv_norm(ops, f"{name}.conv3", f"{name}.bn3", y, main, groups=2)
        return torch.relu_(torch.cat([y, F.avg_pool2d(x, 3, 2, 1)], 1) if stride == 2 else y.add_(x))

    def run_body(ops: Ops, x: Tensor) -> Tensor:
        x = torch.relu_(_conv_norm(ops, "conv1", "bn1", x, 24))
        for stage, (factor, units) in enumerate(SHUFFLE, 1):
            for k in range(units):
                x = run_unit(ops, x, f"layer{stage}.{k}", factor * width, 1 if k else 2)
        return x.mean((2, 3))

    return run_body


def _scale_width(width: int) -> Callable[[int], int]:
    """Channels of a MobileNet whose stem has `width` instead of 32."""
    if width % 4:
        raise SpecError(f"train.net.width: {width} is not a multiple of 4")
    return lambda channels: channels * width // 32


def _conv_norm(
    ops: Ops, conv: str, norm: str, x: Tensor, out: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> Tensor:
    """Convolution of "same" padding without bias, then batch norm."""
    return ops.norm(norm, ops.conv(conv, x, out, kernel, stride, kernel // 2, groups, bias=False))


def _shuffle_channels(x: Tensor, groups: int) -> Tensor:
    """Channel g*n + j goes to j*groups + g. Done channels-last: reshaping [B, C, H, W] would copy to channels-first."""
    if groups == 1:
        return x
    last = x.permute(0, 2, 3, 1).unflatten(3, (groups, -1)).transpose(3, 4)
    return last.flatten(3).permute(0, 3, 1, 2)

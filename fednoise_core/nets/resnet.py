"""Residual nets (He et al., CVPR 2016) under torchvision's parameter names, with a stem for small or large images."""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.nets.net import Body, Ops
from fednoise_core.settings.functions import with_settings

Stem = Annotated[
    Literal["3x3", "7x7"],
    Field(
        description="First convolution: 3x3 of stride 1 (32×32 images), or 7x7 of stride 2 with max-pooling (224×224)."
    ),
]
Width = Annotated[
    int, Field(ge=1, description="Channels of the first stage; the others have 2, 4 and 8 times as many.")
]
Block = Callable[[Ops, Tensor, str, int, int], Tensor]


@with_settings(
    example={},
    input=(3, 32, 32),
    classes=10,
    smallest=1,
    parameters=4903242,
)
def resnet10(*, stem: Stem = "3x3", width: Width = 64) -> Body:
    """Basic blocks 1, 1, 1, 1 (He et al., CVPR 2016; RHFL, CVPR 2022).

    512 features.
    """
    return _resnet_body(_basic_block, (1, 1, 1, 1), stem, width)


@with_settings(
    example={},
    input=(3, 32, 32),
    classes=10,
    smallest=1,
    parameters=4977226,
)
def resnet12(*, stem: Stem = "3x3", width: Width = 64) -> Body:
    """Basic blocks 2, 1, 1, 1 (RHFL, CVPR 2022)."""
    return _resnet_body(_basic_block, (2, 1, 1, 1), stem, width)


@with_settings(
    example={"stem": "3x3"},
    input=(3, 32, 32),
    classes=100,
    smallest=1,
    parameters=11220132,
)
def resnet18(*, stem: Stem = "3x3", width: Width = 64) -> Body:
    """Basic blocks 2, 2, 2, 2 (He et al., CVPR 2016); equal to torchvision's with a 3×3 stem and no max-pooling."""
    return _resnet_body(_basic_block, (2, 2, 2, 2), stem, width)


@with_settings(
    example={},
    input=(3, 32, 32),
    classes=100,
    smallest=1,
    parameters=21328292,
)
def resnet34(*, stem: Stem = "3x3", width: Width = 64) -> Body:
    """Basic blocks 3, 4, 6, 3 (He et al., CVPR 2016); equal to torchvision's with a 3×3 stem and no max-pooling."""
    return _resnet_body(_basic_block, (3, 4, 6, 3), stem, width)


@with_settings(
    example={"weights": "imagenet"},
    input=(3, 224, 224),
    classes=14,
    smallest=1,
    parameters=23536718,
)
def resnet50(
    *,
    stem: Annotated[
        Stem,
        Field(
            description="First convolution: 7x7 of stride 2 with max-pooling (224×224 images), or 3x3 of stride 1 "
            "(32×32)."
        ),
    ] = "7x7",
) -> Body:
    """Bottleneck blocks 3, 4, 6, 3 (He et al., CVPR 2016), the stride on the 3×3 convolution.

    It is equal to torchvision's net and has 2048 features. torchvision calls this position of the stride "v1.5".
    """
    return _resnet_body(_bottleneck_block, (3, 4, 6, 3), stem)


def _resnet_body(block: Block, counts: tuple[int, ...], stem: str, width: int = 64) -> Body:
    def run_body(ops: Ops, x: Tensor) -> Tensor:
        if stem == "3x3":
            x = ops.norm("bn1", ops.conv("conv1", x, width, 3, pad=1, bias=False))
        else:  # ReLU after the pooling gives the same result for a quarter of the work
            x = F.max_pool2d(ops.norm("bn1", ops.conv("conv1", x, width, 7, 2, 3, bias=False)), 3, 2, 1)
        x = torch.relu_(x)
        for stage, count in enumerate(counts):
            for k in range(count):
                x = block(ops, x, f"layer{stage + 1}.{k}", width << stage, 2 if stage and not k else 1)
        return x.mean((2, 3))

    run_body.head_name = "fc"  # type: ignore[attr-defined]  # as torchvision calls it
    return run_body


def _basic_block(ops: Ops, x: Tensor, name: str, width: int, stride: int) -> Tensor:
    y = torch.relu_(ops.norm(f"{name}.bn1", ops.conv(f"{name}.conv1", x, width, 3, stride, 1, bias=False)))
    y = ops.norm(f"{name}.bn2", ops.conv(f"{name}.conv2", y, width, 3, 1, 1, bias=False))
    return torch.relu_(y.add_(_add_shortcut(ops, x, name, width, stride)))


def _bottleneck_block(ops: Ops, x: Tensor, name: str, width: int, stride: int) -> Tensor:
    y = torch.relu_(ops.norm(f"{name}.bn1", ops.conv(f"{name}.conv1", x, width, 1, bias=False)))
    y = torch.relu_(ops.norm(f"{name}.bn2", ops.conv(f"{name}.conv2", y, width, 3, stride, 1, bias=False)))
    y = ops.norm(f"{name}.bn3", ops.conv(f"{name}.conv3", y, 4 * width, 1, bias=False))
    return torch.relu_(y.add_(_add_shortcut(ops, x, name, 4 * width, stride)))


def _add_shortcut(ops: Ops, x: Tensor, name: str, width: int, stride: int) -> Tensor:
    """`x` itself, or a 1x1 convolution with batch norm where the shape changes."""
    if stride == 1 and x.shape[1] == width:
        return x
    if x.shape[1] < 16:  # oneDNN's issue 6035: its gradient of a 1x1 convolution with a stride crashes, or is wrong
        x, stride = x[:, :, ::stride, ::stride], 1
    return ops.norm(f"{name}.downsample.1", ops.conv(f"{name}.downsample.0", x, width, 1, stride, bias=False))

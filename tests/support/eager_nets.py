"""The nets once more, as ordinary modules written from the layer lists, for tests and benchmarks.

Plain on purpose: activation before pooling, fixed average windows, `nn.Dropout2d`. Tensor names are the library's.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fednoise_core.ops.weights import Weights


def copy_into(module: nn.Module, w: Weights) -> None:
    """Load weights and statistics by name. Both sides must have the same names, batch norm's counters apart."""
    missing, unexpected = module.load_state_dict(w.named(), strict=False)
    left = [name for name in missing if not name.endswith("num_batches_tracked")]
    assert not left, left
    assert not unexpected, unexpected


def conv_norm(into: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    return nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)


def make_linear(channels: int, side: int, classes: int) -> nn.Module:
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), head=nn.Linear(channels * side * side, classes)))


def make_mlp(channels: int, side: int, classes: int) -> nn.Module:
    hidden, head = nn.Linear(channels * side * side, 64), nn.Linear(64, classes)
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), hidden=hidden, act=nn.ReLU(), head=head))


class SmallCNN(nn.Module):
    """`norm`: batch norm between each pooling and its ReLU."""

    def __init__(self, channels: int, side: int, classes: int, width: int = 8, hidden: int = 64, norm: bool = False):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, padding=1)
        if norm:
            self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(2 * width)
        self.pool, self.norm = nn.MaxPool2d(2), norm
        self.hidden = nn.Linear(2 * width * (side // 4) ** 2, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        if self.norm:
            x = torch.relu(self.bn1(self.pool(self.conv1(x))))
            x = torch.relu(self.bn2(self.pool(self.conv2(x))))
        else:
            x = self.pool(torch.relu(self.conv2(self.pool(torch.relu(self.conv1(x))))))
        return self.head(torch.relu(self.hidden(x.reshape(len(x), -1))))


class LeNet(nn.Module):
    def __init__(self, channels: int, side: int, classes: int):
        super().__init__()
        self.border = nn.ZeroPad2d((32 - side) // 2)
        self.conv1, self.conv2 = nn.Conv2d(channels, 6, 5), nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.fc2, self.head = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.conv2(self.pool(torch.relu(self.conv1(self.border(x)))))))
        return self.head(torch.relu(self.fc2(torch.relu(self.fc1(x.reshape(len(x), -1))))))


class CNN9(nn.Module):
    """Co-teaching's net. `masks` (two tensors [B, C] of 0 and 1/(1 - rate)) stand in for the dropout if given."""

    def __init__(self, channels: int, side: int, classes: int, rate: float = 0.25, width: int = 128):
        super().__init__()
        narrow, middle, wide = width, 2 * width, 4 * width
        widths = [channels, narrow, narrow, narrow, middle, middle, middle, wide, middle, narrow]
        for k in range(1, 10):
            setattr(self, f"conv{k}", nn.Conv2d(widths[k - 1], widths[k], 3, padding=1 if k < 7 else 0))
            setattr(self, f"bn{k}", nn.BatchNorm2d(widths[k]))
        self.pool, self.drop, self.act = nn.MaxPool2d(2), nn.Dropout2d(rate), nn.LeakyReLU(0.01)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        for k in range(1, 10):
            x = self.act(getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(x)))
            if k in (3, 6):
                x = self.pool(x)
                x = self.drop(x) if masks is None else x * masks[k // 3 - 1][:, :, None, None]
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Basic(nn.Module):
    def __init__(self, into: int, out: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(into, out, 3, stride)
        self.conv2, self.bn2 = conv_norm(out, out, 3)
        changes = stride > 1 or into != out
        self.downsample = nn.Sequential(*conv_norm(into, out, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, channels: int, side: int, classes: int, blocks: Sequence[int], width: int = 64):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(channels, width, 3)
        into = width
        for stage, count in enumerate(blocks):
            out = width * 2**stage
            units = [Basic(into if k == 0 else out, out, 2 if stage and k == 0 else 1) for k in range(count)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*units))
            into = out
        self.pool = nn.AvgPool2d(4)
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.head(self.pool(x).flatten(1))


class Separable(nn.Module):
    def __init__(self, into: int, out: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(into, into, 3, stride, into)
        self.conv2, self.bn2 = conv_norm(into, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class MobileNetV1(nn.Module):
    def __init__(self, channels: int, side: int, classes: int, width: int = 32):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(channels, width, 3)
        widths = [width * times for times in (1, 2, 4, 4, 8, 8, 16, 16, 16, 16, 16, 16, 32, 32)]
        for k in range(1, 14):
            setattr(self, f"block{k}", Separable(widths[k - 1], widths[k], 2 if k in (2, 4, 6, 12) else 1))
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(32 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        for k in range(1, 14):
            x = getattr(self, f"block{k}")(x)
        return self.head(self.pool(x).flatten(1))


class Inverted(nn.Module):
    def __init__(self, into: int, out: int, expansion: int, stride: int):
        super().__init__()
        wide = into * expansion
        self.stride = stride
        self.conv1, self.bn1 = conv_norm(into, wide, 1)
        self.conv2, self.bn2 = conv_norm(wide, wide, 3, stride, wide)
        self.conv3, self.bn3 = conv_norm(wide, out, 1)
        changes = stride == 1 and into != out
        self.shortcut = nn.Sequential(*conv_norm(into, out, 1)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(y)))))
        return y + self.shortcut(x) if self.stride == 1 else y


class MobileNetV2(nn.Module):
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, channels: int, side: int, classes: int, width: int = 32):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(channels, width, 3)
        into = width
        for stage, (expansion, full, count, stride) in enumerate(self.STAGES, 1):
            out = full * width // 32
            units = [Inverted(out if k else into, out, expansion, 1 if k else stride) for k in range(count)]
            setattr(self, f"layer{stage}", nn.Sequential(*units))
            into = out
        self.conv2, self.bn2 = conv_norm(10 * width, 40 * width, 1)
        self.pool = nn.AvgPool2d(4)
        self.head = nn.Linear(40 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        for stage in range(1, 8):
            x = getattr(self, f"layer{stage}")(x)
        return self.head(self.pool(torch.relu(self.bn2(self.conv2(x)))).flatten(1))


class Unit(nn.Module):
    def __init__(self, into: int, out: int, stride: int):
        super().__init__()
        main = out - into if stride == 2 else out
        self.stride, self.groups = stride, 1 if into == 24 else 2
        self.conv1, self.bn1 = conv_norm(into, main // 4, 1, groups=self.groups)
        self.conv2, self.bn2 = conv_norm(main // 4, main // 4, 3, stride, main // 4)
        self.conv3, self.bn3 = conv_norm(main // 4, main, 1, groups=2)
        self.pool = nn.AvgPool2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        n, c, h, w = y.shape
        y = y.contiguous().view(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(n, c, h, w)
        y = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(y)))))
        return torch.relu(torch.cat([y, self.pool(x)], 1) if self.stride == 2 else y + x)


class ShuffleNet(nn.Module):
    def __init__(self, channels: int, side: int, classes: int, width: int = 200):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(channels, 24, 1)
        into = 24
        for stage, (out, count) in enumerate(((width, 4), (2 * width, 8), (4 * width, 4)), 1):
            units = [Unit(out if k else into, out, 1 if k else 2) for k in range(count)]
            setattr(self, f"layer{stage}", nn.Sequential(*units))
            into = out
        self.pool = nn.AvgPool2d(4)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(self.pool(self.layer3(self.layer2(self.layer1(x)))).flatten(1))


def eager(name: str, channels: int, side: int, classes: int, **options: Any) -> nn.Module:
    """The module that corresponds to the net `name` with `options` for `channels` x `side` x `side` images."""
    blocks = {"resnet10": (1, 1, 1, 1), "resnet12": (2, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
    if name in blocks:
        return ResNet(channels, side, classes, blocks[name], **options)
    modules: dict[str, Any] = {
        "linear": make_linear, "mlp": make_mlp, "small_cnn": SmallCNN, "lenet": LeNet, "cnn9": CNN9,
        "mobilenet_v1": MobileNetV1, "mobilenet_v2": MobileNetV2, "shufflenet": ShuffleNet,
    }  # fmt: skip
    return modules[name](channels, side, classes, **options)

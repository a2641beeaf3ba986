"""What a step costs with a torch.nn.Module of one's own, beside the same architecture of the library: docs/nets.md.

python -m benchmarks.own_module
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fednoise_core.nets import build_net
from fednoise_core.nets.net import Net
from fednoise_core.ops.optim import Trained, make_optimiser

BATCH = 32


class SmallCnn(nn.Module):
    """The library's small_cnn as an ordinary module."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: int = 8, hidden: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.hidden = nn.Linear(2 * width * (shape[1] // 4) * (shape[2] // 4), hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(F.max_pool2d(self.conv1(x), 2))
        x = torch.relu(F.max_pool2d(self.conv2(x), 2))
        return self.head(torch.relu(self.hidden(x.flatten(1))))


def mlp(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The library's mlp as an ordinary module."""
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 64), nn.ReLU(), nn.Linear(64, classes))


def resnet18(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """torchvision's, with the library's stem for small images."""
    from torchvision.models import resnet18 as theirs

    module = theirs(num_classes=classes)
    module.conv1, module.maxpool = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False), nn.Identity()
    return module


CASES: list[tuple[str, Callable[..., nn.Module], tuple[int, int, int], int]] = [  # …, steps a measurement
    ("mlp", mlp, (1, 28, 28), 100),
    ("small_cnn", SmallCnn, (1, 8, 8), 100),
    ("small_cnn", SmallCnn, (1, 28, 28), 40),
    ("resnet18", resnet18, (3, 32, 32), 1),
]


def step_ms(net: Net, steps: int, repeats: int = 5) -> float:
    """The least CPU time of a step of SGD, in ms, of several measurements."""
    trained = Trained(net.layout, make_optimiser("sgd"))
    trained.load(net.fresh(torch.Generator().manual_seed(0)))
    channels, height, width = net.shape
    x = torch.rand(BATCH, height, width, channels).permute(0, 3, 1, 2)
    y = torch.arange(BATCH) % net.classes
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(steps):
            trained.backward(F.cross_entropy(net.train(trained.w, x), y))
            trained.update(0.01)
        best = min(best, (time.process_time() - began) / steps)
    return 1000 * best


def measured(name: str, factory: Callable[..., nn.Module], shape: tuple[int, int, int], steps: int) -> dict[str, Any]:
    """Both ways of one architecture. Raises ValueError if they do not have the same parameters."""
    theirs = {"name": "module", "factory": f"{factory.__module__}:{factory.__name__}"}
    nets = build_net(name, shape, 10), build_net(theirs, shape, 10)
    if nets[0].parameters != nets[1].parameters:
        raise ValueError(f"{name}: {nets[0].parameters} and {nets[1].parameters} parameters")
    ours, own = (step_ms(net, steps) for net in nets)
    return {"net": name, "images": "×".join(map(str, shape)), "library": ours, "module": own, "ratio": own / ours}


def main() -> None:
    """Print the table of docs/nets.md."""
    torch.set_num_threads(1)
    print("| net | images | library | module | ratio |\n|---|---|---|---|---|")
    for case in CASES:
        row = measured(*case)
        print("| `{net}` | {images} | {library:.2f} | {module:.2f} | {ratio:.1f} |".format(**row), flush=True)


if __name__ == "__main__":
    main()

"""A user's own nets. The examples in docs/nets.md and on the reference page name this file."""

import math

import torch
from torch import nn


def make(shape: tuple[int, int, int], classes: int, hidden: int = 64) -> nn.Module:
    """Two linear layers, as the library's mlp."""
    channels, height, width = shape
    inputs = channels * height * width
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def make_normed_head(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A linear layer after batch normalisation, both within a part that is called head."""
    size, net = math.prod(shape), nn.Sequential(nn.Flatten())
    net.add_module("head", nn.Sequential(nn.BatchNorm1d(size), nn.Linear(size, classes)))
    return net


class Normed(nn.Module):
    """Convolutions with batch normalisation and dropout, and a buffer that is no weight."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.drop, self.drop2 = nn.Dropout2d(0.25), nn.Dropout(0.5)
        self.classifier = nn.Linear(6, classes)
        self.register_buffer("steps", torch.arange(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.drop2(self.drop(self.stem(x)).mean((2, 3))))

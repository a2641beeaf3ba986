"""The reference of benchmarks: FedAvg as a plain PyTorch script, as it is usually written. It has a DataLoader over
ready tensors, a deep copy of the model per client, and averages state dicts, on one thread and without fednoise_core.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def cnn(side: int = 28) -> nn.Module:
    """The library's small CNN: 52,138 parameters for 28x28."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (side // 4) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def mlp(side: int = 28) -> nn.Module:
    """784-64-10: 50,890 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(side * side, 64), nn.ReLU(), nn.Linear(64, 10))


class PlainFedAvg:
    """x [n, 1, H, W] float32, y [n], parts: one index list per client."""

    def __init__(
        self,
        model: nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        parts: list[torch.Tensor],
        lr: float,
        momentum: float,
        epochs: int,
        batch: int,
    ):
        self.model, self.lr, self.momentum, self.epochs = model, lr, momentum, epochs
        self.loaders = [DataLoader(TensorDataset(x[p], y[p]), batch_size=batch, shuffle=True) for p in parts]
        self.sizes = [len(p) for p in parts]

    def round(self, who: list[int]) -> None:
        """One round on the clients `who`."""
        states = []
        for client in who:
            local = copy.deepcopy(self.model)
            local.train()
            optimiser = torch.optim.SGD(local.parameters(), lr=self.lr, momentum=self.momentum)
            for _ in range(self.epochs):
                for xb, yb in self.loaders[client]:
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(local(xb), yb).backward()
                    optimiser.step()
            states.append(copy.deepcopy(local.state_dict()))
        total = sum(self.sizes[c] for c in who)
        mean = {k: sum(s[k] * (self.sizes[c] / total) for s, c in zip(states, who, strict=True)) for k in states[0]}
        self.model.load_state_dict(mean)

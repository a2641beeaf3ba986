"""Work of every contender, and its timing: settings, data, net and clock.

This module runs in the environments of the peers, so it imports torch and numpy only.
"""

import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import plain
from benchmarks.peers.tree import TICK, cpu_seconds

MEAN, STD = 0.5, 0.29
EVAL_BATCH = 1000
READY, OVER = "# ready", "# over"  # a contender prints READY before it waits, and OVER after the last round


@dataclass(frozen=True)
class Work:
    """Settings of FedAvg: in each round `cohort` of `clients` clients train for `epochs` epochs by SGD with momentum.

    Attributes:
        samples: Images per client.
        warm_up: Rounds that are not timed.
        rounds: Timed rounds, in turns of `per_turn`.
        test: Test images that are evaluated after every round; 0 for none.
        pool: Training images of all clients. Each client has a slice of them, and slices overlap if there are too few.
        uneven: Whether clients have different numbers of images.
        processes: Processes in which the peer may train.
    """

    net: str = "small_cnn"
    clients: int = 100
    cohort: int = 10
    samples: int = 200
    epochs: int = 5
    batch: int = 32
    lr: float = 0.01
    momentum: float = 0.9
    warm_up: int = 1
    rounds: int = 2
    per_turn: int = 1
    test: int = 0
    pool: int = 20_000
    uneven: bool = False
    processes: int = 1

    @property
    def parts(self) -> list[slice]:
        """The rows of the pool that each client has."""
        sizes = [self.samples - 7 * (c % 3) * self.uneven for c in range(self.clients)]
        room = self.pool - self.samples + 1
        starts = [c * self.samples % room for c in range(self.clients)]
        return [slice(a, a + n) for a, n in zip(starts, sizes, strict=True)]


def make_images(work: Work, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make images uint8 [pool + test, 28, 28] of noise with a faint pattern for each class, and their labels.

    Three labels in ten are random, so the loss decreases but stays far from 0.
    """
    rng = np.random.default_rng(seed)
    n = work.pool + work.test
    pattern, true = rng.integers(0, 256, (10, 28, 28), dtype=np.uint8), rng.integers(0, 10, n)
    x = rng.integers(0, 192, (n, 28, 28), dtype=np.uint8)
    for a in range(0, n, 10_000):
        x[a : a + 10_000] += pattern[true[a : a + 10_000]] // 4
    return x, np.where(rng.random(n) < 0.3, rng.integers(0, 10, n), true)


def make_tensors(work: Work) -> tuple[Tensor, Tensor]:
    """Make the images as normalised float tensors [pool + test, 1, 28, 28], test images last, and their labels."""
    x, y = make_images(work)
    out = torch.empty(len(x), 1, 28, 28)
    out[:, 0] = torch.from_numpy(x)  # in place from here on, since copies would raise the peak of memory
    return out.div_(255.0).sub_(MEAN).div_(STD), torch.from_numpy(y)


def make_net(name: str) -> nn.Module:
    """Make the net, with the same initial weights for every contender."""
    torch.manual_seed(0)
    return plain.cnn() if name == "small_cnn" else plain.mlp()


TRAINED = [0, 0]  # training steps and images that passed through nets of this process


def count_training(model: nn.Module) -> nn.Module:
    """Count the training passes of a net and of its copies in TRAINED."""

    def count(module: nn.Module, args: Any) -> None:
        if module.training:
            TRAINED[0] += 1
            TRAINED[1] += len(args[0])

    model.register_forward_pre_hook(count)
    return model


def make_loader(x: Tensor, y: Tensor, batch: int, shuffle: bool = True) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=batch, shuffle=shuffle)


def train_locally(model: nn.Module, batches: Any, work: Work) -> None:
    """Train a client, as a user writes it for a framework without local training of its own."""
    optimiser = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=work.momentum)
    model.train()
    for _ in range(work.epochs):
        for x, y in batches:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()


@torch.no_grad()
def evaluate(model: nn.Module, batches: Any) -> tuple[float, float]:
    """Compute mean loss and accuracy, as a user writes it."""
    model.eval()
    loss = right = count = 0.0
    for x, y in batches:
        logits = model(x)
        loss += float(nn.functional.cross_entropy(logits, y, reduction="sum"))
        right += float((logits.argmax(1) == y).sum())
        count += len(y)
    return loss / count, right / count


class Clock:
    """Times rounds. `start` comes before the first round and `tick` after each. Between turns both wait for stdin."""

    def __init__(self, work: Work, began: float):
        self.work, self.began = work, began
        self.count = 0
        self.facts: dict[str, Any] = {"cpu_s": [], "round_s": []}

    def start(self) -> None:
        self.facts["setup_s"] = time.time() - self.began
        self._wait()

    def tick(self) -> None:
        self.count += 1
        turn = self.count - self.work.warm_up
        if turn == 0:
            self.facts["warm_up_s"] = time.perf_counter() - self.last
            self._wait()
        elif turn > 0 and turn % self.work.per_turn == 0:
            wall, cpu = time.perf_counter() - self.last, cpu_seconds(os.getpid()) - self.cpu
            self.facts["round_s"].append(wall / self.work.per_turn)
            self.facts["cpu_s"].append(max(cpu, 1 / TICK) / self.work.per_turn)  # a miniature may need less than a tick
            if turn < self.work.rounds:
                self._wait()

    def _wait(self) -> None:
        print(f"\n{READY}", flush=True)
        sys.stdin.readline()
        self.cpu, self.last = cpu_seconds(os.getpid()), time.perf_counter()

    def result(self) -> dict[str, Any]:
        assert self.count == self.work.warm_up + self.work.rounds, f"{self.count} rounds"
        return self.facts


def describe_result(work: Work, weights: list[Tensor]) -> dict[str, Any]:
    """Compute numbers that are equal if two contenders computed the same.

    They are the loss on 2,000 images before and after training, the norm of the change of the weights, and eight random
    projections of this change.
    """
    x, y = make_tensors(work)
    batch, model = [(x[:2000], y[:2000])], make_net(work.net)
    first = torch.cat([p.detach().flatten() for p in model.parameters()])
    before = evaluate(model, batch)[0]
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights, strict=True):
            p.copy_(torch.as_tensor(w).reshape(p.shape))
    change = torch.cat([p.detach().flatten() for p in model.parameters()]).double() - first
    directions = torch.randn(8, len(change), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return {
        "loss_before": before,
        "loss_after": evaluate(model, batch)[0],
        "moved": float(change.norm()),
        "projections": (directions @ change).tolist(),
    }

"""Rounds on the toy world in float64, and what a second implementation of a method is written with: ordinary modules,
autograd and torch.optim on the batches that the engine handed out.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import toy
from torch import Tensor, nn
from torch.nn import functional as F

from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Batch
from fednoise_core.engine.state import State
from fednoise_core.methods import method_class
from fednoise_core.nets.net import Ops
from fednoise_core.ops.weights import Weights
from fednoise_core.settings.declare import build_settings

Batches = dict[tuple[int, int], list[tuple[Tensor, Tensor]]]  # (round, client) -> x, y of each of its steps


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """New tensors are float64, those of weights and optimisers too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def perceptron(ops: Ops, x: Tensor) -> Tensor:
    return torch.relu(ops.linear("hidden", x.double().flatten(1), 6))


def module_of(flat: Tensor) -> nn.Sequential:
    """The same net as a torch module with these numbers; its parameters come in the order of the flat vector."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 5)).to(flat.dtype)
    nn.utils.vector_to_parameters(flat.clone(), module.parameters())
    return module


def vector(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def rounds(
    name: str,
    fields: dict[str, Any],
    count: int = 3,
    keep: Callable[[Batch], Any] = lambda batch: (batch.x.double(), batch.y.clone()),
    **train: Any,
) -> tuple[Federation, State, Batches, Tensor]:
    """Play rounds of a method in float64. Returns the world, its last state, what `keep` takes from the batches of
    every fit, and the first model.
    """
    seen: Batches = {}

    class Watched(method_class(name)):  # type: ignore[misc]
        def prepare_fit(self, client, broadcast):
            seen[client.round, client.id] = seen["now"] = []  # type: ignore[index]
            return super().prepare_fit(client, broadcast)

        def train_step(self, net, carry, batch, broadcast, client_state):
            seen["now"].append(keep(batch))  # type: ignore[index]
            super().train_step(net, carry, batch, broadcast, client_state)

        def compute_loss(self, logits, y):  # the library's is in float32
            return F.cross_entropy(logits, y, reduction="none")

    fed = toy.toy_federation(train=train, net=toy.toy_net(perceptron))
    method = build_settings(Watched, fields, "method", train=fed.train)
    state = method.init_state(fed)
    start = state.server["model"].flat.clone()
    assert start.dtype == torch.float64
    for state.round in range(1, count + 1):
        method.run_round(fed, state)
    seen.pop("now")  # type: ignore[call-overload]
    return fed, state, seen, start


def train(
    flat: Tensor, batches: list[tuple[Tensor, Tensor]], penalty: Callable[[Tensor], Tensor], lr: float, **options: float
) -> Tensor:
    """Torch's SGD on cross entropy plus penalty(theta), from and to flat numbers."""
    module = module_of(flat)
    optimiser = torch.optim.SGD(module.parameters(), lr, **options)
    for x, y in batches:
        optimiser.zero_grad()
        theta = nn.utils.parameters_to_vector(module.parameters())
        (F.cross_entropy(module(x), y) + penalty(theta)).backward()
        optimiser.step()
    return vector(module)


def step(flat: Tensor, loss: Callable[[nn.Module], Tensor], lr: float) -> Tensor:
    """Flat numbers after one step of plain gradient descent on a loss of the module."""
    module = module_of(flat)
    loss(module).backward()
    torch.optim.SGD(module.parameters(), lr).step()
    return vector(module)


def cohort(seen: Batches, round: int) -> list[int]:
    return [client for number, client in seen if number == round]


def mean(new: dict[int, Tensor], by: str = "samples") -> Tensor:
    """The weighted mean of clients' numbers, as FedAvg merges them."""
    share = {c: toy.SIZES[c] if by == "samples" else 1 for c in new}
    return sum(share[c] * theta for c, theta in new.items()) / sum(share.values())  # type: ignore[return-value]


def close(a: Tensor | Weights, b: Tensor) -> None:
    """Assert equality within 1e-9."""
    flat = a.flat if isinstance(a, Weights) else a
    assert flat.dtype == b.dtype == torch.float64
    torch.testing.assert_close(flat, b, rtol=0, atol=1e-9)

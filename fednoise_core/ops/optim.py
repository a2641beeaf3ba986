"""Optimisers as update rules over flat buffers, and Trained: one set of weights while it is being trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fednoise_core.ops.weights import Layout, Weights

__all__ = ["SGD", "Adam", "Optimiser", "Trained", "backward", "make"]

_ENGINE = torch.autograd.Variable._execution_engine


@dataclass(frozen=True)
class SGD:
    """m <- momentum*m + g + weight_decay*w; w <- w - lr*m. As torch.optim.SGD without dampening. clip: gradient norm, 0
    = off.
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0

    def memory(self, w: Tensor) -> tuple[Tensor, ...]:
        """The momentum [trained], zero; nothing without momentum."""
        return (torch.zeros_like(w),) if self.momentum else ()

    def update(self, w: Tensor, grad: Tensor, memory: tuple[Tensor, ...], lr: float | Tensor) -> None:
        """Change w [trained] and the memory in place along grad [trained], which is used up."""
        if self.clip:
            _clip(grad, self.clip)
        if self.weight_decay:
            grad.add_(w, alpha=self.weight_decay)
        if self.momentum:
            grad = memory[0].mul_(self.momentum).add_(grad)
        _descend(w, grad, lr)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, ICLR 2015) with bias correction; weight_decay is added to the gradient, as torch.optim.Adam
    does.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 0.0

    def memory(self, w: Tensor) -> tuple[Tensor, ...]:
        """First and second moment [trained], and the number of steps; all zero."""
        return torch.zeros_like(w), torch.zeros_like(w), torch.zeros((), dtype=torch.float64, device=w.device)

    def update(self, w: Tensor, grad: Tensor, memory: tuple[Tensor, ...], lr: float | Tensor) -> None:
        """Change w [trained] and the memory in place along grad [trained], which is used up."""
        if self.clip:
            _clip(grad, self.clip)
        if self.weight_decay:
            grad.add_(w, alpha=self.weight_decay)
        first, second, step = memory
        step.add_(1)  # a tensor, so that a captured step counts too
        first.lerp_(grad, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        unbias1 = (1 - torch.exp(step * math.log(self.beta1))).to(w.dtype)
        unbias2 = (1 - torch.exp(step * math.log(self.beta2))).to(w.dtype)
        _descend(w, (first / unbias1).div_((second / unbias2).sqrt_().add_(self.eps)), lr)


Optimiser = SGD | Adam


def make(name: str, *, momentum: float = 0.0, weight_decay: float = 0.0, clip: float = 0.0) -> Optimiser:
    """The optimiser of a run's training settings ("sgd" or "adam")."""
    return SGD(momentum, weight_decay, clip) if name == "sgd" else Adam(weight_decay=weight_decay, clip=clip)


def _descend(w: Tensor, direction: Tensor, lr: float | Tensor) -> None:
    if isinstance(lr, Tensor):  # in a captured step the rate lives on the device
        w.sub_(direction * lr)
    else:
        w.add_(direction, alpha=-lr)


def _clip(grad: Tensor, limit: float) -> None:
    grad.mul_((limit / (grad.norm() + 1e-6)).clamp_max_(1.0))


class Trained:
    """Weights in training: leaf views over one flat buffer whose gradients are views of another, and the optimiser's
    memory.

    Made once per lane and layout and loaded for each client, because making leaves costs more than a small step.
    """

    def __init__(self, layout: Layout, optimiser: Optimiser, device: torch.device | str = "cpu"):
        flat = torch.zeros(layout.size, device=device)
        self.layout, self.optimiser = layout, optimiser
        self.w = Weights(layout, flat)
        self.grad = torch.zeros(layout.trained, device=device)  # flat gradient [layout.trained]
        self._vector = self.w.trained
        self.memory = optimiser.memory(self._vector)
        self._one = torch.ones((), device=device)  # the gradient of the loss for itself
        views = {}
        for entry in layout.entries:
            view = layout.view(flat, entry)
            if entry.kind != "stat":
                view = view.detach().requires_grad_()  # a leaf that shares the buffer's storage
                view.grad = layout.view(self.grad, entry)
            views[entry.name] = view
        self.w.__dict__["views"] = views
        self._leaves = tuple(view for view in views.values() if view.requires_grad)
        self.alone = True  # whether nothing else is trained beside it: then a loss leads to its leaves only

    def load(self, start: Weights, memory: Sequence[Tensor] | None = None) -> None:
        """Start from these values, with a fresh optimiser or one that goes on from `memory` (what `remember` gave)."""
        with torch.no_grad():
            self.w.flat.copy_(start.flat)
            for k, tensor in enumerate(self.memory):
                tensor.copy_(memory[k]) if memory is not None else tensor.zero_()

    def remember(self) -> list[Tensor]:
        """A copy of the optimiser's memory."""
        return [tensor.clone() for tensor in self.memory]

    def backward(self, loss: Tensor) -> Tensor:
        """The gradient of a scalar loss as one flat vector [layout.trained], which may be changed before `update`.

        Only these weights get a gradient, also if the loss depends on other carried ones: for several at once,
        `backward(loss, …)` of this module.
        """
        self.grad.zero_()
        # Tensor.backward() checks and wraps its arguments for 15 % of a small step; this is the call that it makes
        leaves = () if self.alone else self._leaves
        _ENGINE.run_backward((loss,), (self._one,), False, False, leaves, allow_unreachable=True, accumulate_grad=True)
        return self.grad

    def update(self, lr: float | Tensor) -> None:
        """One optimiser step along `grad`."""
        with torch.no_grad():
            self.optimiser.update(self._vector, self.grad, self.memory, lr)

    def values(self) -> Weights:
        """A copy of the present weights."""
        return Weights(self.layout, self.w.flat.detach().clone())


def backward(loss: Tensor, *trained: Trained) -> list[Tensor]:
    """The gradients of one scalar loss for several carried weights, each as its flat vector [layout.trained]."""
    for one in trained:
        one.grad.zero_()
    leaves = tuple(leaf for one in trained for leaf in one._leaves)
    ones = (trained[0]._one,)
    _ENGINE.run_backward((loss,), ones, False, False, leaves, allow_unreachable=True, accumulate_grad=True)
    return [each.grad for each in trained]

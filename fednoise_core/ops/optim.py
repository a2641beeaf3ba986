"""Optimisers as update rules on flat buffers, and Trained, which holds weights during training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fednoise_core.ops.weights import Layout, Weights

_ENGINE = torch.autograd.Variable._execution_engine


@dataclass(frozen=True)
class SGD:
    """Gradient descent, m <- momentum*m + g + weight_decay*w and w <- w - lr*m, as torch.optim.SGD without dampening.

    Attributes:
        momentum: Momentum coefficient.
        weight_decay: Share of the weights added to the gradient.
        clip: Largest gradient norm. 0 is off.
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0

    def memory(self, w: Tensor) -> tuple[Tensor, ...]:
        """Memory at the start.

        Args:
            w: Trained weights [trained].

        Returns:
            The momentum [trained], zero. Nothing without momentum.
        """
        return (torch.zeros_like(w),) if self.momentum else ()

    def update(self, w: Tensor, grad: Tensor, memory: tuple[Tensor, ...], lr: float) -> None:
        """Take one step in place.

        Args:
            w: Trained weights [trained]. They change.
            grad: Gradient [trained]. It is used up.
            memory: What `memory` returned. It changes.
            lr: Learning rate.
        """
        if self.clip:
            _clip_norm(grad, self.clip)
        if self.weight_decay:
            grad.add_(w, alpha=self.weight_decay)
        if self.momentum:
            grad = memory[0].mul_(self.momentum).add_(grad)
        w.add_(grad, alpha=-lr)


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction (Kingma and Ba, ICLR 2015, Alg. 1), as torch.optim.Adam.

    Attributes:
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        eps: Number added to the denominator.
        weight_decay: Share of the weights added to the gradient.
        clip: Largest gradient norm. 0 is off.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 0.0

    def memory(self, w: Tensor) -> tuple[Tensor, ...]:
        """Memory at the start.

        Args:
            w: Trained weights [trained].

        Returns:
            First and second moment [trained], and the number of steps. All are zero.
        """
        return torch.zeros_like(w), torch.zeros_like(w), torch.zeros((), dtype=torch.float64, device=w.device)

    def update(self, w: Tensor, grad: Tensor, memory: tuple[Tensor, ...], lr: float) -> None:
        """Take one step in place.

        Args:
            w: Trained weights [trained]. They change.
            grad: Gradient [trained]. It is used up.
            memory: What `memory` returned. It changes.
            lr: Learning rate.
        """
        if self.clip:
            _clip_norm(grad, self.clip)
        if self.weight_decay:
            grad.add_(w, alpha=self.weight_decay)
        first, second, step = memory
        step.add_(1)
        first.lerp_(grad, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        unbias1 = (1 - torch.exp(step * math.log(self.beta1))).to(w.dtype)
        unbias2 = (1 - torch.exp(step * math.log(self.beta2))).to(w.dtype)
        w.add_((first / unbias1).div_((second / unbias2).sqrt_().add_(self.eps)), alpha=-lr)


Optimiser = SGD | Adam


def make_optimiser(name: str, *, momentum: float = 0.0, weight_decay: float = 0.0, clip: float = 0.0) -> Optimiser:
    """Optimiser of a run's training settings.

    Args:
        name: "sgd" or "adam".
        momentum: Of SGD. Adam ignores it.
        weight_decay: Share of the weights added to the gradient.
        clip: Largest gradient norm. 0 is off.

    Returns:
        The update rule.
    """
    return SGD(momentum, weight_decay, clip) if name == "sgd" else Adam(weight_decay=weight_decay, clip=clip)


def _clip_norm(grad: Tensor, limit: float) -> None:
    grad.mul_((limit / (grad.norm() + 1e-6)).clamp_max_(1.0))


class Trained:
    """Weights in training, with the optimiser's memory.

    They are leaf views over one flat buffer. Their gradients are views of another. One Trained is made for each
    layout and loaded for each client, because making leaves costs more than a small step.

    Args:
        layout: Layout of the weights.
        optimiser: Update rule.
        device: Device of the buffers.

    Attributes:
        w: The weights.
        grad: Flat gradient [layout.trained].
        memory: Memory of the optimiser.
        alone: Whether no other weights are trained in the same fit.
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
        """Start from the given values.

        Args:
            start: Values to copy.
            memory: Result of `copy_memory`, to continue the optimiser. By default its memory is reset.
        """
        with torch.no_grad():
            self.w.flat.copy_(start.flat)
            for k, tensor in enumerate(self.memory):
                tensor.copy_(memory[k]) if memory is not None else tensor.zero_()

    def copy_memory(self) -> list[Tensor]:
        """Copy the optimiser's memory.

        Returns:
            Tensors for `load`.
        """
        return [tensor.clone() for tensor in self.memory]

    def backward(self, loss: Tensor) -> Tensor:
        """Compute the gradient of a scalar loss. It may be changed before `update`.

        Only these weights get a gradient, even if the loss depends on other weights in training. For several weights
        at once, use `compute_gradients`.

        Args:
            loss: Scalar that depends on these weights.

        Returns:
            Flat gradient [layout.trained], the tensor `grad`.
        """
        self.grad.zero_()
        # the internal call of Tensor.backward(), whose checks of arguments would take 15 % of a small step
        leaves = () if self.alone else self._leaves
        _ENGINE.run_backward((loss,), (self._one,), False, False, leaves, allow_unreachable=True, accumulate_grad=True)
        return self.grad

    def update(self, lr: float) -> None:
        """Take one optimiser step along `grad`.

        Args:
            lr: Learning rate.
        """
        with torch.no_grad():
            self.optimiser.update(self._vector, self.grad, self.memory, lr)

    def values(self) -> Weights:
        """Copy the present weights.

        Returns:
            Weights with a buffer of their own.
        """
        return Weights(self.layout, self.w.flat.detach().clone())


def compute_gradients(loss: Tensor, *trained: Trained) -> list[Tensor]:
    """Gradients of one scalar loss for several carried weights.

    Args:
        loss: Scalar that depends on the weights.
        *trained: Carried weights.

    Returns:
        A flat gradient [layout.trained] for each.
    """
    for part in trained:
        part.grad.zero_()
    leaves = tuple(leaf for part in trained for leaf in part._leaves)
    ones = (trained[0]._one,)
    _ENGINE.run_backward((loss,), ones, False, False, leaves, allow_unreachable=True, accumulate_grad=True)
    return [each.grad for each in trained]


def sum_momentum(steps: int, momentum: float) -> float:
    """Sum the weights of the gradients in the displacement after some steps with momentum (FedNova's a_i).

    Args:
        steps: Number of steps. The momentum buffer is 0 before them.
        momentum: Momentum coefficient.

    Returns:
        [steps - m (1 - m^steps)/(1 - m)]/(1 - m), which is `steps` without momentum.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)

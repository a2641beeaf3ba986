"""Local, Batch and Work: what one client does in a fit, what one step sees, and what a client prepares for itself.

The random numbers of a step come from `batch.u` and `batch.masks`. A layer of torch that draws its own is not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.io import SpecError
from fednoise_core.nets.net import Net
from fednoise_core.ops import losses, optim
from fednoise_core.ops.optim import Optimiser, Trained
from fednoise_core.ops.weights import Weights
from fednoise_core.settings.train import Train


@dataclass
class Batch:
    """Input of one step from one pool.

    `views` holds one tensor per entry of `Local.get_augmentations`; `x` is the first. `state` may be written: replace
    an entry, or change it in place, and the client's rows get the new numbers.
    """

    views: list[Tensor]  # each [B, C, H, W] float32, normalised
    y: Tensor  # [B] int64, or [B, K]: current target
    i: Tensor  # [B] int64: position among the client's samples
    u: Tensor  # [B, Local.draws] float32: uniform numbers for the method
    masks: Tensor  # [B, Local.passes * net.draws] float32: uniform numbers for dropout
    aux: dict[str, Tensor]  # per-sample data that `prepare_fit` asked for, gathered by i
    state: dict[str, Tensor] = field(default_factory=dict)  # per-sample numbers that steps may change, gathered by i
    more: dict[str, Batch] = field(default_factory=dict)  # batches of further pools, with random numbers of their own

    @property
    def x(self) -> Tensor:
        """The first view [B, C, H, W]."""
        return self.views[0]

    def drop(self, net: Net, k: int = 0) -> Tensor | None:
        """Select the dropout numbers of the step's k-th training pass.

        Returns:
            float32 [B, net.draws], or None if the net has no dropout.
        """
        return self.masks[:, k * net.draws : (k + 1) * net.draws] if net.draws else None


@dataclass
class Work:
    """Changes that `Local.prepare_fit` and `Local.between_epochs` make to a client's work. Nothing of it is sent."""

    samples: Tensor | None = None  # [m] int64, positions to train on, among the client's own (default: all)
    targets: Tensor | None = None  # [n] or [n, K]: targets of this fit only (default: the current ones)
    aux: dict[str, Tensor] = field(default_factory=dict)  # [n, …] each, handed out by batch
    # [n, …] each, handed out by batch, and what steps write is kept by the client under the same name
    state: dict[str, Tensor] = field(default_factory=dict)
    # further pools: name -> positions [m], batched beside the main one; left out if empty, or if the net cannot
    # normalise the only sample
    more: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # added to the `client_state` of this fit


class Local:
    """One client's part of a method.

    Everything here may touch the client's data through `client` and `batch`. Only the result of `make_update` and
    `after_fit`, without its "client_state", crosses to the server. The hooks share these arguments:

    - broadcast: what the server sent, plus "lr".
    - client_state: what this client keeps, plus `Work.facts`.
    - carry: the weights in training (`Trained`), by the names that `init_carry` gave them.
    """

    train: Train
    draws: int = 0  # uniform numbers per sample and step that the method uses
    passes: int = 1  # forward-backward passes of a step over its batch: for dropout and for the count of work

    def get_augmentations(self) -> list[Any]:
        """List one augmentation per view of a batch.

        The default is one view with `train.augment`.
        An entry is a name such as "none", or {"name": …, options…}.
        """
        return [self.train.augment]

    def make_optimiser(self, name: str) -> Optimiser:
        """Make the update rule for the carried weights `name`.

        Its memory starts afresh in every fit unless `restore_optimiser` returns an earlier one.
        The default is that of the training settings.
        """
        t = self.train
        return optim.make_optimiser(t.optimiser, momentum=t.momentum, weight_decay=t.weight_decay, clip=t.clip)

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Prepare the client's work before the first step.

        This is client-side code, whose result stays with the client.

        Returns:
            What differs from training on all samples with their current targets, or None.
        """
        return None

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        """Choose what is trained and from which values.

        Returns:
            Weights by name. Default: the broadcast model, as "model".
        """
        return {"model": broadcast["model"]}

    def restore_optimiser(
        self, name: str, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Sequence[Tensor] | None:
        """Choose the memory with which the optimiser of `name` goes on.

        Returns:
            The answer of `carry[name].copy_memory()`, as an earlier `make_update` kept it, or None to start afresh.
        """
        return None

    def compute_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the loss of each sample.

        Args:
            logits: [B, K].
            y: Targets, [B] int64 or [B, K].

        Returns:
            float32 [B]. Default: the cross entropy.
        """
        return losses.ce(logits, y)

    def compute_objective(
        self, net: Net, w: Weights, batch: Batch, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Tensor:
        """Compute the scalar that a step descends.

        The default is the mean of `compute_loss` over the batch.
        Methods that need other terms, such as a proximal one, override it.
        """
        logits = net.train(w, batch.x, batch.drop(net))
        if type(self).compute_loss is Local.compute_loss:  # loss and mean in one kernel: 8 % of the perceptron's step
            return losses.mean_ce(logits, batch.y)
        loss = self.compute_loss(logits, batch.y)
        if loss.shape not in (logits.shape[:1], ()):  # a mean is right, too
            shape = f"{list(loss.shape)} for {len(logits)} samples"
            raise SpecError(f"{type(self).__name__}.compute_loss: it gives {shape}; the loss of each is needed")
        return loss.mean()

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        """Change the flat gradient [trained] in place, after the backward pass and before the update.

        The default leaves it.
        The weights `w` are those at which it was computed.
        """

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        """Advance `carry` and `batch.state` by one step, and touch nothing else.

        The default descends `compute_objective` with `correct_gradient` at the rate broadcast["lr"].
        """
        model = carry["model"]
        grad = model.backward(self.compute_objective(net, model.w, batch, broadcast, client_state))
        self.correct_gradient(grad, model.w, broadcast, client_state)
        model.update(broadcast["lr"])

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        """Run client-side code after `epoch` epochs (1, 2, …, but not after the last).

        `carry[name].values()` is the model so far. What steps wrote into `batch.state` is in `client.state`.

        Returns:
            A Work, which replaces samples, targets, aux, further pools and facts for the epochs to come, and the
            entries of
            state that it names. None changes nothing.
        """
        return None

    def make_message(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Compute what a client tells the server before each step of `fed.fit_lockstep`.

        The server answers with what `train_step` finds in `broadcast`.

        Raises:
            TypeError: The method does not define it.
        """
        raise TypeError(f"{type(self).__name__} says nothing: a Local for fed.fit_lockstep defines `make_message`")

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        """Collect the update after `steps` steps.

        An entry "client_state" (a dict) stays and updates what the client keeps. An entry "relay" (a dict) is for
        other clients: the server passes it on with `fed.relayed_message` and cannot look at it.

        Returns:
            Values by name. Default: the trained model, as "model".
        """
        return {"model": carry["model"].values()}

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        """Run client-side code after `make_update`.

        It may measure with the trained model and replace entries of `client.state`.

        Returns:
            What is sent in place of `update`. Default: `update`.
        """
        return update

"""Local, Batch and Work: local training of one client, the input of one step, and a client's changes to its training.

The random numbers of a step come from `batch.u` and `batch.masks`. Layers of torch that draw random numbers are not
allowed.
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

    `views` holds one tensor per entry of `Local.get_augmentations`, and `x` is the first view. A step may write to
    `state`: if an entry is replaced or changed in place, the client's rows get the new values.
    """

    views: list[Tensor]  # each [B, C, H, W] float32, normalised
    y: Tensor  # [B] int64, or [B, K]: current target
    i: Tensor  # [B] int64: position among the client's samples
    u: Tensor  # [B, Local.draws] float32: uniform numbers for the method
    masks: Tensor  # [B, Local.passes * net.draws] float32: uniform numbers for dropout
    aux: dict[str, Tensor]  # per-sample data from `Work.aux`, gathered by i
    state: dict[str, Tensor] = field(default_factory=dict)  # per-sample values that steps may change, gathered by i
    more: dict[str, Batch] = field(default_factory=dict)  # batches of further pools, with their own random numbers

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
    """Changes that `Local.prepare_fit` and `Local.between_epochs` make to a client's training. They are never sent."""

    samples: Tensor | None = None  # [m] int64, positions of the samples to train on (default: all)
    targets: Tensor | None = None  # [n] or [n, K]: targets for this fit only (default: the current targets)
    aux: dict[str, Tensor] = field(default_factory=dict)  # [n, …] each: per-sample data for `Batch.aux`
    # [n, …] each: per-sample data for `Batch.state`; written values are stored in the client state under the same name
    state: dict[str, Tensor] = field(default_factory=dict)
    # further pools: name -> positions [m], with batches in `Batch.more`; a pool is left out if it is empty, or if it
    # has one sample and the net has batch norm
    more: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # added to the `client_state` of this fit


class Local:
    """Client-side part of a method.

    All functions here may access the client's data through `client` and `batch`. Only the result of `make_update` and
    `after_fit`, without its entry "client_state", is sent to the server. The hooks share these arguments:

    - broadcast: values that the server sent, and "lr".
    - client_state: the client state, and `Work.facts`.
    - carry: the weights in training (`Trained`), by the names from `init_carry`.
    """

    train: Train
    draws: int = 0  # uniform numbers per sample and step that the method uses
    passes: int = 1  # forward-backward passes of a step over its batch, for dropout and the count of work

    def get_augmentations(self) -> list[Any]:
        """List one augmentation per view of a batch.

        The default is one view with `train.augment`.
        An entry is a name such as "none", or {"name": …, options…}.
        """
        return [self.train.augment]

    def make_optimiser(self, name: str) -> Optimiser:
        """Make the optimiser for the weights `name` of `carry`.

        Its memory, such as momentum, is reset in every fit unless `restore_optimiser` returns an earlier memory.
        The default is the optimiser of the training settings.
        """
        t = self.train
        return optim.make_optimiser(t.optimiser, momentum=t.momentum, weight_decay=t.weight_decay, clip=t.clip)

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Run client-side code before the first step.

        Returns:
            A Work with the changes to the training, which stays with the client. None: train on all samples with
            their current targets.
        """
        return None

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        """Choose the weights that are trained, and their initial values.

        Returns:
            Weights by name. Default: the broadcast model, as "model".
        """
        return {"model": broadcast["model"]}

    def restore_optimiser(
        self, name: str, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> Sequence[Tensor] | None:
        """Choose the initial memory of the optimiser of `name`.

        Returns:
            A result of `carry[name].copy_memory()` that an earlier `make_update` stored, or None for a reset.
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
        """Compute the scalar objective that a step minimises.

        The default is the mean of `compute_loss` over the batch.
        Methods with further terms, such as a proximal term, override it.
        """
        logits = net.train(w, batch.x, batch.drop(net))
        if type(self).compute_loss is Local.compute_loss:  # loss and mean in one kernel save 8 % of an MLP's step
            return losses.mean_ce(logits, batch.y)
        loss = self.compute_loss(logits, batch.y)
        if loss.shape not in (logits.shape[:1], ()):  # a scalar mean is allowed, too
            shape = f"{list(loss.shape)} for {len(logits)} samples"
            raise SpecError(f"{type(self).__name__}.compute_loss: it gives {shape}; the loss of each is needed")
        return loss.mean()

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        """Change the flat gradient [trained] in place, after the backward pass and before the optimiser step.

        The default does not change it. The gradient was computed at the weights `w`.
        """

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        """Take one training step. It may change `carry` and `batch.state`, and nothing else.

        The default is one step of gradient descent on `compute_objective`, with `correct_gradient` and the learning
        rate broadcast["lr"].
        """
        model = carry["model"]
        grad = model.backward(self.compute_objective(net, model.w, batch, broadcast, client_state))
        self.correct_gradient(grad, model.w, broadcast, client_state)
        model.update(broadcast["lr"])

    def between_epochs(
        self, client: Client, carry: Mapping[str, Trained], broadcast: Mapping[str, Any], epoch: int
    ) -> Work | None:
        """Run client-side code after `epoch` epochs (1, 2, …, but not after the last).

        `carry[name].values()` is the current model. Values that steps wrote to `batch.state` are in `client.state`.

        Returns:
            A Work for the remaining epochs. It replaces samples, targets, aux, further pools and facts, and those
            entries of state that it contains. None changes nothing.
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
        """Compute the message that a client sends to the server before each step of `fed.fit_lockstep`.

        The server's answer is added to `broadcast` for `train_step`.

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
        """Make the update after `steps` steps.

        An entry "client_state" (a dict) stays on the client and updates the client state. An entry "relay" (a dict) is
        a message to other clients. The server passes it on with `fed.relayed_message`, and cannot read it.

        Returns:
            Values by name. Default: the trained model, as "model".
        """
        return {"model": carry["model"].values()}

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        """Run client-side code after `make_update`.

        It may measure with the trained model and replace entries of `client.state`.

        Returns:
            The update that is sent instead of `update`. Default: `update`.
        """
        return update

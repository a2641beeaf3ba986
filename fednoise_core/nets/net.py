"""Net: an architecture as pure functions over Weights.

An architecture is one Python function `body(ops, x)` from an image batch to features. One call with `Declare` and a
shape records its layout. A call with `Apply` computes. There is no module object and no hidden state, because all
parameters are in the Weights. A body may change the output of a layer in place, since the layer's backward pass does
not use it. It must not change its argument `x`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fednoise_core.io import SpecError
from fednoise_core.ops.weights import Entry, Layout, Weights
from fednoise_core.settings.functions import with_settings


@dataclass
class _Init:
    entry: Entry
    fan_in: int
    fan_out: int
    role: str  # weight, bias, scale, shift, mean, var


class Declare:
    """Runs a body on an empty image and records every tensor that it uses. Layers only compute their output's shape.

    Layers with weights have a name. The number of input channels comes from `x`. conv: [B, C, H, W] -> [B, out, H',
    W'], square kernel. linear: [B, in] -> [B, out]. norm: batch normalisation of [B, C, H, W], momentum .1, eps 1e-5.
    dropout2d: whole channels are zeroed with probability `rate`, in training.

    (Meta tensors would do the same, but their first use imports half of torch, which takes 2 s at every start.)
    """

    def __init__(self) -> None:
        self.inits: list[_Init] = []
        self.draws = 0  # uniform numbers per sample that one training pass needs (dropout)
        self.single_ok = True  # False if a normalisation layer has one value per channel in a batch of one sample

    def _add(self, name: str, shape: tuple[int, ...], kind: str, role: str, fans: tuple[int, int] = (1, 1)) -> None:
        self.inits.append(_Init(Entry(name, shape, kind), *fans, role))

    def conv(
        self,
        name: str,
        x: Tensor,
        out: int,
        kernel: int,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> Tensor:
        shape = (out, x.shape[1] // groups, kernel, kernel)
        fans = (shape[1] * kernel * kernel, out * kernel * kernel)  # as torch.nn.init counts them, groups or not
        self._add(f"{name}.weight", shape, "weight", "weight", fans)
        if bias:
            self._add(f"{name}.bias", (out,), "weight", "bias", fans)
        high, wide = ((side + 2 * pad - kernel) // stride + 1 for side in x.shape[2:])
        if min(high, wide) < 1:
            raise ValueError(f"too small: {name!r} would get a map of {x.shape[2]}x{x.shape[3]}")
        return x.new_zeros(x.shape[0], out, high, wide)

    def linear(self, name: str, x: Tensor, out: int) -> Tensor:
        fans = (x.shape[1], out)
        self._add(f"{name}.weight", (out, x.shape[1]), "weight", "weight", fans)
        self._add(f"{name}.bias", (out,), "weight", "bias", fans)
        return x.new_zeros(x.shape[0], out)

    def norm(self, name: str, x: Tensor) -> Tensor:
        for suffix, kind, role in (
            ("weight", "norm", "scale"),
            ("bias", "norm", "shift"),
            ("running_mean", "stat", "mean"),
            ("running_var", "stat", "var"),
        ):
            self._add(f"{name}.{suffix}", (x.shape[1],), kind, role)
        self.single_ok &= x.shape[2] * x.shape[3] > 1
        return x

    def dropout2d(self, x: Tensor, rate: float) -> Tensor:
        self.draws += x.shape[1]
        return x


class Apply:
    """Runs a body on real tensors. In training, normalisation layers update the running statistics of `w` in place."""

    def __init__(self, w: Weights, train: bool, u: Tensor | None, dropout: bool):
        self.w, self.train, self.u, self.dropout, self.at = w.views, train, u, dropout, 0

    def conv(
        self,
        name: str,
        x: Tensor,
        out: int,
        kernel: int,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> Tensor:
        return F.conv2d(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"] if bias else None, stride, pad, 1, groups)

    def linear(self, name: str, x: Tensor, out: int) -> Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def norm(self, name: str, x: Tensor) -> Tensor:
        if not len(x):  # native_batch_norm does not accept an empty batch
            return x
        w = self.w
        if self.train and x.numel() == x.shape[1]:
            raise ValueError(f"{name}: more than 1 value a channel is needed in training, got {tuple(x.shape)}")
        # F.batch_norm would take cuDNN's kernels, which read 16 bytes at once; a layout's tensors begin anywhere
        # (pytorch #195186). On a CPU both have the same kernels.
        return torch.native_batch_norm(
            x,
            w[f"{name}.weight"],
            w[f"{name}.bias"],
            w[f"{name}.running_mean"],
            w[f"{name}.running_var"],
            self.train,
            0.1,
            1e-5,
        )[0]

    def dropout2d(self, x: Tensor, rate: float) -> Tensor:
        if not self.dropout:
            return x
        if self.u is None:
            raise ValueError("a net with dropout needs the step's random numbers `u` [B, net.draws]")
        drawn = self.u[:, self.at : self.at + x.shape[1]]
        self.at += x.shape[1]
        return x * ((drawn >= rate).to(x.dtype) / (1.0 - rate))[:, :, None, None]


Ops = Declare | Apply  # operations that an architecture may use
Body = Callable[[Ops, Tensor], Tensor]


class Net:
    """An architecture for inputs of one shape: layout, initial weights, and logits in training or evaluation mode.

    shape: (C, H, W) of one input. classes: K. With dropout_at_eval, `predict` needs `u`. The head of `weights`
    (nets/weights.py) is used only if it fits. Raises SpecError for a wrong setting, and for images that are too small
    for the architecture.
    """

    spec: Any = None  # the argument of `build_net`

    @with_settings(example={})
    def __init__(
        self,
        name: str,
        body: Body,
        shape: tuple[int, int, int],
        classes: int,
        *,
        init: Annotated[
            Literal["default", "xavier"],
            Field(
                description="Distribution of initial weights: torch's (uniform within 1/√fan-in), or uniform with zero "
                "biases as in FedEFC's code."
            ),
        ] = "default",
        dropout_at_eval: Annotated[
            bool, Field(description="Keep dropout on in evaluation, as the code of Co-teaching and FedEFC does.")
        ] = False,
        weights: Annotated[
            str | None,
            Field(
                description="Initial weights from a state dict (.safetensors, .pth, .pt) or `imagenet`, instead of "
                "random numbers. See docs/nets.md."
            ),
        ] = None,
    ) -> None:
        declare = Declare()
        try:
            hidden = body(declare, torch.zeros(1, *shape))
        except (RuntimeError, ValueError) as error:  # a map smaller than a kernel or a pooling window
            problem = f"images of shape {tuple(shape)} do not fit this net ({error})"
            raise SpecError(f"train.net: {name}: {problem}") from error
        declare.linear("head", hidden, classes)
        self.name, self.body, self.shape, self.classes = name, body, shape, classes
        self.init, self.dropout_at_eval, self.weights = init, dropout_at_eval, weights
        self.options: dict[str, Any] = {}  # options in the spec, without the name
        self.head_name = getattr(body, "head_name", "head")  # name of the head in files
        self.features_size = int(hidden.shape[1])
        self.draws, self.single_ok = declare.draws, declare.single_ok
        self.layout = Layout(i.entry for i in declare.inits)
        self._inits = declare.inits
        self.parameters = self.layout.trained  # trained numbers

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the arguments that the net was built from, because its body, a local function, cannot be pickled."""
        if self.spec is None:
            return super().__reduce_ex__(protocol)
        from fednoise_core.nets import build_net

        return build_net, (self.spec, self.shape, self.classes)

    @property
    def eval_draws(self) -> int:
        """Number of uniform numbers per sample for a pass in evaluation mode, 0 unless dropout stays on."""
        return self.draws if self.dropout_at_eval else 0

    def fresh(self, generator: torch.Generator, device: torch.device | str = "cpu") -> Weights:
        """Draw initial weights, or read them from the option `weights`.

        Args:
            generator: CPU generator, so that all devices start from the same weights.

        Raises:
            ArtifactError: the file is missing, damaged or of another architecture. The message names it and a tensor.
        """
        weights = self.layout.zeros()
        for parameter in self._inits:
            tensor = weights[parameter.entry.name]
            if parameter.role in ("scale", "var"):
                tensor.fill_(1.0)
            elif parameter.role in ("weight", "bias"):
                xavier = math.sqrt(6.0 / (parameter.fan_in + parameter.fan_out)) if parameter.role == "weight" else 0.0
                bound = xavier if self.init == "xavier" else 1.0 / math.sqrt(parameter.fan_in)
                drawn = torch.rand(parameter.entry.shape, generator=generator)
                tensor.copy_((2 * drawn - 1) * bound)
        if self.weights is not None:
            from fednoise_core.nets.weights import check_first_layer, fill_weights, read_start_weights

            check_first_layer(self.weights, self.name, self._inits[0].entry.shape)
            fill_weights(weights, read_start_weights(self.weights, self.name), self.weights)
        return weights.to(device)

    def features(self, w: Weights, x: Tensor, *, train: bool = False, u: Tensor | None = None) -> Tensor:
        """Penultimate features.

        Args:
            x: images, [B, C, H, W].
            train: Training mode, in which running statistics of `w` are updated in place.

        Returns:
            [B, features_size].
        """
        return self.body(Apply(w, train, u, dropout=train or self.dropout_at_eval), x)

    def head(self, w: Weights, h: Tensor) -> Tensor:
        """Logits of features.

        Args:
            w: the weights.
            h: features, [B, features_size].

        Returns:
            [B, K].
        """
        return F.linear(h, w.views["head.weight"], w.views["head.bias"])

    def train(self, w: Weights, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Compute logits in training mode, with batch statistics. Running statistics of `w` are updated in place.

        Args:
            x: images, [B, C, H, W].

        Returns:
            [B, K].
        """
        return self.head(w, self.features(w, x, train=True, u=u))

    def predict(self, w: Weights, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Logits in evaluation mode.

        Args:
            x: images, [B, C, H, W].

        Returns:
            [B, K].
        """
        return self.head(w, self.features(w, x, u=u))

    def named_tensors(self, w: Weights) -> dict[str, Tensor]:
        """Return contiguous copies of the tensors of `w` by their names in files (torchvision's for the ResNets)."""
        return {self.own_name(name): tensor for name, tensor in w.named().items()}

    def own_name(self, name: str) -> str:
        """Return the name in files of an entry of the layout."""
        return f"{self.head_name}.{name[5:]}" if name.startswith("head.") else name

    def describe_net(self) -> dict[str, Any]:
        """Describe the net for the facts of a model file (JSON)."""
        return {
            "name": self.name,
            "options": self.options,
            "shape": list(self.shape),
            "classes": self.classes,
            "parameters": self.parameters,
            "init": self.init,
            "dropout_at_eval": self.dropout_at_eval,
            "weights": self.weights,
        }

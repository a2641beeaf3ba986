"""Nets from an ordinary torch.nn.Module, run by torch.func.functional_call over the same flat weights.

If the last layer of the module is an nn.Linear with a bias, this layer is the head, and its inputs are the features.
Otherwise the head is the identity, which is not trained, and the logits are the features. Dropout layers use the step's
random numbers instead of torch's generator. There is one copy of the module in training mode and one in evaluation
mode. The copies are not changed, because all parameters come from the Weights.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from fednoise_core.io import SpecError
from fednoise_core.nets.net import Net
from fednoise_core.ops.weights import Entry, Layout, Weights
from fednoise_core.settings.functions import import_named, with_settings
from fednoise_core.settings.train import Train

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
HEAD = ("head.weight", "head.bias")
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
Factory = Callable[..., nn.Module]


@with_settings(
    example={"factory": "mynets:make"},
    input=(1, 28, 28),
    classes=10,
    smallest=1,
    parameters=50890,
)
def module(
    *,
    factory: Annotated[
        str,
        Field(
            description="`file:function`, such as mynets:make for the function make(shape, classes) of mynets.py in "
            "the project's folder."
        ),
    ],
    options: Annotated[dict[str, Any] | None, Field(description="Further keyword arguments of the function.")] = None,
) -> Callable[..., Net]:
    """Your own torch.nn.Module.

    docs/nets.md lists the requirements.
    """
    return functools.partial(ModuleNet, factory=factory_of(factory), arguments=options or {})


def factory_of(name: str) -> Factory:
    """Import the function of "module:function".

    Raises:
        SpecError: it cannot be imported.
    """
    factory = import_named(name, "train.net.factory")
    if not callable(factory):
        raise SpecError(f"train.net.factory: {name!r} is no function")
    return factory


class _Draws:
    """Random numbers that the dropout layers of a module share, and the position of the next ones."""

    def __init__(self) -> None:
        self.at = 0
        self.u: Tensor | None = None


class _Dropout(nn.Module):
    """Dropout with given random numbers. whole: whole channels are dropped."""

    def __init__(self, p: float, whole: bool, draws: _Draws) -> None:
        super().__init__()
        self.p, self.whole, self.draws = p, whole, draws

    def forward(self, x: Tensor) -> Tensor:
        draws, shape = self.draws, x.shape[1:2] if self.whole else x.shape[1:]
        first = draws.at
        draws.at += shape.numel()
        if draws.u is None:
            return x
        drawn = draws.u[:, first : draws.at]
        scale = ((drawn >= self.p).to(x.dtype) / (1.0 - self.p)).view(len(x), *shape)
        return x * (scale[(...,) + (None,) * (x.dim() - 2)] if self.whole else scale)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Dropout:
        return _Dropout(self.p, self.whole, self.draws)  # both copies of the module share the random numbers


class ModuleNet(Net):
    """A Net that runs a torch module by functional_call.

    factory: function `make(shape, classes, **arguments)` that returns the module, which maps [B, C, H, W] to logits
    [B, K]. It is called for every new set of initial weights, with a seed for torch's generator. Raises SpecError with
    the name of the factory if the module cannot be run in this way.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, int, int],
        classes: int,
        *,
        factory: Factory,
        arguments: Mapping[str, Any],
        dropout_at_eval: bool = False,
        weights: str | None = None,
        init: Literal["default", "xavier"] = "default",
    ) -> None:
        self.name, self.shape, self.classes = name, shape, classes
        self.init, self.dropout_at_eval, self.weights = init, dropout_at_eval, weights
        self.options: dict[str, Any] = {}
        self._make = functools.partial(factory, tuple(shape), classes, **arguments)
        self._called = getattr(factory, "__name__", repr(factory))
        if init != "default":
            raise self._make_error("its factory draws the first weights: `init` does nothing")
        module = self._make_module(0)
        self._check_parts(module)
        self.head_name = self._find_head(module)  # "" if it has none
        self._norms = {
            f"{path}.{parameter}" if path else parameter
            for path, part in module.named_modules()
            if isinstance(part, NORMS)
            for parameter, _ in part.named_parameters(recurse=False)
        }
        self._entries = [self._make_entry(n, t) for n, t in _state_entries(module).items()]
        identity = Entry(HEAD[0], (classes, classes), "stat"), Entry(HEAD[1], (classes,), "stat")
        head = () if self.head_name else identity
        self.layout = Layout([*(entry for _, entry in self._entries), *head])
        self._own_names = {entry.name: f"identity.{entry.name}" for entry in head}
        self._own_names |= {entry.name: name for name, entry in self._entries}
        self.parameters = self.layout.trained
        self._draws, self._elsewhere = _Draws(), torch.device("cpu")
        body = _prepare_copy(module, self.head_name, self._draws)
        self._copies = {True: body.train(), False: copy.deepcopy(body).eval()}
        self._names = [(n, entry.name) for n, entry in self._entries if entry.name not in HEAD]
        named = module.named_modules()
        self._batch_norms = tuple(path for path, part in named if isinstance(part, nn.modules.batchnorm._NormBase))
        self._measure_shapes(module)

    # checks of the module

    def _make_error(self, problem: str) -> SpecError:
        return SpecError(f"train.net: module {self._called!r}: {problem}")

    def _make_module(self, seed: int) -> nn.Module:
        """Make a new module with this seed of torch's generator. The state of the generator is restored afterwards."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                module = self._make()
        except Exception as error:  # the user's code
            raise self._make_error(f"{type(error).__name__}: {error}") from error
        if not isinstance(module, nn.Module):
            raise self._make_error(f"it returned {type(module).__name__}, no torch.nn.Module")
        return module

    def _check_parts(self, module: nn.Module) -> None:
        """Raise SpecError for parts that would be trained or averaged differently from what their author expects."""
        for name, parameter in module.named_parameters():
            if isinstance(parameter, nn.UninitializedParameter):
                raise self._make_error(f"{name} has no shape yet; use a layer that is not lazy")
            if not parameter.requires_grad:
                raise self._make_error(
                    f"{name} has requires_grad=False, but all is trained; use its output as features"
                )
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is None:
                raise self._make_error(f"{name} has momentum=None: averages over all batches; give it a number")
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point() and not bool(torch.isfinite(buffer).all()):
                raise self._make_error(
                    f"{name}: a buffer of floats is averaged, and must be finite; -1e9 or bool will do"
                )

    def _find_head(self, module: nn.Module) -> str:
        """Return the name of the linear layer whose output is the logits, or "" if there is none.

        A layer without a bias, or with computed weights as in weight_norm, is not used as the head.
        """
        tried, given = copy.deepcopy(module).eval(), list[Tensor]()
        linear = [(name, part) for name, part in tried.named_modules() if isinstance(part, nn.Linear)]
        name, last = linear[-1] if linear else ("", None)
        if last is not None and {n for n, _ in last.named_parameters()} == {"weight", "bias"}:
            last.register_forward_hook(lambda *call: given.append(call[2]))
        logits = self._try_images(tried)
        return name if len(given) == 1 and torch.equal(given[0], logits) else ""

    def _try_images(self, module: nn.Module) -> Tensor:
        """The module's logits for three images."""
        x = torch.rand(3, *self.shape, generator=torch.Generator().manual_seed(0))
        try:
            with torch.no_grad():
                output = module(x)
        except Exception as error:  # the user's code
            raise self._make_error(f"images {tuple(x.shape)}: {type(error).__name__}: {error}") from error
        logits = _take_logits(output)
        if not isinstance(logits, Tensor) or logits.shape != (3, self.classes):
            given = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
            raise self._make_error(f"it gives {given} for 3 images; logits (3, {self.classes}) are needed")
        if bool((logits >= 0).all()) and torch.allclose(logits.sum(1), torch.ones(3)):
            raise self._make_error("it gives probabilities; leave out its softmax: logits are needed")
        return logits

    def _make_entry(self, name: str, tensor: Tensor) -> tuple[str, Entry]:
        kind = "norm" if name in self._norms else "weight" if isinstance(tensor, nn.Parameter) else "stat"
        parent, _, local_name = name.rpartition(".")
        if self.head_name and parent == self.head_name:
            ours = f"head.{local_name}"
        else:
            ours = f"body.{name}" if name in HEAD else name  # another layer that is called head
        return name, Entry(ours, tuple(tensor.shape), kind)

    def _measure_shapes(self, module: nn.Module) -> None:
        """Run the module to find the number of features and of random numbers, and the smallest batch."""
        x = torch.rand(3, *self.shape, generator=torch.Generator().manual_seed(0))
        w = self._fill_weights(module)
        with torch.no_grad():
            h = self._call_module(w, x, False, None)
        self.draws, self.features_size = self._draws.at, int(h.shape[1])
        self.single_ok = self._check_training(w, x[:1])
        if not self.single_ok and not self._check_training(w, x):
            raise self._make_error("it cannot be run in training mode")
        self._check_draws(w, x)

    def _check_training(self, w: Weights, x: Tensor) -> bool:
        """Check that the module can be trained with these images. Count the random numbers of its dropout layers."""
        try:
            with torch.no_grad():
                self._call_module(w.clone(), x, True, None)
        except ValueError:  # batch normalisation of one value
            return False
        self.draws = max(self.draws, self._draws.at)  # a layer may be used in training only
        return True

    def _check_draws(self, w: Weights, x: Tensor) -> None:
        """Raise SpecError if the module or its factory draws random numbers that do not come from a stream."""
        u = torch.full((len(x), self.draws), 0.5)
        with torch.no_grad():
            twice = [self.train(w.clone(), x, u) for _ in range(2)]
        if not torch.equal(*twice):
            raise self._make_error(
                "it draws random numbers of its own in training; use torch.nn.Dropout layers, in attention dropout=0"
            )
        again = self._fill_weights(self._make_module(0))
        if not torch.equal(again.flat, w.flat):
            raise self._make_error("its factory gives other weights at every call; draw them by torch's generator")

    # weights, and the two modes

    def own_name(self, name: str) -> str:
        """Return the module's name for an entry of the layout. The name of an identity head is not in the module."""
        return self._own_names[name]

    def _fill_weights(self, module: nn.Module) -> Weights:
        weights, tensors = self.layout.zeros(), _state_entries(module)
        with torch.no_grad():
            for name, entry in self._entries:
                weights[entry.name].copy_(tensors[name])
            if not self.head_name:
                torch.nn.init.eye_(weights[HEAD[0]])
        return weights

    def fresh(self, generator: torch.Generator, device: torch.device | str = "cpu") -> Weights:
        """Make initial weights from the factory, or read them from the option `weights`.

        Args:
            generator: Generator of the seed for the factory.
        """
        seed = int(torch.randint(1 << 62, (), generator=generator))
        weights = self._fill_weights(self._make_module(seed))
        if self.weights is not None:
            from fednoise_core.nets.weights import fill_weights, read_start_weights

            ours = {own: name for name, own in self._own_names.items()}
            tensors = read_start_weights(self.weights, self.name)
            fill_weights(weights, {ours.get(n, n): t for n, t in tensors.items()}, self.weights)
        return weights.to(device)

    def features(self, w: Weights, x: Tensor, *, train: bool = False, u: Tensor | None = None) -> Tensor:
        """Compute the inputs of the head [B, features_size]. With train=True, running statistics of `w` are updated."""
        drops = train or self.dropout_at_eval
        if drops and self.draws and u is None:
            raise ValueError("a net with dropout needs the step's random numbers `u` [B, net.draws]")
        return self._call_module(w, x, train, u if drops else None)

    def _call_module(self, w: Weights, x: Tensor, train: bool, u: Tensor | None) -> Tensor:
        body, draws = self._copies[train], self._draws
        draws.u, draws.at = u, 0
        if self._elsewhere != x.device:  # move constants of the module, which are not part of the weights
            for module in self._copies.values():
                module.to(x.device)
            self._elsewhere = x.device
        tensors = {name: w.views[ours] for name, ours in self._names}
        # cuDNN's normalisation reads 16 bytes at once, and a layout's tensors begin anywhere (pytorch #195186)
        aligned = self._batch_norms if x.is_cuda else ()
        copies = {name: tensor.clone() for name, tensor in tensors.items() if name.rpartition(".")[0] in aligned}
        try:
            features: Tensor = _take_logits(functional_call(body, {**tensors, **copies}, (x,)))
        finally:
            draws.u = None
        for name, copied in copies.items():
            if train and not copied.requires_grad:  # a running statistic
                tensors[name].data.copy_(copied)  # .data: otherwise autograd would treat all weights as changed
        return features


def _take_logits(output: Any) -> Any:
    """Take the logits of a module's output: Hugging Face's models return an object."""
    return getattr(output, "logits", output)


def _state_entries(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, and buffers of floats: running statistics. Other buffers are constants and stay in the module."""
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    return {**dict(module.named_parameters()), **buffers}


def _prepare_copy(module: nn.Module, head: str, draws: _Draws) -> nn.Module:
    """Copy the module without its head. Its dropout layers use given random numbers, and norms do not count batches."""
    body = copy.deepcopy(module)
    for name, part in list(body.named_modules()):
        parent, _, attribute = name.rpartition(".")
        owner = body.get_submodule(parent)
        if name and name == head:
            setattr(owner, attribute, nn.Identity())
        elif isinstance(part, DROPOUT):
            setattr(owner, attribute, _Dropout(part.p, not isinstance(part, nn.Dropout), draws))
        elif isinstance(part, nn.modules.batchnorm._NormBase):
            part.num_batches_tracked = None
    return body


# a function in place of a net's name


def with_named_nets(train: Any) -> Any:
    """Replace functions in `train.net` by names: `{"name": "module", "factory": "file:function"}`.

    Worker processes and result files refer to a net by name.

    Raises:
        SpecError: A function cannot be imported by a name.
    """
    if isinstance(train, Train):
        return dataclasses.replace(train, net=_name_nets(train.net))
    if isinstance(train, Mapping) and "net" in train:
        return {**train, "net": _name_nets(train["net"])}
    return train


def _name_nets(net: Any) -> Any:
    if isinstance(net, list | tuple):
        return [_name_nets(item) for item in net]
    if isinstance(net, Mapping) and callable(net.get("factory")):
        return {**net, "factory": factory_name(net["factory"])}
    if isinstance(net, nn.Module):
        cure = "pass a function of (shape, classes) that makes it"
        raise SpecError(f"train.net: expected a function, got a {type(net).__name__}; {cure}")
    return {"name": "module", "factory": factory_name(net)} if callable(net) else net


def factory_name(factory: Any) -> str:
    """The name "module:function" of a factory.

    Raises:
        SpecError: It cannot be imported by a name.
    """
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    named = getattr(sys.modules.get(str(module)), str(name), None)
    if named is not factory:
        raise SpecError(f"train.net: {factory!r} has no name; define a function at the top level of a module")
    return f"{module}:{name}"

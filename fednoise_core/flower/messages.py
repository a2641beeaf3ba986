"""Messages between server and sites: one safetensors file each, without pickles.

Tensors of a message are tensors of the file. Other values are JSON in its metadata. Code is sent by name. A site only
accepts names of its own method.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from fednoise_core.engine import federation
from fednoise_core.engine.local import Local
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops.weights import Layout, Weights, from_plain, iterate_leaves, to_plain
from fednoise_core.settings.train import Train

INITIAL = "initial"  # version of the client state from `init_state`
RELEASE = federation._randomise_labels  # the engine's own client-side function, which releases labels
KEPT_ANSWERS = ("suspect_labels", "predict_held_out")  # functions with results per sample, which stay at the site
TYPES = {torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64}
HUGE = 1e15  # larger than any number that training can produce


class MessageError(ValueError):
    """A message is damaged, or has content that is not allowed."""


class SiteError(RuntimeError):
    """A site refused a request or failed, or an answer is missing without which the round cannot continue."""


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Encode a message.

    Equal messages give equal bytes. A tensor that occurs twice is sent once.

    Args:
        message: Tensors, Weights, numbers, texts, None, and lists and dicts of these.

    Raises:
        TypeError: The message holds anything else.
    """
    tensors: dict[str, Tensor] = {}
    numbers: dict[Any, str] = {}

    def describe(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"map": [[key, describe(item)] for key, item in value.items()]}
        if isinstance(value, list):
            return [describe(item) for item in value]
        if not isinstance(value, Tensor):
            return value
        number = numbers.setdefault((value.data_ptr(), value.shape, value.stride(), value.dtype), str(len(numbers)))
        if number not in tensors:
            tensors[number] = value.contiguous().clone()  # safetensors refuses tensors that share memory
        return {"tensor": number}

    plain = to_plain(message)  # keeps the tensors alive, because their addresses identify them
    return save(tensors, {"message": json.dumps(describe(plain))})


def decode_message(content: bytes, layouts: Collection[Layout] | None = None) -> dict[str, Any]:
    """Decode a message from `encode_message`.

    Args:
        content: The encoded message, which is not trusted.
        layouts: Allowed layouts of weights. None: all layouts.

    Raises:
        MessageError: The bytes are not a valid message.
    """
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        tensors = load(content)
        if strange := {tensor.dtype for tensor in tensors.values()} - TYPES:
            raise TypeError(strange)  # torch cannot compute with all types of safetensors
        message = from_plain(_restore_tensors(json.loads(header["__metadata__"]["message"]), tensors))
    except Exception as error:  # json, safetensors and torch raise many kinds for malformed messages
        raise MessageError(f"not a message ({type(error).__name__})") from error
    if not isinstance(message, dict):
        raise MessageError("not a message (no mapping)")
    shared = {layout: layout for layout in layouts or ()}
    for weights in iterate_weights(message):
        if weights.flat.shape != (weights.layout.size,) or not weights.flat.is_floating_point():
            raise MessageError(f"weights of shape {list(weights.flat.shape)}, [{weights.layout.size}] expected")
        if layouts is not None and weights.layout not in shared:
            raise MessageError("weights of another net")
        weights.layout = shared.get(weights.layout, weights.layout)  # a received layout may have 2.0 instead of 2
    return message


def _restore_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_restore_tensors(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    return {key: _restore_tensors(item, tensors) for key, item in value["map"]}


def iterate_weights(tree: Any) -> list[Weights]:
    """List the weights in a tree of mappings and lists."""
    if isinstance(tree, Weights):
        return [tree]
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    return [weights for part in parts for weights in iterate_weights(part)]


# code, by name


def describe_local(local: Local, train: Train) -> dict[str, Any]:
    """Describe a Local by its class and fields.

    Args:
        local: The method, or another Local of its modules.
        train: The run's training settings. Sites have them already, so they are not sent.

    Raises:
        TypeError: A field is not a plain value.
    """
    fields = {}
    for attribute in dataclasses.fields(local):  # type: ignore[arg-type]
        value = getattr(local, attribute.name)
        if attribute.name == "train" and value == train:
            continue
        if any(not isinstance(leaf, str | int | float | None) for leaf in iterate_leaves(value)):
            raise TypeError(f"{type(local).__name__}.{attribute.name}: {type(value).__name__} cannot be sent to a site")
        fields[attribute.name] = value
    return {"class": _name_of(type(local)), "fields": fields}


def restore_local(described: Mapping[str, Any], method: FedAvg) -> Local:
    """Make a Local from the result of `describe_local`.

    Args:
        described: The result of `describe_local`, which is not trusted.
        method: The method that the site agreed to. Only classes of its modules are allowed.

    Raises:
        MessageError: The class is not allowed, or the fields do not fit.
    """
    cls = _find_named(described["class"], method)
    if not (isinstance(cls, type) and issubclass(cls, Local) and dataclasses.is_dataclass(cls)):
        raise MessageError(f"{described['class']} is no part of {type(method).__name__}")
    try:
        local = cls(**{"train": method.train, **described["fields"]})
    except (TypeError, ValueError) as error:
        raise MessageError(f"{cls.__name__}: {error}") from error
    if isinstance(local, FedAvg) and type(local) is type(method) and local != method:
        raise MessageError(f"{cls.__name__} has other settings than in run.json")
    return local


def describe_function(fn: Callable[..., Any], train: Train) -> dict[str, Any]:
    """Describe a function for clients: one of a module, or of a Local.

    Args:
        fn: The function.
        train: The run's training settings.

    Raises:
        TypeError: It is not a function of a module or of a Local.
    """
    if isinstance(fn, MethodType) and isinstance(fn.__self__, Local):
        return {"name": fn.__name__, "local": describe_local(fn.__self__, train)}
    if isinstance(fn, FunctionType):
        return {"name": _name_of(fn)}
    raise TypeError(f"{fn!r} cannot be sent to a site: it is no function of a module or a Local")


def restore_function(described: Mapping[str, Any], method: FedAvg) -> Callable[..., Any]:
    """Look up the function from the result of `describe_function`.

    Args:
        described: The result of `describe_function`, which is not trusted.
        method: The method that the site agreed to. Only functions of its modules are allowed.

    Raises:
        MessageError: The function is not allowed, its result must stay at the site, or it releases labels although the
            method does not.
    """
    name = described["name"]
    if "local" in described:
        local = restore_local(described["local"], method)
        reserved = name in KEPT_ANSWERS or name[:2] == "__"
        if isinstance(getattr(type(local), name, None), FunctionType) and not reserved:
            return getattr(local, name)
    elif name == _name_of(RELEASE) and "epsilon?" in method.wire.get("broadcast", ()):
        return RELEASE
    elif isinstance(fn := _find_named(name, method), FunctionType):
        return fn
    raise MessageError(f"{name} is no function of {type(method).__name__} that a server may call")


def _name_of(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _find_named(name: str, method: FedAvg) -> Any:
    """Find an object by name among the definitions of the method's modules. None if there is no such object."""
    module, _, word = str(name).partition(":")
    if module not in {cls.__module__ for cls in type(method).__mro__ if issubclass(cls, Local)}:
        raise MessageError(f"{module} is no module of {type(method).__name__}")
    defined = vars(sys.modules[module]).get(word)
    return defined if getattr(defined, "__module__", None) == module else None

"""Nets by name. Nets are imported on use, so that the code hash of a run covers only the nets that it names."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from fednoise_core.settings.declare import check_value, model_of, settings_of
from fednoise_core.settings.functions import resolve_kind, spec_of

if TYPE_CHECKING:
    from fednoise_core.nets.net import Net

__all__ = ["NETS", "build_net"]

NETS: dict[str, str] = {
    "cnn9": "fednoise_core.nets.cnn9:cnn9",
    "lenet": "fednoise_core.nets.small:lenet",
    "linear": "fednoise_core.nets.small:linear",
    "mlp": "fednoise_core.nets.small:mlp",
    "mobilenet_v1": "fednoise_core.nets.mobile:mobilenet_v1",
    "mobilenet_v2": "fednoise_core.nets.mobile:mobilenet_v2",
    "module": "fednoise_core.nets.module:module",
    "resnet10": "fednoise_core.nets.resnet:resnet10",
    "resnet12": "fednoise_core.nets.resnet:resnet12",
    "resnet18": "fednoise_core.nets.resnet:resnet18",
    "resnet34": "fednoise_core.nets.resnet:resnet34",
    "resnet50": "fednoise_core.nets.resnet:resnet50",
    "shufflenet": "fednoise_core.nets.mobile:shufflenet",
    "small_cnn": "fednoise_core.nets.small:small_cnn",
}


def build_net(spec: Any, shape: tuple[int, int, int], classes: int) -> Net:
    """Make the Net of `spec`, which is a name or {"name": …, options…} (docs/reference.md).

    shape: (C, H, W) of one image. Raises SpecError for an unknown name or option, a value out of range, or images that
    are too small.
    """
    from fednoise_core.nets.net import Net

    options = spec_of(spec, "name", "train.net")
    make: Any = resolve_kind(options, NETS, "train.net", "name")
    name = options.pop("name")
    declared = settings_of(make)
    checked = dict(check_value(model_of(make, Net.__init__), options, "train.net"))
    body = make(**{key: value for key, value in checked.items() if key in declared})
    common = {key: value for key, value in checked.items() if key not in declared}
    if name != "module":  # a module of one's own gives the Net itself
        body = functools.partial(Net, body=body)
    net = body(name=name, shape=shape, classes=classes, **common)
    net.spec = {"name": name, **options}
    net.options = {key: checked[key] for key in options if key in declared}
    return net

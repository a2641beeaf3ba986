"""The user's own methods, given as a class or as an instance instead of a name."""

from collections.abc import Mapping
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg, check_hooks
from fednoise_core.settings.declare import build_settings, model_of
from fednoise_core.settings.train import Train


def own_method(method: Any, train: Any) -> tuple[Any, Any, FedAvg | None]:
    """Resolve a method that is given by name, as a class or as an instance.

    Args:
        method: A name or mapping, or a subclass of FedAvg, `{"name": class, fields…}`, or an instance. An instance
            contains its training settings.
        train: Training settings. For an instance, they must be None or equal to its own.

    Returns:
        The method as a name or `{"name": …, fields…}`, the training settings, and the instance. The instance is None
        for a name or a mapping without a class, because it is made later. A class is recorded as "module:Class".

    Raises:
        SpecError: A field is wrong, or `train` differs from the training settings of an instance.
        TypeError: The class cannot be a method, see `check_class`.
    """
    if isinstance(method, FedAvg):
        return _of_instance(method, train)
    fields = dict(method) if isinstance(method, Mapping) else {}
    cls = fields.pop("name", None) if isinstance(method, Mapping) else method
    if not isinstance(cls, type):
        return method, train, None
    settings = train
    if train is None or isinstance(train, Mapping):
        settings = build_settings(Train, train or {}, "train")
    if not isinstance(settings, Train):
        return method, train, None  # `resolve_settings` reports the wrong type of `train`
    instance = build_settings(check_class(cls), fields, "method", train=settings)
    return {"name": _name_class(cls), **fields}, settings, instance


def check_class(cls: type) -> type[FedAvg]:
    """Check that a class can be a method.

    Returns:
        The class.

    Raises:
        SpecError: It defines functions but overrides no hook.
        TypeError: It is not a subclass of FedAvg, or is not declared as a dataclass itself.
    """
    if not issubclass(cls, FedAvg):
        raise TypeError(f"method: {cls.__name__} is not a subclass of fednoise_core.methods.fedavg.FedAvg")
    if "__dataclass_params__" not in vars(cls):
        raise TypeError(f"method: {cls.__name__}: write @dataclass(frozen=True, kw_only=True) above the class")
    check_hooks(cls)
    return cls


def _of_instance(instance: FedAvg, train: Any) -> tuple[Any, Any, FedAvg]:
    settings = build_settings(Train, train, "train") if isinstance(train, Mapping) else train
    if settings is not None and not (isinstance(settings, Train) and settings == instance.train):
        raise SpecError("train: the method was made with other training settings; leave `train` out")
    model = model_of(type(instance))
    settings = model.model_construct(**{name: getattr(instance, name) for name in model.model_fields})
    return {"name": _name_class(type(instance)), **settings.model_dump(exclude_defaults=True)}, instance.train, instance


def _name_class(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"

"""Base of classes with settings, and the training settings of a run. Does not import torch."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import Shown, check_value, model_of


class ValidatedSettings:
    """Base class of frozen dataclasses that check their settings when they are made.

    Checks of several fields belong in the `__post_init__` of the subclass, after `super().__post_init__()`.

    Attributes:
        place: Beginning of every message.
        excluded_settings: Inherited settings that have no effect in this class and are removed from it.
        needs_train: Training setting → the only values (in `self.train`) that this class supports.
    """

    place: ClassVar[str] = ""
    excluded_settings: ClassVar[tuple[str, ...]] = ()
    needs_train: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in vars(cls).get("excluded_settings", ()):
            cls.__annotations__ = {**inspect.get_annotations(cls), name: ClassVar}  # so `dataclass` drops the field

    def __post_init__(self) -> None:
        model = model_of(type(self))
        values = {name: getattr(self, name) for name in model.model_fields}
        for name, value in check_value(model, values, self.place or type(self).__name__):
            object.__setattr__(self, name, value)
        for key, allowed in self.needs_train.items():
            if (value := getattr(self.train, key)) not in allowed:  # type: ignore[attr-defined]
                names = " or ".join(map(repr, allowed))
                raise SpecError(f"train.{key}: {type(self).__name__} works with {names} only, not with {value!r}")


def public_functions(cls: type) -> list[str]:
    """Names of the functions that a class itself defines, without those that begin with an underscore."""
    return [name for name, value in vars(cls).items() if isinstance(value, FunctionType) and not name.startswith("_")]


MANY = 10**6  # largest number of rounds, epochs, or samples per batch; a larger number is likely a typing error
Named = str | dict[str, JsonValue]  # a name, or {name, options…}
NetSetting = Named | SkipJsonSchema[Callable[..., Any]]  # in Python also a function that makes the net


@dataclass(frozen=True, kw_only=True)
class Train(ValidatedSettings):
    """Training settings of every client. A method reads them as `self.train`."""

    place = "train"

    net: Annotated[
        NetSetting | Annotated[list[NetSetting], Field(min_length=1)],
        Field(description="A net's name, {name, options…}, or a list of these (client c gets number c mod length)."),
    ] = "small_cnn"
    rounds: Annotated[int, Field(ge=1, le=MANY, description="R, communication rounds.")] = 100
    fraction: Annotated[
        float,
        Shown(display_name="clients a round, share"),
        Field(gt=0, le=1, description="lambda, share of all clients drawn each round (at least one)."),
    ] = 0.1
    sampling: Annotated[
        Literal["keyed", "continued"],
        Field(
            description="Cohorts: drawn from seed and round, or from the continued generator of the labels, as in "
            "FedEFC's code (needs a noise_seed)."
        ),
    ] = "keyed"
    epochs: Annotated[int, Shown(display_name="local epochs"), Field(ge=1, le=MANY, description="E, local epochs.")] = 5
    batch: Annotated[
        int, Shown(display_name="batch size"), Field(ge=1, le=MANY, description="B, local batch size.")
    ] = 32
    lr: Annotated[
        float, Shown(display_name="learning rate"), Field(ge=0, description="eta_l, local learning rate, constant.")
    ] = 0.05
    momentum: Annotated[float, Field(ge=0, lt=1, description="Momentum of SGD; reset in each round.")] = 0.0
    weight_decay: Annotated[float, Field(ge=0, description="Added to the gradient.")] = 0.0
    clip: Annotated[float, Field(ge=0, description="Largest gradient norm; 0 = off.")] = 0.0
    optimiser: Annotated[Literal["sgd", "adam"], Field(description="Local optimiser, fresh in every round.")] = "sgd"
    last_batch: Annotated[
        Literal["short", "drop", "wrap"],
        Field(
            description="Smaller last batch of an epoch: short keeps it; drop leaves it out, unless it is the client's "
            "only batch; wrap fills it up from the same epoch."
        ),
    ] = "short"
    augment: Annotated[
        Named, Field(description="Name of an augmentation of fednoise_core.data.augment, or {name, options…}.")
    ] = "none"
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"],
        Field(
            description="tf32: matrix products and convolutions on a GPU with a mantissa of 10 bits; equal to fp32 on "
            "a CPU. bf16: training under autocast with fp32 weights (other operations in tf32 on a GPU)."
        ),
    ] = "fp32"
    eval_precision: Annotated[
        Literal["fp32", "bf16"],
        Field(description="Precision of evaluations and other predictions in evaluation mode. bf16: under autocast."),
    ] = "fp32"
    eval_every: Annotated[
        int, Field(ge=1, le=MANY, description="Rounds between evaluations. The last round is always evaluated.")
    ] = 1
    eval_last: Annotated[
        int, Field(ge=1, le=MANY, description="Number of last rounds that are all evaluated, in spite of `eval_every`.")
    ] = 1
    eval_batch: Annotated[int, Field(ge=1, le=MANY, description="Images per evaluation batch.")] = 1000


def resolve_warmup(rounds: int, length: float) -> int:
    """Compute the rounds of a setting of type `Rounds` for which 0 means a tenth of all rounds, rounded up.

    Args:
        rounds: Rounds of the run.
        length: The setting.
    """
    return resolve_rounds(rounds, length) if length else math.ceil(rounds / 10)


def resolve_rounds(rounds: int, length: float) -> int:
    """Number of rounds of a setting of the type `Rounds`.

    Args:
        rounds: All rounds of the run.
        length: A number of rounds, or a share of `rounds` if it is below 1. Shares are rounded half up.

    Returns:
        The number of rounds, at least 1.
    """
    return max(1, int(rounds * length + 0.5) if length < 1 else int(length))

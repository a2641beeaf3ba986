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
    """Base of frozen dataclasses that check their settings when they are made.

    Checks across several fields belong into the subclass's `__post_init__`, after `super().__post_init__()`.

    Attributes:
        place: Beginning of every message.
        excluded_settings: Inherited settings that do nothing in this class. The class does not have them.
        needs_train: Training setting → the only values of it (in `self.train`) that this class works with.
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


MANY = 10**6  # rounds, epochs, batch size: more is a slip of the keyboard
Named = str | dict[str, JsonValue]  # a name, or {name, options…}
NetSetting = Named | SkipJsonSchema[Callable[..., Any]]  # in Python also a function that makes the net


@dataclass(frozen=True, kw_only=True)
class Train(ValidatedSettings):
    """Training settings of every client. A method reads them as `self.train`."""

    place = "train"

    net: Annotated[
        NetSetting | Annotated[list[NetSetting], Field(min_length=1)],
        Field(
            description="A net's name, {name, options…}, or a list of these that clients take in turn (client c gets "
            "number c mod length)."
        ),
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
            description="Cohorts: keyed to seed and round, or continued from the generator that drew the labels (needs "
            "a noise_seed; parity with FedEFC)."
        ),
    ] = "keyed"
    epochs: Annotated[int, Shown(display_name="local epochs"), Field(ge=1, le=MANY, description="E, local epochs.")] = 5
    batch: Annotated[
        int, Shown(display_name="batch size"), Field(ge=1, le=MANY, description="B, local batch size.")
    ] = 32
    lr: Annotated[
        float, Shown(display_name="learning rate"), Field(ge=0, description="eta_l, local learning rate, constant.")
    ] = 0.05
    momentum: Annotated[float, Field(ge=0, lt=1, description="Of SGD; not carried between rounds.")] = 0.0
    weight_decay: Annotated[float, Field(ge=0, description="Added to the gradient.")] = 0.0
    clip: Annotated[float, Field(ge=0, description="Largest gradient norm; 0 = off.")] = 0.0
    optimiser: Annotated[Literal["sgd", "adam"], Field(description="Local optimiser, fresh in every round.")] = "sgd"
    last_batch: Annotated[
        Literal["short", "drop", "wrap"],
        Field(
            description="An epoch's last, smaller batch: kept, left out (never a client's only one), or filled up from "
            "the same epoch."
        ),
    ] = "short"
    augment: Annotated[
        Named, Field(description="Name of an augmentation of fednoise_core.data.augment, or {name, options…}.")
    ] = "none"
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"],
        Field(
            description="tf32: on a GPU, products and convolutions with 10 bits behind the point; on a CPU the same as "
            "fp32. bf16: training under autocast over fp32 weights (on a GPU, the rest in tf32). Both change numbers."
        ),
    ] = "fp32"
    eval_precision: Annotated[
        Literal["fp32", "bf16"],
        Field(description="Of evaluations and other predictions in evaluation mode. bf16: under autocast."),
    ] = "fp32"
    eval_every: Annotated[
        int, Field(ge=1, le=MANY, description="Rounds between evaluations (the last round always counts).")
    ] = 1
    eval_last: Annotated[
        int, Field(ge=1, le=MANY, description="So many rounds at the end are all evaluated, whatever `eval_every` is.")
    ] = 1
    eval_batch: Annotated[int, Field(ge=1, le=MANY, description="Images per evaluation batch.")] = 1000


def resolve_warmup(rounds: int, length: float) -> int:
    """Number of rounds of a setting of the type `Rounds` in which 0 stands for a tenth of all rounds, rounded up.

    Args:
        rounds: Rounds of the run.
        length: The setting.
    """
    return resolve_rounds(rounds, length) if length else math.ceil(rounds / 10)


def resolve_rounds(rounds: int, length: float) -> int:
    """Number of rounds of a setting of the type `Rounds`.

    Args:
        rounds: All rounds of the run.
        length: So many rounds, or below 1 a share of `rounds`, rounded half up.

    Returns:
        The number, at least 1. Absolute round numbers of a source become shares of its R.
    """
    return max(1, int(rounds * length + 0.5) if length < 1 else int(length))

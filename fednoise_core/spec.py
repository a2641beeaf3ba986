"""Base of classes with settings, and the training settings of a run. No torch here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fednoise_core.io import SpecError
from fednoise_core.settings import (
    above,
    at_least,
    at_most,
    below,
    default_of,
    json_schema,
    nearest,
    parse,
    settings_of,
    unknown,
    with_settings,
    without,
)

__all__ = ["Checked", "Train", "parse", "stage"]


class _Doc:
    """A class's docstring followed by its settings, worked out when somebody reads it."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, instance: Any, owner: type) -> str | None:
        made = "__dataclass_fields__" in vars(owner)  # not while the class is being made
        return with_settings(self.text, owner) if made else self.text


class Checked:
    """Base of frozen dataclasses whose settings check themselves when one is made.

    Checks across several fields stand in the subclass's `__post_init__`, after `super().__post_init__()`.

    place: begins every message. without: inherited settings that do nothing in this class, and are refused.
    needs_train: training setting → the only values of it (in `self.train`) that this class works with.
    """

    place: ClassVar[str] = ""
    without: ClassVar[tuple[str, ...]] = ()
    needs_train: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Raise TypeError for an attribute of a base that is annotated as if it were a setting, and for dropping a
        setting that there is not.
        """
        super().__init_subclass__(**keywords)
        cls.__doc__ = _Doc(vars(cls).get("__doc__"))  # type: ignore[assignment]
        known: Mapping[str, Any] = getattr(cls, "__dataclass_fields__", {})  # of the bases
        for name, annotation in inspect.get_annotations(cls).items():
            owner = next((base for base in cls.__mro__[1:] if name in vars(base)), None)
            if owner is not None and name not in known and "ClassVar" not in str(annotation):
                raise TypeError(
                    f"{cls.__name__}.{name}: with a type it would become a field, but {owner.__name__}.{name} is an "
                    f"attribute of the class; write `{name} = …` without a type"
                )
        for name in vars(cls).get("without", ()):
            if name not in known:
                raise TypeError(f"{cls.__name__}.without: {name!r} is no inherited setting{nearest(name, known)}")

    def __post_init__(self) -> None:
        place = self.place or type(self).__name__
        for name, setting in settings_of(type(self)).items():
            object.__setattr__(self, name, setting.check(getattr(self, name), f"{place}.{name}"))
        fields = {field.name: field for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        for name in without(type(self)):
            if getattr(self, name) != default_of(fields[name]):
                raise SpecError(f"{place}.{name}: {unknown(type(self), name)}")
        for key, values in self.needs_train.items():
            if (value := getattr(self.train, key)) not in values:  # type: ignore[attr-defined]
                words = " or ".join(map(repr, values))
                raise SpecError(f"train.{key}: {type(self).__name__} works with {words} only, not with {value!r}")


_NAMED = [{"type": "string"}, {"type": "object", "required": ["name"]}]  # a name, or {name, options…}


@dataclass(frozen=True, kw_only=True)
class Train(Checked):
    """How every client trains. A method reads it as `self.train`; methods.md 1.1 has the symbols."""

    place = "train"

    net: Annotated[
        Any,
        json_schema(anyOf=[*_NAMED, {"type": "array", "minItems": 1, "items": {"anyOf": _NAMED}}]),
        "A net's name, {name, options…}, or a list of these that clients take in turn (client c gets number c mod "
        "length).",
    ] = "small_cnn"
    rounds: Annotated[int, at_least(1), "R, communication rounds."] = 100
    fraction: Annotated[
        float, above(0), at_most(1), "lambda, share of all clients drawn each round (at least one)."
    ] = 0.1
    sampling: Annotated[
        Literal["keyed", "continued"],
        "Cohorts: keyed to seed and round, or continued from the generator that drew the labels (needs a noise_seed; "
        "parity with FedEFC).",
    ] = "keyed"
    epochs: Annotated[int, at_least(1), "E, local epochs."] = 5
    batch: Annotated[int, at_least(1), "B, local batch size."] = 32
    lr: Annotated[float, at_least(0), "eta_l, local learning rate, constant."] = 0.05
    momentum: Annotated[float, at_least(0), below(1), "Of SGD; not carried between rounds."] = 0.0
    weight_decay: Annotated[float, at_least(0), "Added to the gradient."] = 0.0
    clip: Annotated[float, at_least(0), "Largest gradient norm; 0 = off."] = 0.0
    optimiser: Annotated[Literal["sgd", "adam"], "Local optimiser, fresh in every round."] = "sgd"
    last_batch: Annotated[
        Literal["short", "drop", "wrap"],
        "An epoch's last, smaller batch: kept, left out (never a client's only one), or filled up from the same epoch.",
    ] = "short"
    augment: Annotated[
        Any,
        json_schema(anyOf=_NAMED),
        "Name of an augmentation of fednoise_core.data.augment, or {name, options…}.",
    ] = "none"
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"],
        "tf32: on a GPU, products and convolutions with 10 bits behind the point; on a CPU the same as fp32. bf16: "
        "training under autocast over fp32 weights (evaluation in fp32, on a GPU in tf32). Both change numbers.",
    ] = "fp32"
    eval_every: Annotated[int, at_least(1), "Rounds between evaluations (the last round always counts)."] = 1
    eval_batch: Annotated[int, at_least(1), "Images per evaluation batch."] = 1000


def stage(rounds: int, length: float, at_least: int = 1) -> int:
    """A setting of the type `settings.Rounds` as a number of rounds: below 1 it is a share of `rounds`, rounded half
    up. A source's absolute round numbers are such shares of its R (methods.md 5.0, phases).
    """
    return max(at_least, int(rounds * length + 0.5) if length < 1 else int(length))

"""Checks of single definitions in a study or the catalogue, such as noises and methods."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from fednoise_core import rng
from fednoise_core.io import Problems, SpecError
from fednoise_core.settings.declare import did_you_mean, model_of
from fednoise_core.settings.train import Train
from fednoise_core.settings.variants import format_settings, parse_settings, variant_id
from workflow_scripts import paths
from workflow_scripts.config.validation import Schemas, check_model, expand_name
from workflow_scripts.config.yaml_file import ConfigPath

FAMILY_OF_KEY = {
    "datasets": "dataset",
    "noises": "noise",
    "partitions": "partition",
    "methods": "method",
    "tables": "table",
    "figures": "figure",
}  # key of a file → family of the schema
LONGEST_LABEL = 100
MOST_VARIANTS = 1000  # of a method
TRAIN = "train."  # prefix of a swept training setting
LONGEST_ID = 128  # characters of a variant's id, which is a part of paths


@dataclass(frozen=True)
class MethodDefinition:
    """A method as a config file defines it: the arguments of its class, its label, and its changes of `train`."""

    fields: dict[str, Any]
    label: str
    train: Mapping[str, Any]
    place: ConfigPath


def check_definitions(schemas: Schemas, data: Mapping[str, Any], place: ConfigPath) -> None:
    """Check all definitions of a file.

    Args:
        schemas: The schemas of the settings.
        data: The file's content, already checked against the schema of the file.
        place: The file.

    Raises:
        SpecError: A definition is wrong.
    """
    problems = Problems()
    for key, family in FAMILY_OF_KEY.items():
        for name, spec in data.get(key, {}).items():
            with problems.catch():
                problem = paths.name_problem(name)
                if problem:
                    raise (place / key).error(problem)
                if family == "method":
                    for variant, definition in expand_sweep(name, spec, place / key / name).items():
                        parse_method(schemas, variant, definition, place / key / name)
                else:
                    schemas.check_kind(family, spec, place / key / name)
    problems.raise_all()


def parse_method(schemas: Schemas, name: str, spec: Mapping[str, Any], place: ConfigPath) -> MethodDefinition:
    """Check a method's definition and split it into its parts.

    Args:
        schemas: The schemas of the settings.
        name: The method's id, which is also its default label.
        spec: The definition.
        place: Where it stands.

    Raises:
        SpecError: A setting is wrong.
    """
    fields = {key: value for key, value in spec.items() if key not in ("label", "train")}
    problems = Problems()
    with problems.catch():
        schemas.check_kind("method", fields, place, beside=("label", "train", "sweep", "draws"))
    label, train = spec.get("label", name), spec.get("train", {})
    if not isinstance(label, str) or not label.strip() or len(label) > LONGEST_LABEL or not label.isprintable():
        problems.append(str((place / "label").error(f"expected one line of 1 to {LONGEST_LABEL} letters")))
    with problems.catch():
        check_train(schemas, train, place / "train")
    problems.raise_all()
    return MethodDefinition(fields, label, train, place)


def check_train(schemas: Schemas, train: Any, place: ConfigPath) -> None:
    """Check training settings.

    Args:
        schemas: The schemas of the settings.
        train: All settings, or some of them.
        place: Where they stand.

    Raises:
        SpecError: A setting is wrong.
    """
    check_model(model_of(Train), train, place)
    registered, nets = schemas.load("net"), train.get("net", [])
    for net in nets if isinstance(nets, list) else [nets]:
        name = expand_name(net).get("name")
        if isinstance(name, str) and name not in registered:
            raise (place / "net").error(f"unknown net {name!r}{did_you_mean(name, registered)}")
        schemas.check_kind("net", expand_name(net), place / "net")
    if "augment" in train:
        schemas.check_kind("augment", expand_name(train["augment"]), place / "augment")


def expand_sweep(name: str, spec: Mapping[str, Any], place: ConfigPath) -> dict[str, Mapping[str, Any]]:
    """Expand the `sweep` of a method into its variants, or into `draws` of them.

    A variant is an ordinary method with the values in place.

    Args:
        name: The method's id.
        spec: Its definition.
        place: Where it stands.

    Returns:
        Id → definition of every variant, or of the method itself if it has no sweep.

    Raises:
        SpecError: A swept setting also has a fixed value, or an id is too long.
    """
    if "sweep" not in spec:
        return {name: spec}
    fixed, sweep = {key: value for key, value in spec.items() if key not in ("sweep", "draws")}, spec["sweep"]
    for field in sweep:
        key = field.removeprefix(TRAIN)
        if key in (fixed if key == field else fixed.get("train", {})):
            raise (place / "sweep" / field).error(
                f"{field} has a value outside the sweep, too. Remove that, or add it to the sweep"
            )
    variants: dict[str, Mapping[str, Any]] = {}
    label = fixed.get("label", name)
    for values in _draw_values(name, spec, place) if "draws" in spec else _list_values(sweep, place):
        chosen = dict(zip(sweep, values, strict=True))
        try:
            variant = variant_id(name, chosen)
        except SpecError as error:
            raise (place / "sweep").error(str(error)) from error
        if len(variant) > LONGEST_ID:
            raise (place / "sweep").error(f"{variant} is longer than {LONGEST_ID} letters")
        title = f"{label}, {format_settings(parse_settings(variant))}" if isinstance(label, str) else label
        variants[variant] = {**_with_swept_values(fixed, chosen), "label": title}
    return variants


def _list_values(sweep: Mapping[str, Any], place: ConfigPath) -> Iterable[tuple[Any, ...]]:
    """Return every combination of the values of a sweep."""
    for field, values in sweep.items():
        if not isinstance(values, list):
            raise (place / "sweep" / field).error("a range needs `draws` beside `sweep`; expected a list of values")
    if (count := math.prod(map(len, sweep.values()))) > MOST_VARIANTS:
        cure = "Name fewer, or let `draws` choose some"
        raise (place / "sweep").error(f"expected at most {MOST_VARIANTS:,} combinations, got {count:,}. {cure}")
    return product(*sweep.values())


def _draw_values(name: str, spec: Mapping[str, Any], place: ConfigPath) -> Iterator[tuple[Any, ...]]:
    """Draw combinations of the values of a sweep. With more draws, the first combinations stay the same."""
    for field, values in spec["sweep"].items():
        if isinstance(values, Mapping) and not values["low"] < values["high"]:
            raise (place / "sweep" / field).error(f"expected low < high, got {values['low']} and {values['high']}")
        if isinstance(values, Mapping) and values.get("log") and values["low"] <= 0:
            raise (place / "sweep" / field / "low").error(f"expected a number above 0 with log, got {values['low']}")
    for number in range(spec["draws"]):
        yield tuple(
            _draw_value(values, rng.stream(0, "sweep", name, field, number)) for field, values in spec["sweep"].items()
        )


def _draw_value(values: Any, draw: np.random.Generator) -> Any:
    if isinstance(values, list):
        return values[int(draw.integers(len(values)))]
    low, high = values["low"], values["high"]
    is_integer = isinstance(low, int) and isinstance(high, int)
    if is_integer and not values.get("log"):
        return int(draw.integers(low, high, endpoint=True))
    number = math.exp(draw.uniform(math.log(low), math.log(high))) if values.get("log") else draw.uniform(low, high)
    return round(number) if is_integer else min(max(float(f"{number:.3g}"), low), high)


def _with_swept_values(spec: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Put swept values into a definition: `train.lr` under its `train`, `train.net.width` under `train.net`."""
    fields = {field: value for field, value in chosen.items() if not field.startswith(TRAIN)}
    train = dict(spec.get("train", {}))
    for field, value in chosen.items():
        if field.startswith(TRAIN):
            key, _, option = field.removeprefix(TRAIN).partition(".")
            train[key] = {**expand_name(train.get(key, {})), option: value} if option else value
    return {**spec, **fields, **({"train": train} if train else {})}

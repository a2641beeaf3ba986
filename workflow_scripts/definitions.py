"""Definitions of noises, partitions and methods, in a study or in the catalogue: whether each is right on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fednoise_core.settings import nearest as hint
from workflow_scripts import paths, sweeps
from workflow_scripts.config_file import Place
from workflow_scripts.runs import nets_of
from workflow_scripts.schemas import Schemas, named

FAMILIES = {"noises": "noise", "partitions": "partition", "methods": "method"}  # key of a file → family of the schema
LONGEST_LABEL = 100


@dataclass(frozen=True)
class MethodDefinition:
    """A method as a config file defines it: what its class takes, how it is shown, what it lays over `train`."""

    fields: dict[str, Any]
    label: str
    train: Mapping[str, Any]
    place: Place


def check_definitions(schemas: Schemas, data: Mapping[str, Any], place: Place) -> None:
    """Check all noises, partitions and methods that a file (`data`, already compared with its schema) defines."""
    for key, family in FAMILIES.items():
        for name, spec in data.get(key, {}).items():
            problem = paths.name_problem(name)
            if problem:
                raise (place / key).error(problem)
            if family == "method":
                for variant, one in sweeps.variants(name, spec, place / key / name).items():
                    method(schemas, variant, one, place / key / name)
            else:
                schemas.check_kind(family, spec, place / key / name)


def method(schemas: Schemas, name: str, spec: Mapping[str, Any], place: Place) -> MethodDefinition:
    """A method's definition in its parts, checked."""
    fields = {key: value for key, value in spec.items() if key not in ("label", "train")}
    schemas.check_kind("method", fields, place)
    label, train = spec.get("label", name), spec.get("train", {})
    if not isinstance(label, str) or not label.strip() or len(label) > LONGEST_LABEL or not label.isprintable():
        raise (place / "label").error(f"expected one line of text, {LONGEST_LABEL} letters at most, and not empty")
    check_train(schemas, train, place / "train")
    return MethodDefinition(fields, label, train, place)


def check_train(schemas: Schemas, train: Any, place: Place) -> None:
    """Check training settings, or some of them."""
    schemas.check("train", train, place, partial=True)
    known = schemas.load("net")
    for name in nets_of(train):
        if name not in known:
            raise (place / "net").error(f"unknown net {name!r}{hint(name, known)}")
    nets = train.get("net", [])
    for net in nets if isinstance(nets, list) else [nets]:
        schemas.check_kind("net", named(net), place / "net")
    if "augment" in train:
        schemas.check_kind("augment", named(train["augment"]), place / "augment")

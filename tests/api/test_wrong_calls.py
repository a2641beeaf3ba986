"""Wrong calls of the Python interface: one line that names the argument, before anything is trained."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import toy

import fednoise_core as fn
from fednoise_core.api import simulate
from fednoise_core.io import ArtifactError, SpecError

WRONG: dict[str, Any] = {
    "nothing": None,
    "a flag": True,
    "-1": -1,
    "a share": 0.5,
    "NaN": math.nan,
    "no text": "",
    "a text": "nowhere/at all",
    "a list": [1, "x"],
    "a set": {1},
    "a mapping": {"no": 1},
    "bytes": b"x",
    "numbers": np.array([0.5, math.inf]),
    "an object": object(),
    "a class": dict,
    "a function": len,
}
TAKEN = {  # function and argument: the values above that are right
    "run donor": "nothing",
    "run progress": "nothing|a flag|no text|a text",
    "run on_round": "nothing|a class|a function",
    "run label": "no text|a text",
    "run out": "nothing|a text",
    "run saving": "nothing",
    "run pool": "nothing",
    "run spec": "nothing",
    "run train": "nothing",
    "run room": "-1|a flag",
    "train fraction": "a share",
    "train lr": "a share",
    "train clip": "a share",
    "train momentum": "a share",
    "method mu": "a share",
    "dataset places": "nothing",
    "dataset cache": "no text|a text",
    "inject data": "no text|a text",
    "partition_of data": "no text|a text",
    "inject donor": "nothing|no text|a text",
    "inject partition": "nothing",
    "partition_of labels": "nothing|numbers",
    "arrays owner": "nothing",
    "arrays classes": "nothing",
    "arrays public": "nothing",
    "arrays clean_known": "a flag",
    "load factory": "nothing|a class|a function|no text|a text",
    "corrected above": "a share",
}
CALLED = {"dataset spec": "dataset", "inject spec": "noise", "partition_of spec": "partition", "arrays owner": "client"}
OPTIONS = "donor progress on_round device executor threads saving pool out spec label room"
FIELDS = "net rounds fraction epochs batch lr clip momentum eval_every"
X, Y = np.arange(4 * 64).reshape(4, 8, 8).astype(np.uint8), np.array([0, 1, 0, 1])


def call_train(**field: Any) -> Any:
    return calls()["run"][0](train={**toy.TRAIN, **field})


def call_method(**field: Any) -> Any:
    return calls()["run"][0](method={"name": "fedprox", **field})


@functools.cache
def calls() -> Mapping[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The functions, with arguments that are right."""
    data, given, split = toy.arrays(), toy.toy_labels(), toy.toy_partition()
    options = dict.fromkeys(
        [
            "donor",
            "progress",
            "on_round",
            "device",
            "executor",
            "threads",
            "saving",
            "pool",
            "out",
            "spec",
            "label",
            "room",
        ]
    )
    world = {"arrays": data, "labels": given, "partition": split}
    run: dict[str, Any] = {**world, "method": "fedavg", "train": toy.TRAIN, "seed": 0}
    made = fn.run(*world.values(), "fedavg", {**toy.TRAIN, "rounds": 1})
    return {
        "run": (lambda **how: fn.run(**{**run, **how}), {**run, **options}),
        "train": (
            call_train,
            dict.fromkeys(["net", "rounds", "fraction", "epochs", "batch", "lr", "clip", "momentum", "eval_every"]),
        ),
        "method": (call_method, {"mu": 0}),
        "dataset": (lambda **how: fn.dataset(**{"spec": "digits", **how}), dict.fromkeys(["spec", "places", "cache"])),
        "inject": (
            lambda **how: fn.inject(**{"data": data, "spec": {"kind": "symmetric", "rate": 0.3}, **how}),
            dict.fromkeys(["data", "spec", "seed", "partition", "donor"]),
        ),
        "partition_of": (
            lambda **how: fn.partition_of(**{"data": data, "spec": {"kind": "iid", "clients": 3}, **how}),
            dict.fromkeys(["data", "spec", "seed", "labels"]),
        ),
        "arrays": (
            lambda **how: fn.arrays(**{"x": X, "y": Y, "test": (X, Y), **how}),
            dict.fromkeys(["x", "y", "test", "owner", "classes", "public", "clean_known"]),
        ),
        "load": (lambda **how: fn.load(**{"folder": "nowhere", **how}), dict.fromkeys(["folder", "factory"])),
        "predict": (lambda **how: made.predict(**{"images": data.x_test, **how}), dict.fromkeys(["images"])),
        "corrected": (made.corrected, {"above": 0.5}),
    }


def listed() -> list[tuple[str, str, str]]:
    return [
        (function, argument, value)
        for function, (_, arguments) in calls().items()
        for argument in arguments
        for value in WRONG
        if value not in TAKEN.get(f"{function} {argument}", "").split("|")
    ]


def describe_fault(function: str, argument: str, value: str) -> str:
    """What is wrong with how a call is refused; "" if nothing is."""
    words = {argument, CALLED.get(f"{function} {argument}", argument)}
    try:
        calls()[function][0](**{argument: WRONG[value]})
    except (SpecError, ArtifactError, TypeError) as error:
        said = str(error)
        named = any(word in said.partition("got")[0] for word in words)
        return "" if named and "\n" not in said and " object is not " not in said else said
    return "accepted"


def test_every_wrong_call_is_one_line_that_names_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(listed()) >= 300
    monkeypatch.setattr(simulate, "run_loop", None)  # nothing is trained
    faults = {one: describe_fault(*one) for one in listed()}
    assert {one: fault for one, fault in faults.items() if fault} == {}

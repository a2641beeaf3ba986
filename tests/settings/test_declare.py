"""A setting is declared once: its annotation is both the check and the entry of the schema.

The wording of messages is tested here; other tests ask for the key that a message names.
"""

import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
import yaml
from pydantic import MISSING, Field

from fednoise_core import methods
from fednoise_core.io import SpecError
from fednoise_core.methods import make_method
from fednoise_core.methods.coteaching import Coteaching
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.declare import (
    AlsoAccepts,
    NoBool,
    Rounds,
    Settings,
    build_settings,
    check_value,
    json_schema,
    model_of,
    settings_of,
)
from fednoise_core.settings.train import Train
from fednoise_core.settings.words import describe_schema
from workflow_scripts.config.validation import Schemas, describe_kind
from workflow_scripts.config.yaml_file import ConfigPath
from workflow_scripts.docgen import config_schema

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Pull(FedAvg):
    """A pull towards the broadcast model (nobody, 2000)."""

    mu: Annotated[float, Field(ge=0, lt=2, description="Strength of the pull.")] = 0.01


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Pull` under the name "pull"."""
    module = types.ModuleType("fednoise_core.methods.pull")
    module.Pull = Pull  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(methods.METHODS, "pull", "fednoise_core.methods.pull:Pull")


@pytest.mark.usefixtures("registered")
def test_one_line_makes_check_and_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in (make_method({"name": "pull", "mu": 1}, Train()), Pull(train=Train(), mu=1)):
        assert type(method.mu) is float  # type: ignore[attr-defined]
    message = "mu: expected number, 0 ≤ x < 2, got 2"
    for wrong in (lambda: make_method({"name": "pull", "mu": 2}, Train()), lambda: Pull(train=Train(), mu=2)):
        with pytest.raises(SpecError, match=f"^method.{message}$"):
            wrong()
    monkeypatch.setattr(config_schema, "FOLDER", tmp_path)
    monkeypatch.setattr(config_schema.pages, "list_pages", list)
    assert config_schema.main([]) == 0
    schemas = yaml.safe_load((tmp_path / "method.yaml").read_text())
    entry = schemas["pull"]
    assert entry["description"] == "A pull towards the broadcast model (nobody, 2000)."
    assert entry["example"] == {"name": "pull"}
    mu = {"type": "number", "minimum": 0, "exclusiveMaximum": 2, "default": 0.01}
    assert entry["properties"]["mu"] == {**mu, "description": "Strength of the pull."}
    with pytest.raises(SpecError, match=f"^study: {message}$"):  # the same message, from the schema file
        Schemas(tmp_path).check_kind("method", {"name": "pull", "mu": 2}, ConfigPath("study"))


class Group(Settings):
    """Some clients."""

    share: Annotated[float, Field(ge=0, le=1, description="How many.")]
    flip: Annotated[Literal["any", "next"], Field(description="Where to.")] = "any"


def example(
    data: Any = None,
    *,
    word: Annotated[Literal["paper", "code", 1], NoBool, Field(description="One of these.")] = "paper",
    count: Annotated[int, Field(ge=1, description="A whole number.")] = 1,
    flag: Annotated[bool, Field(description="Yes or no.")] = False,
    rate: Annotated[float | None, Field(gt=0, le=1, description="A share.")] = None,
    some: Annotated[Rounds, Field(description="A number of rounds, or a share.")] = 0,
    rows: Annotated[list[list[Annotated[float, Field(ge=0)]]], Field(min_length=1, description="A matrix.")] = [[1.0]],  # noqa: B006
    map: Annotated[dict[str, int] | MISSING, Field(description="A map.")] = MISSING,
    groups: Annotated[list[Group] | MISSING, Field(description="Groups.")] = MISSING,
    either: Annotated[Annotated[int, Field(ge=0)] | Group, Field(description="A number, or a group.")] = 0,
    beside: object = None,
) -> None:
    """All types."""


TAKEN: list[tuple[str, Any, Any]] = [
    ("word", 1, 1),
    ("count", np.int64(3), 3),
    ("rate", None, None),
    ("rate", 1, 1.0),
    ("rate", np.float64(0.5), 0.5),
    ("some", 40, 40),
    ("some", 1e-3, 1e-3),
    ("rows", np.eye(2), [[1.0, 0.0], [0.0, 1.0]]),
    ("rows", ((1,), [2]), [[1.0], [2.0]]),
    ("map", {"a": np.int64(1)}, {"a": 1}),
    ("groups", [{"share": 1}], [Group(share=1.0)]),
    ("groups", (Group(share=0.5, flip="next"),), [Group(share=0.5, flip="next")]),
]
SHARE, SOME = "number, 0 < x ≤ 1, or null", "integer ≥ 0, or number, 0 < x < 1"
GROUP = "{share, flip}"
REFUSED: list[tuple[str, Any, str]] = [
    ("word", "papr", ".word: expected \"paper\" | \"code\" | 1, got \"papr\"; did you mean 'paper'?"),
    ("word", True, '.word: expected "paper" | "code" | 1, got true'),
    ("cuont", 1, ".cuont: unknown key; did you mean 'count'?"),
    ("x", 1, ".x: unknown key; known: count, either, flag, groups, map, rate, rows, some, word"),
    ("beside", 1, ".beside: unknown key; did you mean 'either'?"),
    *(("count", wrong, f".count: expected integer ≥ 1, got {text}") for wrong, text in (
        (0, "0"), (1.5, "1.5"), (2.0, "2.0"), (True, "true"), ("5", '"5"'), (None, "null"), (b"x", "b'x'"))),
    ("flag", 1, ".flag: expected true | false, got 1"),
    *(("rate", wrong, f".rate: expected {SHARE}, got {text}") for wrong, text in (
        (0, "0"), (True, "true"), (".5", '".5"'), (float("nan"), "NaN"), (float("inf"), "Infinity"))),
    ("rate", 10**400, f".rate: expected {SHARE}, got 1{'0' * 58}…"),
    *(("some", wrong, f".some: expected {SOME}, got {text}") for wrong, text in (
        (1.0, "1.0"), (2.5, "2.5"), (0.0, "0.0"), (-1, "-1"), (True, "true"), ("half", '"half"'))),
    ("rows", [[1, -1]], ".rows[0][1]: expected number ≥ 0, got -1"),
    ("rows", [1], ".rows[0]: expected list of numbers ≥ 0, got 1"),
    ("rows", [], ".rows: expected list of 1 or more lists of numbers ≥ 0, got []"),
    ("map", {"a": 1.5}, ".map.a: expected integer, got 1.5"),
    ("groups", [{"share": 2}], ".groups[0].share: expected number, 0 ≤ x ≤ 1, got 2"),
    ("groups", [{"shar": 1}], ".groups[0].shar: unknown key; did you mean 'share'?"),
    ("groups", [{}], ".groups[0]: the key 'share' is missing: How many."),
    ("groups", [3], f".groups[0]: expected {GROUP}, got 3"),
    ("either", 1.5, f".either: expected integer ≥ 0, or {GROUP}, got 1.5"),
    ("either", {"share": 3}, ".either.share: expected number, 0 ≤ x ≤ 1, got 3"),
    ("either", {"share": 1, "flap": 3}, ".either.flap: unknown key; did you mean 'flip'?"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "taken"), TAKEN)
def test_values_are_taken_in_the_settings_type(key: str, value: Any, taken: Any) -> None:
    result = getattr(check_value(model_of(example), {key: value}, "here"), key)
    assert result == taken
    assert type(result) is type(taken)


@pytest.mark.parametrize(("key", "value", "message"), REFUSED)
def test_wrong_values_are_named_in_words(key: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"^here{re.escape(message)}$"):
        check_value(model_of(example), {key: value}, "here")


def test_the_schema_has_all_types_and_takes_the_word_that_the_workflow_replaces() -> None:
    group = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "share": {"type": "number", "minimum": 0, "maximum": 1, "description": "How many."},
            "flip": {"type": "string", "enum": ["any", "next"], "default": "any", "description": "Where to."},
        },
        "required": ["share"],
    }
    rows = {"type": "array", "items": {"type": "array", "items": {"type": "number", "minimum": 0}}}
    expected = {
        "word": {"enum": ["paper", "code", 1]},
        "count": {"type": "integer", "minimum": 1},
        "flag": {"type": "boolean"},
        "rate": {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "null"}]},
        "some": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            ]
        },
        "rows": {**rows, "minItems": 1},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "groups": {"type": "array", "items": group},
        "either": {"anyOf": [{"type": "integer", "minimum": 0}, group]},
    }
    properties = json_schema(model_of(example))["properties"]
    for name, schema in properties.items():
        assert {key: value for key, value in schema.items() if key not in ("default", "description")} == expected[name]
    assert properties["rate"]["default"] is None
    assert "default" not in properties["map"]
    either = json_schema(Annotated[float, AlsoAccepts("oracle"), Field(ge=0)])
    assert either == {"anyOf": [{"type": "number", "minimum": 0}, {"const": "oracle"}]}
    assert describe_schema(either) == 'number ≥ 0, or "oracle"'


def test_settings_that_do_nothing_are_none() -> None:
    schemas = Schemas(ROOT / "config/schema")
    for name in methods.METHODS:
        cls = methods.method_class(name)
        needed = {"name": name, **cls.example}
        for key in {key for base in cls.__mro__ for key in base.__dict__.get("excluded_settings", ())}:
            for refuse in (
                lambda spec: make_method(spec, Train()),
                lambda spec: schemas.check_kind("method", spec, ConfigPath("method")),
            ):
                with pytest.raises(SpecError, match=f"{key}: unknown key"):
                    refuse({**needed, key: getattr(cls, key)})
    with pytest.raises(TypeError, match="server_lr"):
        Coteaching(train=Train(), forget_rate=0.1, server_lr=0.5)  # type: ignore[call-arg]


def test_a_subclass_may_drop_and_take_up_again() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Drops(Pull):
        excluded_settings = ("mu",)

    @dataclass(frozen=True, kw_only=True)
    class Again(Drops):
        mu: Annotated[float, Field(ge=0, description="Back.")] = 0.5

    assert "mu" not in settings_of(Drops)
    assert (Drops(train=Train()).mu, Drops.mu) == (0.01, 0.01)
    assert settings_of(Again)["mu"].description == "Back."
    assert Again(train=Train(), mu=0.7).mu == 0.7


def test_a_field_without_a_description_is_no_setting_and_cannot_be_listed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Toy(FedAvg):
        """Something."""

        draws: int = 2

    assert Toy(train=Train(), draws=3).draws == 3  # in Python only
    with pytest.raises(SpecError, match=r"here\.draws: unknown key"):
        build_settings(Toy, {"draws": 3}, "here", train=Train())
    with pytest.raises(SpecError, match=r"Toy\.draws: a setting says what it means: .*`draws = …` without a type"):
        describe_kind("method", "toy", Toy)
    Toy.family = "lossy"
    with pytest.raises(SpecError, match=r"Toy\.family: expected one of server-side, loss, .*, got 'lossy'"):
        describe_kind("method", "toy", Toy)

    @dataclass(frozen=True, kw_only=True)
    class Nameless(FedAvg):
        draws = 2
        passes: ClassVar[int] = 3

    assert settings_of(Nameless).keys() == settings_of(FedAvg).keys()
    with pytest.raises(SpecError, match=r"Nameless: the first paragraph of its docstring says what it is"):
        describe_kind("method", "nameless", Nameless)


def test_a_training_setting_that_a_method_cannot_work_with_is_refused() -> None:
    make_method({"name": "scaffold"}, Train())
    with pytest.raises(SpecError, match=r"^train\.optimiser: Scaffold works with 'sgd' only, not with 'adam'$"):
        make_method({"name": "scaffold"}, Train(optimiser="adam"))
    with pytest.raises(SpecError, match=r"^train\.momentun: unknown key; did you mean 'momentum'\?$"):
        build_settings(Train, {"momentun": 0.9}, "train")


def test_declaring_settings_costs_planning_no_torch() -> None:
    heavy = {"torch", "yaml", "jsonschema"}
    code = f"import sys, fednoise_core.settings.train; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""A setting is stated once: what its annotation says is checked, told by help(), and listed in schema and reference."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
import yaml
from pydantic import Field

from fednoise_core import methods
from fednoise_core.io import SpecError
from fednoise_core.methods import make
from fednoise_core.methods.coteaching import Coteaching
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.methods.fedmd import FedMD
from fednoise_core.methods.local import LocalOnly
from fednoise_core.methods.scaffold import Scaffold
from fednoise_core.settings import AlsoAccepts, DeclaredSetting, nearest, parse, settings_of
from fednoise_core.spec import Checked, Train
from workflow_scripts import reference, schema
from workflow_scripts.config_file import Place
from workflow_scripts.schemas import Schemas

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
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
def test_one_line_makes_check_schema_reference_and_help(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^method 'pull'\.mu: 2 is outside \[0, 2\)$"):
        make({"name": "pull", "mu": 2}, Train())
    with pytest.raises(SpecError, match=r"^method\.mu: -1\.0 is outside \[0, 2\)$"):
        Pull(train=Train(), mu=-1.0)
    assert type(make({"name": "pull", "mu": 1}, Train()).mu) is float  # type: ignore[attr-defined]

    assert schema.main(["--folder", str(tmp_path)]) == 0
    entry = yaml.safe_load((tmp_path / "method.yaml").read_text())["pull"]
    assert entry["description"] == "A pull towards the broadcast model (nobody, 2000)."
    assert entry["example"] == {"name": "pull"}
    assert entry["properties"]["mu"] == {
        "type": "number",
        "minimum": 0,
        "exclusiveMaximum": 2,
        "default": 0.01,
        "description": "Strength of the pull.",
    }
    with pytest.raises(SpecError, match="mu: 2 is greater than or equal to the maximum"):
        Schemas(tmp_path).check_kind("method", {"name": "pull", "mu": 2}, Place("study"))

    page = "\n".join(reference._family("method", "Methods", "", yaml.safe_load((tmp_path / "method.yaml").read_text())))
    assert "| `mu` | `pull` | number, 0 ≤ x < 2 | `0.01` | Strength of the pull. |" in page
    assert "mu: a number in [0, 2), default 0.01. Strength of the pull." in pydoc.render_doc(Pull)


@pytest.mark.usefixtures("registered")
def test_a_method_that_its_schema_does_not_know_yet_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for family in ("method", "train"):
        (tmp_path / f"{family}.yaml").write_text(schema.text(family))
    known = yaml.safe_load((tmp_path / "method.yaml").read_text())
    (tmp_path / "method.yaml").write_text(yaml.safe_dump({name: known[name] for name in known if name != "sce"}))
    with pytest.raises(SpecError, match=r"does not know 'sce' yet: run `python -m workflow_scripts\.schema`$"):
        Schemas(tmp_path).check_kind("method", {"name": "sce"}, Place("study"))
    with pytest.raises(SpecError, match=r"unknown method \"fedavgg\"; did you mean 'fedavg'"):
        Schemas(tmp_path).check_kind("method", {"name": "fedavgg"}, Place("study"))


@pytest.mark.parametrize("where", ["class", "schema"])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("coteaching", "server_lr"),
        ("dividemix", "server_lr"),
        ("local", "server_lr"),
        ("local", "weighting"),
        ("fedmd", "server_lr"),
        ("fedmd", "weighting"),
    ],
)
def test_settings_that_do_nothing_are_none(name: str, key: str, where: str) -> None:
    value = {"server_lr": 0.5, "weighting": "uniform"}[key]
    spec = {"name": name, **methods.method_class(name).example, key: value}
    if where == "class":
        with pytest.raises(SpecError, match=f"{key}: unknown key: it does nothing in "):
            make(spec, Train())
    else:
        schemas = Schemas(Path(__file__).parents[1] / "config/schema")
        with pytest.raises(SpecError, match=f"{key}: unknown key"):
            schemas.check_kind("method", spec, Place("study"))


def test_settings_that_do_nothing_cannot_be_given_in_python_either() -> None:
    for cls, told in ((Coteaching, {"forget_rate": 0.1}), (LocalOnly, {}), (FedMD, {})):
        cls(train=Train(), **told)
        with pytest.raises(SpecError, match=r"method\.server_lr: .*does nothing in"):
            cls(train=Train(), server_lr=0.5, **told)


def test_a_subclass_may_drop_and_take_up_again() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Drops(Pull):
        without = ("mu",)

    @dataclass(frozen=True, kw_only=True)
    class Again(Drops):
        mu: Annotated[float, Field(ge=0, description="Back.")] = 0.5

    assert "mu" not in settings_of(Drops)
    assert settings_of(Again)["mu"].sentence == "Back."
    assert Again(train=Train(), mu=0.7).mu == 0.7
    with pytest.raises(TypeError, match=r"Wrong\.without: 'mue' is no inherited setting; did you mean 'mu'\?"):

        class Wrong(Pull):
            without = ("mue",)


@pytest.mark.parametrize(
    ("name", "told"), [("draws", "2"), ("passes", "2"), ("step_reads", "('x',)"), ("loss", "None")]
)
def test_attributes_of_the_class_do_not_become_settings(name: str, told: str) -> None:
    scope: dict[str, Any] = {"FedAvg": FedAvg, "ClassVar": ClassVar, "__name__": __name__}
    with pytest.raises(TypeError, match=rf"Toy\.{name}: with a type it would become a field.*write `{name} = …`"):
        exec(f"class Toy(FedAvg):\n    {name}: object = {told}", scope)
    exec(f"class Toy(FedAvg):\n    {name} = {told}", scope)
    exec(f"class Toy(FedAvg):\n    {name}: ClassVar[object] = {told}", scope)
    assert name not in settings_of(scope["Toy"])


def test_scaffold_refuses_adam() -> None:
    Scaffold(train=Train())
    with pytest.raises(SpecError, match=r"^train\.optimiser: Scaffold works with 'sgd' only, not with 'adam'$"):
        make({"name": "scaffold"}, Train(optimiser="adam"))


def test_no_number_may_be_infinite() -> None:
    for value in (NAN, INF, -INF, 10**400):
        with pytest.raises(SpecError, match=r"^train\.lr: .* is no finite number$"):
            Train(lr=value)
    with pytest.raises(SpecError, match=r"train\.rounds"):
        Train(rounds=INF)  # type: ignore[arg-type]


def test_a_field_without_a_sentence_is_no_setting_and_cannot_be_listed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Silent(FedAvg):
        """Something."""

        mu: float = 0.1

    assert "mu" not in settings_of(Silent)
    with pytest.raises(SpecError, match=r"here\.mu: unknown key: the field has no sentence"):
        parse(Silent, {"mu": 1}, "here", train=Train())
    with pytest.raises(TypeError, match=r"Silent\.mu: a setting says what it means"):
        schema.kind("method", "silent", Silent)

    @dataclass(frozen=True, kw_only=True)
    class Nameless(FedAvg):
        pass

    with pytest.raises(TypeError, match=r"Nameless: the first paragraph of its docstring says what it is"):
        schema.kind("method", "nameless", Nameless)


@dataclass(frozen=True)
class Group:
    """Some clients."""

    share: Annotated[float, Field(ge=0, le=1, description="How many.")]
    flip: Annotated[Literal["any", "next"], Field(description="Where to.")] = "any"


@dataclass(frozen=True, kw_only=True)
class Many(Checked):
    """All types."""

    place = "many"

    word: Annotated[Literal["paper", "code", 1], Field(description="One of these.")] = "paper"
    maybe: Annotated[Literal["a", "b"] | None, Field(description="One or none.")] = None
    rate: Annotated[float | None, Field(gt=0, le=1, description="A share.")] = None
    rows: Annotated[list[list[Annotated[float, Field(ge=0)]]] | None, Field(min_length=1, description="A matrix.")] = (
        None
    )
    map: Annotated[dict[str, int], Field(description="A map.")] = None  # type: ignore[assignment]
    groups: Annotated[list[Group], Field(description="Groups.")] = None  # type: ignore[assignment]
    handed: object = None


GOOD: list[tuple[str, Any, Any]] = [
    ("word", "code", "code"),
    ("word", 1, 1),
    ("maybe", None, None),
    ("maybe", "b", "b"),
    ("rate", None, None),
    ("rate", 1, 1.0),
    ("rate", np.float64(0.5), 0.5),
    ("rows", np.eye(2), [[1.0, 0.0], [0.0, 1.0]]),
    ("rows", [[1], (2,)], [[1.0], [2.0]]),
    ("map", {"a": np.int64(1)}, {"a": 1}),
    ("groups", [{"share": 1}], [Group(1.0)]),
    ("groups", (Group(0.5, "next"),), [Group(0.5, "next")]),
]
BAD: list[tuple[str, Any, str]] = [
    ("word", "papr", r"many\.word: 'papr' is not one of 'paper', 'code', 1; did you mean 'paper'\?"),
    ("word", True, r"many\.word: True is not one of"),
    ("maybe", "c", r"many\.maybe: 'c' is not one of 'a', 'b'"),
    ("rate", 0, r"many\.rate: 0 is outside \(0, 1\]"),
    ("rate", True, r"many\.rate: True is not a number or null"),
    ("rows", [[1, -1]], r"many\.rows\[0\]\[1\]: -1 is outside \[0, inf\)"),
    ("rows", [1], r"many\.rows\[0\]: 1 is not a list"),
    ("map", {"a": 1.5}, r"many\.map\.a: 1\.5 is not a whole number"),
    ("groups", [{"share": 2}], r"many\.groups\[0\]\.share: 2 is outside \[0, 1\]"),
    ("groups", [{"shar": 1}], r"many\.groups\[0\]\.shar: unknown key; did you mean 'share'\?"),
    ("groups", [{}], r"many\.groups\[0\]\.share: missing"),
    ("groups", [3], r"many\.groups\[0\]: 3 is not a mapping"),
]


@pytest.mark.parametrize(("key", "value", "taken"), GOOD)
def test_values_are_taken_in_the_settings_type(key: str, value: Any, taken: Any) -> None:
    found = settings_of(Many)[key].check(value, f"many.{key}")
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize(("key", "value", "message"), BAD)
def test_wrong_values_are_named(key: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}"):
        settings_of(Many)[key].check(value, f"many.{key}")


def test_what_has_no_sentence_is_handed_over() -> None:
    assert "handed" not in settings_of(Many)
    with pytest.raises(SpecError, match=r"many\.handed: unknown key"):
        parse(Many, {"handed": 1}, "many")


def test_schemas_of_all_types() -> None:
    group = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "share": {"type": "number", "minimum": 0, "maximum": 1, "description": "How many."},
            "flip": {"enum": ["any", "next"], "default": "any", "description": "Where to."},
        },
        "required": ["share"],
    }
    rows = {"type": "array", "items": {"type": "array", "items": {"type": "number", "minimum": 0}}}
    expected = {
        "word": {"enum": ["paper", "code", 1]},
        "maybe": {"enum": ["a", "b", None]},
        "rate": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
        "rows": {**rows, "type": ["array", "null"], "minItems": 1},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "groups": {"type": "array", "items": group},
    }
    for name, setting in settings_of(Many).items():
        made = {key: value for key, value in schema.schema(setting).items() if key not in ("default", "description")}
        assert made == expected[name]
    either = DeclaredSetting.of("rate", Annotated[float, AlsoAccepts("oracle"), Field(ge=0, description="Rate.")])
    assert schema.schema(either) == {
        "anyOf": [{"type": "number", "minimum": 0}, {"const": "oracle"}],
        "description": "Rate.",
    }


def test_declaring_settings_costs_a_training_process_nothing() -> None:
    code = (
        "import sys, dataclasses, inspect, typing\n"
        "before = set(sys.modules)\n"
        "import fednoise_core.settings, fednoise_core.spec\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'torch', 'yaml', 'jsonschema', 'difflib'}))\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nearest_word() -> None:
    assert nearest("momentun", ["momentum", "lr"]) == "; did you mean 'momentum'?"
    assert nearest("xyz", ["momentum", "lr"]) == "; known: lr, momentum"
    assert nearest("xyz", ["momentum"], or_all=False) == ""
    assert nearest(3, []) == "; known: none"
    root = Path(__file__).parents[1]
    users = [
        path.relative_to(root).as_posix()
        for folder in ("fednoise_core", "workflow_scripts")
        for path in (root / folder).rglob("*.py")
        if "difflib" in path.read_text(encoding="utf-8")
    ]
    assert users == ["fednoise_core/settings.py"]

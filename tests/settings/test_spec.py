"""The schemas of the workflow and the models that they are made of take and refuse the same, in the same words."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import toy
from pydantic import MISSING

from fednoise_core.data import augment
from fednoise_core.engine.state import State
from fednoise_core.io import SpecError
from fednoise_core.methods import METHODS, make_method, method_class
from fednoise_core.settings.declare import Settings, check_value, model_of
from fednoise_core.settings.functions import resolve_kind
from fednoise_core.settings.train import Train, resolve_rounds
from workflow_scripts.config.validation import KIND_KEYS, Schemas, check_model
from workflow_scripts.config.yaml_file import ConfigPath, check_json_compatible
from workflow_scripts.docgen import config_schema, pages

SCHEMA_FOLDER = Path(__file__).parents[2] / "config" / "schema"
SCHEMAS = Schemas(SCHEMA_FOLDER)


def model(family: str, name: str) -> type[Settings]:
    """The model that an entry of a schema is made of."""
    if family in config_schema.MAPPINGS:
        return model_of(config_schema.MAPPINGS[family][1])
    if family == "augment":
        return augment.settings_model(name)
    owner = resolve_kind({"kind": name}, config_schema.REGISTRIES[family], family)
    return model_of(owner, *(config_schema.SHARED[family](name) if family in config_schema.SHARED else ()))


def entries(family: str) -> dict[str, Any]:
    return {family: SCHEMAS.load(family)} if family in config_schema.MAPPINGS else SCHEMAS.load(family)


def refusal(family: str, name: str, values: Mapping[str, Any], *, by_schema: bool) -> str:
    """The message about wrong settings; "" if they are right."""
    try:
        if not by_schema:
            check_value(model(family, name), values, "")
        elif family == "train":
            check_model(model_of(Train), values, ConfigPath(""))
        else:
            check_json_compatible(values, ConfigPath(""))  # as of every file
            SCHEMAS.check_kind(family, {KIND_KEYS.get(family, "kind"): name, **values}, ConfigPath(""))
    except SpecError as error:
        return str(error).removeprefix(": ").removeprefix(".")
    return ""


def test_old_schemas_and_pages_are_noticed_and_written_anew(tmp_path, monkeypatch):
    schemas, page = tmp_path / "schema", tmp_path / "page.md"
    monkeypatch.setattr(config_schema, "FOLDER", schemas)
    monkeypatch.setattr(pages, "list_pages", lambda: [page])
    schemas.mkdir()
    (schemas / "train.yaml").write_text("old")
    page.write_text("Kept\n<!-- generated: methods -->\nold\n<!-- end -->\nKept\n")
    assert config_schema.main(["--check"]) == 1
    assert config_schema.main([]) == 0
    assert config_schema.main(["--check"]) == 0
    for path in schemas.iterdir():
        assert path.read_text() == (SCHEMA_FOLDER / path.name).read_text(), path.name
    lines = page.read_text().splitlines()
    assert [lines[0], lines[-1]] == ["Kept", "Kept"]
    assert sum(line.startswith("| [") for line in lines) == len(METHODS)


def test_the_pages_of_the_repository_are_up_to_date():
    files = pages.list_pages()
    assert len(files) >= 9
    for file in files:
        text = file.read_text()
        assert pages.fill_page(text) == text, f"{file}: run `fednoise schema`"


KINDS = [(family, name) for family in config_schema.FAMILIES for name in entries(family)]


@pytest.mark.parametrize(("family", "name"), KINDS)
def test_schema_has_the_settings_and_defaults_of_the_model(family, name):
    fields, entry = model(family, name).model_fields, entries(family)[name]
    assert entry["properties"].keys() == fields.keys()
    for key, field in fields.items():
        described = entry["properties"][key]
        assert described["description"]
        assert ("default" in described) == (not field.is_required() and field.default is not MISSING)
        if "default" in described:
            assert (described["default"], type(described["default"])) == (field.default, type(field.default)), key
    assert entry.get("required", []) == [key for key, field in fields.items() if field.is_required()]


@pytest.mark.parametrize("family", METHODS)
def test_the_example_of_the_schema_works(family):
    example = SCHEMAS.load("method")[family]["example"]
    SCHEMAS.check_kind("method", example, ConfigPath("example"))
    assert type(make_method(example, Train())) is method_class(family)


NUMBERS = [-1, -1e-9, 0, 1e-9, 0.3, 0.5, 1 - 1e-9, 1, 1 + 1e-9, 1.5, 2, 7, 64, 1e6]
NUMBERS += [float("inf"), float("-inf"), float("nan")]
OTHERS = ["x", "", True, None, [], {}, [1], "0.5", 2.5]


@pytest.mark.parametrize(("family", "name"), [k for k in KINDS if k[0] in (*config_schema.REGISTRIES, "train")])
def test_schema_and_model_take_and_refuse_the_same(family, name):
    """Every setting with numbers on, inside and beyond every bound, and with values of other types."""
    entry = entries(family)[name]
    needed = {key: entry["example"][key] for key in entry.get("required", []) if key in entry["example"]}
    for key, described in entry["properties"].items():
        options = [described, *described.get("anyOf", [])]
        values = [*NUMBERS, *OTHERS, *(value for option in options for value in option.get("enum", []))]
        refused = [refusal(family, name, {**needed, key: value}, by_schema=False) for value in values]
        for value, message in zip(values, refused, strict=True):
            by_schema = refusal(family, name, {**needed, key: value}, by_schema=True)
            assert bool(by_schema) == bool(message), (key, value, message, by_schema)
            if not isinstance(value, float) or math.isfinite(value):  # the workflow words these differently
                assert by_schema == message, (key, value)
        assert "" in refused or "list" in message or "{" in message or key in ("map", "rows"), (key, "takes nothing")
        assert any(refused), (key, "takes everything")


def test_schema_alone_knows_the_oracle():
    assert not refusal("method", "coteaching", {"forget_rate": "oracle_nominal"}, by_schema=True)
    with pytest.raises(SpecError, match="forget_rate"):
        make_method({"name": "coteaching", "forget_rate": "oracle_nominal"}, Train())


@pytest.mark.parametrize(
    ("key", "value"), [("net", ["mlp", {"name": "small_cnn"}]), ("net", {"name": "mlp", "hidden": 3}), ("augment", {})]
)
def test_nets_and_augmentations_may_carry_options(key, value):
    assert [refusal("train", "train", {key: value}, by_schema=which) for which in (True, False)] == ["", ""]


def test_train_is_not_a_field_that_a_spec_may_set():
    with pytest.raises(SpecError, match="unknown key"):
        make_method({"name": "fedavg", "train": {}}, Train())


@pytest.mark.parametrize(
    ("rounds", "share", "expected"),
    [
        (300, 0.5, 150),
        (100, 0.2, 20),
        (3, 0.1, 1),
        (5, 0.5, 3),
        (30, 0.05, 2),
        (10, 0.0, 1),
        (100, 1, 1),
        (100, 250, 250),
    ],
)
def test_stages_scale_with_the_rounds_and_round_half_up(rounds, share, expected):
    assert resolve_rounds(rounds, share) == expected


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("lc", {"switch": 0.25}, [10, 40]),
        ("t_revision", {"switch": 0.25, "revise": 0.5}, [10, 20, 40]),
        ("dividemix", {"warmup": 0.25}, [10, 40]),
        ("fedcorr", {"iterations": 1, "tune_rounds": 0.25, "full_rounds": 0.1}, [1, 11, 15]),
    ],
)
def test_shares_are_of_all_rounds(name, fields, expected):
    """They give the same phases as the rounds that they stand for."""
    fed = toy.toy_federation(train={"rounds": 40})
    rounds = {key: value if key == "iterations" else int(value * 40) for key, value in fields.items()}
    for settings in (fields, rounds):
        assert [phase.end for phase in make_method({"name": name, **settings}, fed.train).list_phases(fed)] == expected


def test_shares_of_the_prestop_and_of_the_ramp():
    train = Train(rounds=40)
    teaching = make_method({"name": "coteaching", "forget_rate": 0.2, "ramp": 0.25}, train)
    assert [teaching.forget_rate_at(t) for t in (5, 10)] == [0.1, 0.2]
    for latest, start, stops in ((0.5, 0.25, [0, 0, 20]), (0, 0.25, [0, 12, 20]), (0, 0.5, [0, 0, 0])):
        method = make_method({"name": "forward_prestop", "latest": latest, "start": start, "patience": 1}, train)
        rounds = []
        for round in (10, 12, 20):
            state = State(notes={"prestop": {"round": 0, "reference": 0.5, "misses": 0}}, round=round)
            rounds.append(method._count_watched(state, 0.5 if latest == 0 else 0.6)["round"])
        assert rounds == stops, latest

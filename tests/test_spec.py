"""Settings of training and methods: what the dataclasses take, and that their schemas say the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import toy
from cases import needed
from pydantic.fields import FieldInfo

from fednoise_core.engine.state import State
from fednoise_core.io import SpecError
from fednoise_core.methods import METHODS, make, method_class
from fednoise_core.settings import parse, settings_of
from fednoise_core.spec import Train, stage
from workflow_scripts import schema
from workflow_scripts.config_file import Place
from workflow_scripts.schemas import Schemas

SCHEMAS = Schemas(Path(__file__).parents[1] / "config" / "schema")


def properties(family: str) -> dict[str, Any]:
    schema = SCHEMAS.load("train") if family == "train" else SCHEMAS.load("method")[family]
    return schema["properties"]


def fields(family: str) -> Mapping[str, FieldInfo]:
    return settings_of(Train if family == "train" else method_class(family))


def schema_takes(family: str, key: str, value: Any) -> bool:
    try:
        if family == "train":
            SCHEMAS.check("train", {key: value}, Place("train"))
        else:
            SCHEMAS.check_kind("method", {"name": family, **needed(family), key: value}, Place("method"))
    except SpecError as error:
        if key not in str(error):
            raise
        return False
    return True


def class_takes(family: str, key: str, value: Any) -> bool:
    try:
        if family == "train":
            parse(Train, {key: value}, "train")
        else:
            make({"name": family, **needed(family), key: value}, Train())
    except SpecError as error:
        if key not in str(error):
            raise
        return False
    return True


FAMILIES = ["train", *METHODS]


def test_the_files_of_schemas_are_what_the_code_says(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert schema.main(["--check"]) == 0, capsys.readouterr().out
    for family in schema.FAMILIES:
        assert Path(f"config/schema/{family}.yaml").read_text().startswith("# Made by `python -m"), family


def test_an_old_schema_is_noticed_and_written_anew(tmp_path):
    (tmp_path / "train.yaml").write_text("old")
    assert schema.main(["--check", "--folder", str(tmp_path)]) == 1
    assert schema.main(["--folder", str(tmp_path)]) == 0
    assert schema.main(["--check", "--folder", str(tmp_path)]) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_schema_has_the_fields_and_defaults_of_the_class(family):
    known, described = fields(family), properties(family)
    assert described.keys() == known.keys()
    for name, field in known.items():
        assert described[name].get("description"), name
        if field.is_required():
            assert "default" not in described[name]
        else:
            assert described[name]["default"] == field.default, name
            assert type(described[name]["default"]) is type(field.default), name
    if family != "train":
        required = [name for name, f in known.items() if f.is_required()]
        assert SCHEMAS.load("method")[family]["required"] == required


@pytest.mark.parametrize("family", METHODS)
def test_the_example_of_the_schema_works(family):
    example = SCHEMAS.load("method")[family]["example"]
    SCHEMAS.check_kind("method", example, Place("example"))
    assert type(make(example, Train())) is method_class(family)


NUMBERS = [-1, -1e-9, 0, 1e-9, 0.3, 0.5, 1 - 1e-9, 1, 1 + 1e-9, 1.5, 2, 7, 1e6]
NUMBERS += [float("inf"), float("-inf"), float("nan")]
OTHERS = ["x", "", True, None, [], {}, [1], "0.5", 2.5]


@pytest.mark.parametrize("family", FAMILIES)
def test_schema_and_class_take_and_refuse_the_same(family):
    """Every field with numbers on, inside and beyond every bound, and with values of other types."""
    tried = 0
    for key, described in properties(family).items():
        if key in ("net", "augment"):
            continue  # built by their own packages, which know the names
        values = [*NUMBERS, *OTHERS, *described.get("enum", [])]
        verdicts = [schema_takes(family, key, value) for value in values]
        for value, expected in zip(values, verdicts, strict=True):
            assert class_takes(family, key, value) == expected, (family, key, value, expected)
        assert len(set(verdicts)) == 2, (key, "takes everything or nothing")
        tried += len(values)
    assert tried


def test_schema_alone_knows_the_oracle():
    assert schema_takes("coteaching", "forget_rate", "oracle_nominal")
    with pytest.raises(SpecError, match="forget_rate"):
        make({"name": "coteaching", "forget_rate": "oracle_nominal"}, Train())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("net", ["mlp", {"name": "small_cnn"}]),
        ("net", {"name": "mlp", "hidden": 3}),
        ("augment", "none"),
        ("augment", {"name": "none"}),
    ],
)
def test_nets_and_augmentations_may_carry_options(key, value):
    assert schema_takes("train", key, value)
    assert class_takes("train", key, value)


@pytest.mark.parametrize("value", [[], [[]], 3])
def test_what_is_no_net_is_refused(value):
    assert not schema_takes("train", "net", value)
    assert not class_takes("train", "net", value)


def test_train_is_not_a_field_that_a_spec_may_set():
    with pytest.raises(SpecError, match="unknown key"):
        make({"name": "fedavg", "train": {}}, Train())


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
    assert stage(rounds, share) == expected


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
    fed = toy.federation(train={"rounds": 40})
    rounds = {key: value if key == "iterations" else int(value * 40) for key, value in fields.items()}
    for settings in (fields, rounds):
        assert [phase.end for phase in make({"name": name, **settings}, fed.train).phases(fed)] == expected


def test_shares_of_the_prestop_and_of_the_ramp():
    train = Train(rounds=40)
    teaching = make({"name": "coteaching", "forget_rate": 0.2, "ramp": 0.25}, train)
    assert [teaching.forgotten(t) for t in (5, 10)] == [0.1, 0.2]
    for latest, start, stops in ((0.5, 0.25, [0, 0, 20]), (0, 0.25, [0, 12, 20]), (0, 0.5, [0, 0, 0])):
        method = make({"name": "forward_prestop", "latest": latest, "start": start, "patience": 1}, train)
        found = []
        for round in (10, 12, 20):
            state = State(notes={"prestop": {"round": 0, "reference": 0.5, "misses": 0}}, round=round)
            found.append(method._watched(state, 0.5 if latest == 0 else 0.6)["round"])
        assert found == stops, latest


def test_a_stage_may_be_absent():
    assert stage(10, 0.0, at_least=0) == 0

"""Reading YAML, merging settings, and the schemas themselves."""

from pathlib import Path

import pytest

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import did_you_mean as hint
from workflow_scripts.config.validation import Schemas
from workflow_scripts.config.yaml_file import ConfigPath, check_json_compatible, deep_merge, read_yaml

ROOT = Path(__file__).parents[2]


def test_damaged_yaml_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("one: 1\ntwo: [1, 2\nthree: 3\n")
    with pytest.raises(SpecError, match=r"a.yaml: line 3: "):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("one: 1\ntwo: 2\none: 3\n")
    with pytest.raises(SpecError, match=r"a.yaml: line 3: the key 'one' is repeated"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("- 1\n")
    with pytest.raises(SpecError, match=r"a.yaml: expected keys and values"):
        read_yaml(tmp_path / "a.yaml")
    with pytest.raises(SpecError, match=r"b.yaml: no such file"):
        read_yaml(tmp_path / "b.yaml")


def test_numbers_words_and_merge_keys(tmp_path: Path) -> None:
    text = "a: &a {x: 1e-4, y: 1E5, z: -2e+3}\nb: {<<: *a, x: 2}\nc: e5\nd: [yes, no, on, off, y, True, false]\n"
    (tmp_path / "a.yaml").write_text(text)
    values = read_yaml(tmp_path / "a.yaml")
    assert values["a"] == {"x": 1e-4, "y": 1e5, "z": -2e3}
    assert values["b"] == {"x": 2, "y": 1e5, "z": -2e3}
    assert values["c"] == "e5"
    assert values["d"] == ["yes", "no", "on", "off", "y", True, False]


def test_deep_merge_and_hint() -> None:
    assert deep_merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}, "d": 4}) == {"a": {"b": 1, "c": [3]}, "d": 4}
    assert hint("lenet", ["lenet5", "mlp"]) == "; did you mean 'lenet5'?"
    assert hint("SCE", ["sce", "gce"]) == "; did you mean 'sce'?"
    assert hint("zzz", ["b", "a"]) == "; known: a, b"


def test_schema_of_schemas() -> None:
    """Every schema file is a valid JSON schema, and every setting has a description."""
    from jsonschema import Draft202012Validator

    schemas = Schemas(ROOT / "config/schema")
    for name in ("config", "study", "catalogue", "train"):
        Draft202012Validator.check_schema(schemas.load(name))
    for family in ("dataset", "noise", "partition", "method", "table", "figure"):
        for kind, schema in schemas.load(family).items():
            assert schema["description"], f"{family} {kind}"
            Draft202012Validator.check_schema({"type": "object", "properties": schema.get("properties", {})})
            for key, setting in schema.get("properties", {}).items():
                assert setting.get("description"), f"{family} {kind}.{key}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a:\n\tb: 1\n", "line 2: found character that cannot start any token; indent with spaces, not with tabs"),
        ("a: &a [1, *a]\n", "line 1: found unconstructable recursive node"),
        ("a: " + "9" * 5000, "line 1: not readable as int ('999"),
        ("b: 1\na: 2024-13-45\n", "line 2: not readable as timestamp ('2024-13-45')"),
        ("a: !!int many\n", "line 1: not readable as int ('many')"),
        ("a: !!bool many\n", "line 1: not readable as bool ('many')"),
        ("a: !!timestamp many\n", "line 1: not readable as timestamp ('many')"),
        ("a: !!python/object:os.system {}\n", "line 1: could not determine a constructor"),
        (b"a: \xff\xfe\n", "not readable as YAML"),
        ("? [1, 2]\n: 3\n", "line 1: not readable as map (unhashable type: 'list')"),
        ("a: b\0c\n", "not readable as YAML"),
        ("", "expected keys and values"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_unsupported_yaml_is_one_message(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpecError) as error:
        read_yaml(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert len(str(error.value)) < len(str(path)) + 200
    assert "\n" not in str(error.value)


def test_a_path_without_a_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for name, message in (("folder", "Is a directory"), ("loop", "Too many levels of symbolic links")):
        with pytest.raises(SpecError, match=rf"{name}\.yaml: cannot be read \({message}\)"):
            read_yaml(tmp_path / f"{name}.yaml")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 2**63}, "f: a: expected a whole number of at most 63 bits"),
        ({"a": {3: 1}}, "f: a: the key 3 is not text"),
    ],
)
def test_values_that_no_setting_needs(value: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_json_compatible(value, ConfigPath("f"))
    check_json_compatible({"a": ["x\ny\tz", -(2**62), True, None, 1e300]}, ConfigPath("f"))


@pytest.mark.parametrize(("family", "key"), [("noise", "kind"), ("dataset", "source"), ("net", "name")])
def test_a_list_for_a_name_is_refused(family: str, key: str) -> None:
    for value in (["x"], {"x": 1}, 3, None):
        with pytest.raises(SpecError, match=rf"^f: {key}: expected the name of a {family}, got "):
            Schemas(ROOT / "config/schema").check_kind(family, {key: value}, ConfigPath("f"))


def test_equal_settings_have_one_normal_form() -> None:
    schemas = Schemas(ROOT / "config/schema")
    for family, short, full in (
        ("noise", {"kind": "symmetric", "rate": 1}, {"rate": 1.0, "kind": "symmetric", "inclusive": False}),
        ("partition", {"kind": "iid", "clients": 3}, {"kind": "iid", "clients": 3, "validation": 0}),
        ("method", {"name": "fedavg"}, {"name": "fedavg", "server_lr": 1, "weighting": "samples"}),
        ("dataset", {"source": "digits"}, {"source": "digits", "test": 360, "public": 250}),
        ("dataset", {"source": "mnist", "mean": [0]}, {"source": "mnist", "mean": [0.0], "public": 0}),
    ):
        assert schemas.normalize_kind(family, short) == schemas.normalize_kind(family, full)
    assert schemas.normalize_kind("noise", {"kind": "symmetric", "rate": 0.5, "inclusive": True})["inclusive"] is True
    plain = schemas.normalize_train({"net": "mlp", "lr": 1})
    assert plain == {"net": "mlp", "lr": 1.0}
    written = {"net": [{"name": "mlp", "hidden": 64}], "lr": 1.0, "epochs": 5, "augment": {"name": "none"}}
    assert schemas.normalize_train(written) == plain
    assert schemas.normalize_train({"net": "small_cnn"}) == {}
    nets = ["mlp", {"name": "mlp", "hidden": 32}]
    assert schemas.normalize_train({"net": nets})["net"] == nets
    assert schemas.normalize_train({"clip": 0, "eval_every": 1, "momentum": 0.9}) == {"momentum": 0.9}


@pytest.mark.parametrize("text", ["1:30", "1_0", "010", "2024:01"])
def test_numbers_that_look_like_something_else_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(f"ok: [0.5, 0, 00, 01, 00.5, 0123456e7, '{text}', a_b, a:b]\nrounds: {text}\n")
    with pytest.raises(SpecError, match=rf"a.yaml: line 2: .*{text} as another number"):
        read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize("start", ["[", "{a: ", "- ", "-  ", "[ 1, [", "[ # ]\n  ", "['[', "])
def test_deep_nesting_is_refused_before_it_is_parsed(tmp_path: Path, start: str) -> None:
    (tmp_path / "a.yaml").write_text("a:\n  " + start * 100_000)
    with pytest.raises(SpecError, match=r"a.yaml: values are nested deeper than 100 levels"):
        read_yaml(tmp_path / "a.yaml")
    text = "# " + "- [" * 200 + "\nb: '" + "[" * 200 + "'\na: " + "[" * 90 + "]" * 90
    (tmp_path / "a.yaml").write_text(text)
    assert len(str(read_yaml(tmp_path / "a.yaml")["a"])) == 180


def test_aliases_that_grow_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 8)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    with pytest.raises(SpecError, match=r"a.yaml: expected at most 200,000 values with all aliases"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("\n".join(lines[:3]))
    assert read_yaml(tmp_path / "a.yaml")["a2"][9][9] == [1] * 10

"""Every example of the schemas is valid, and the site's page of settings describes types and ranges in words.

Nets are also trained here. Examples of data sets, noises and partitions are made in the tests of their modules.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fednoise_core.data.arrays import Arrays
from workflow_scripts.config.validation import Schemas
from workflow_scripts.config.yaml_file import ConfigPath
from workflow_scripts.docgen import settings_tables
from workflow_scripts.report.figures.settings import SETTING_FIGURES

ROOT = Path(__file__).parents[2]
SCHEMAS = Schemas(ROOT / "config/schema")
EXAMPLES = [
    pytest.param(family, kind["example"], id=f"{family}-{name}")
    for family in settings_tables.FAMILIES
    for name, kind in SCHEMAS.load(family).items()
]
NETS: dict[str, dict[str, Any]] = SCHEMAS.load("net")


@pytest.mark.parametrize(("family", "spec"), EXAMPLES)
def test_every_example_validates(family: str, spec: dict[str, Any]) -> None:
    SCHEMAS.check_kind(family, spec, ConfigPath("example"))


def test_settings_have_rows_with_type_default_and_meaning_and_equal_settings_share_a_row() -> None:
    rate = {"type": "number", "minimum": 0, "maximum": 1, "description": "Share."}
    inner = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "default": 3}}}
    kinds = {
        "one": {"properties": {"rate": rate, "deep": inner}, "required": ["rate"]},
        "two": {"properties": {"rate": {**rate, "description": "Another."}, "deep": inner}, "required": []},
    }
    described = {name: {"description": "a | b", "example": {"kind": name}, **kind} for name, kind in kinds.items()}
    lines = "".join(settings_tables._kinds("kind", described)).splitlines()
    assert [line for line in lines if line.startswith("| `")] == [
        "| `one` | a \\| b | `rate`, `deep` | `{kind: one}` |",
        "| `two` | a \\| b | `rate`, `deep` | `{kind: two}` |",
        "| `rate` | `one` | number, 0 ≤ x ≤ 1 | required | Share. |",
        "| `rate` | `two` | number, 0 ≤ x ≤ 1 | – | Another. |",
        "| `deep` | all | {n} | – | – |",
        "| `deep.n` | all | integer ≥ 1 | `3` | – |",
    ]


def test_ranges_in_words() -> None:
    schemas = {
        "integer ≥ 1": {"type": "integer", "minimum": 1},
        "number > 0": {"type": "number", "exclusiveMinimum": 0},
        "number, 0 ≤ x < 1": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "number, 0 < x ≤ 1": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "`a` \\| `1` \\| `null`": {"enum": ["a", 1, None]},
        "text, or `null`": {"type": ["string", "null"]},
        "text of 1–9 letters": {"type": "string", "minLength": 1, "maxLength": 9},
        "text that fits ^a$": {"type": "string", "pattern": "^a$"},
        "{…} with 1–3 keys": {"type": "object", "minProperties": 1, "maxProperties": 3},
        "list of 1–3 numbers": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "number"}},
        "integer, or {a, b}": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {}, "b": {}}}]},
    }
    assert {settings_tables.type_in_words(schema): schema for schema in schemas.values()} == schemas


@pytest.mark.parametrize("name", list(NETS))
def test_every_net_takes_a_training_step(name: str) -> None:
    from fednoise_core import Partition, inject, run

    net = {key: value for key, value in NETS[name]["example"].items() if key != "weights"}
    channels = NETS[name]["input"][0]
    draw = np.random.default_rng(0)
    shape = (12, 32, 32) if channels == 1 else (12, 32, 32, channels)
    x, y = draw.integers(0, 256, shape, dtype=np.uint8), np.arange(12) % 3
    data = Arrays(x[:8], y[:8], x[8:], y[8:], 3, (0.5,) * channels, (0.25,) * channels)
    everything = Partition.from_parts([np.arange(8)], {"artifact": "partition"})
    train = {"net": net, "rounds": 1, "fraction": 1.0, "epochs": 1, "batch": 8, "lr": 0.01}
    finished = run(data, inject(data, {"kind": "none"}, 0), everything, "fedavg", train)
    losses = [value for *_, metric, value in finished.outcome.record.metrics if metric == "loss"]
    assert len(losses) == 2  # before the step and after it
    assert np.isfinite(losses).all()
    assert losses[0] != losses[1]


def test_settings_shown_on_other_pages_validate() -> None:
    def read_last_block(page: str) -> dict[str, Any]:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        return yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[-1])

    figures = read_last_block("gallery.md")["figures"]
    assert {spec["kind"] for spec in figures.values()} == set(SETTING_FIGURES)
    for name, spec in figures.items():
        SCHEMAS.check_kind("figure", spec, ConfigPath("docs/gallery.md", (name,)))
    SCHEMAS.check_kind("net", read_last_block("nets.md")["train"]["net"], ConfigPath("docs/nets.md"))

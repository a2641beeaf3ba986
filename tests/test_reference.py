"""docs/reference.md is what the schemas say, and every example on it passes the validator.

That data set, noise and partition examples can be made is tested with their readers and models; nets are trained here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fednoise_core.data.arrays import Arrays
from workflow_scripts import reference
from workflow_scripts.config_file import Place
from workflow_scripts.schemas import Schemas

ROOT = Path(__file__).parents[1]
SCHEMAS = Schemas(ROOT / "config/schema")
EXAMPLES = [
    pytest.param(family, kind["example"], id=f"{family}-{name}")
    for family in reference.FAMILIES
    for name, kind in SCHEMAS.load(family).items()
]
NETS: dict[str, dict[str, Any]] = SCHEMAS.load("net")


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert reference.main(["--check"]) == 0, capsys.readouterr().out


def test_an_old_page_is_noticed_and_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = tmp_path / "reference.md"
    page.write_text("old")
    assert reference.main(["--check", "--out", str(page)]) == 1
    assert reference.main(["--out", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == (ROOT / "docs/reference.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("family", "spec"), EXAMPLES)
def test_every_example_validates_and_stands_on_the_page(family: str, spec: dict[str, Any]) -> None:
    SCHEMAS.check_kind(family, spec, Place("page"))
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| `{next(iter(spec.values()))}` |")]
    assert any(yaml.safe_load(code) == spec for line in rows for code in re.findall(r"`(\{.*?\})` \|", line))


@pytest.mark.parametrize("family", list(reference.FAMILIES))
def test_the_page_has_type_default_and_meaning_of_every_setting(family: str) -> None:
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    title = reference.FAMILIES[family][0]
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = {tuple(line.strip("| ").split(" | ")) for line in section.splitlines() if line.startswith("| `")}
    for kind in SCHEMAS.load(family).values():
        for name, setting in kind["properties"].items():
            mine = [row for row in rows if row[0] == f"`{name}`" and row[-1] == setting["description"]]
            assert mine, (name, setting)
            default = "required" if name in kind["required"] else None
            assert default is None or any(row[3] == default for row in mine)


def test_ranges_in_words() -> None:
    words = {
        "integer ≥ 1": {"type": "integer", "minimum": 1},
        "number > 0": {"type": "number", "exclusiveMinimum": 0},
        "number, 0 ≤ x < 1": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "number, 0 < x ≤ 1": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "`a` \\| `1` \\| `null`": {"enum": ["a", 1, None]},
        "text, or `null`": {"type": ["string", "null"]},
        "list of 1–3 numbers": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "number"}},
        "integer, or {a, b}": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {}, "b": {}}}]},
    }
    assert {reference._words(schema, {}): schema for schema in words.values()} == words


@pytest.mark.parametrize("name", list(NETS))
def test_every_net_takes_a_training_step(name: str) -> None:
    from fednoise_core import Partition, inject, run

    net = {key: value for key, value in NETS[name]["example"].items() if key != "weights"}
    channels = NETS[name]["input"][0]
    draw = np.random.default_rng(0)
    shape = (12, 32, 32) if channels == 1 else (12, 32, 32, channels)
    x, y = draw.integers(0, 256, shape, dtype=np.uint8), np.arange(12) % 3
    data = Arrays(x[:8], y[:8], x[8:], y[8:], 3, (0.5,) * channels, (0.25,) * channels)
    everything = Partition.build([np.arange(8)], {"artifact": "partition"})
    train = {"net": net, "rounds": 1, "fraction": 1.0, "epochs": 1, "batch": 8, "lr": 0.01}
    found = run(data, inject(data, {"kind": "none"}, 0), everything, "fedavg", train)
    losses = [value for *_, metric, value in found.outcome.record.metrics if metric == "loss"]
    assert len(losses) == 2  # before the step and after it
    assert np.isfinite(losses).all()
    assert losses[0] != losses[1]


def test_settings_shown_on_other_pages_validate() -> None:
    def shown(page: str) -> dict[str, Any]:
        (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
        return yaml.safe_load(block)

    figures = shown("pictures.md")["figures"]
    assert {spec["kind"] for spec in figures.values()} == {"histogram", "transition", "clients", "samples"}
    for name, spec in figures.items():
        SCHEMAS.check_kind("figure", spec, Place("docs/pictures.md", (name,)))
    SCHEMAS.check_kind("net", shown("nets.md")["train"]["net"], Place("docs/nets.md"))


def test_links_between_pages_lead_somewhere() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
            other = page.parent / target if target else page
            assert other.exists(), f"{page.name}: {target}"
            if anchor and other.suffix == ".md":
                heads = re.findall(r"^#+ (.+)$", other.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, anchor

"""config/schema/table.yaml and figure.yaml list exactly the kinds of the code, and every example can be made."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import yaml
from fake_runs import METHODS, STOPPED, SWEPT, write_study
from jsonschema import Draft202012Validator
from layout_check import problems

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.runs.run import ListedRun, listed_runs
from workflow_scripts.report.tables import registry
from workflow_scripts.report.tables.kind import TableKind

SCHEMAS: dict[str, dict[str, Any]] = {
    family: yaml.safe_load((Path("config/schema") / f"{family}.yaml").read_text(encoding="utf-8"))
    for family in ("table", "figure")
}
KINDS = [(family, kind) for family, kinds in SCHEMAS.items() for kind in kinds]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[ListedRun]:
    path = tmp_path_factory.mktemp("study")
    grid = [
        {"noises": ["sym40"], "partitions": ["openset-uniform", "iid"], "methods": [*METHODS, *SWEPT, *STOPPED]},
        {"noises": ["random40"], "partitions": ["openset-nonuniform"], "methods": list(METHODS)},
    ]
    write_study(path, grid=grid, rounds=4, seeds=(0,))
    return listed_runs(path / "runs.json")


def test_the_schema_lists_the_kinds_there_are() -> None:
    assert set(SCHEMAS["table"]) == set(registry.TABLES)
    assert set(SCHEMAS["figure"]) == set(draw.FIGURES)


def kinds_on(page: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kinds of tables or figures that a page of the documentation defines."""
    _, *blocks = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8").split("```python\n")
    modules = [ModuleType(f"block{number}") for number in range(len(blocks))]
    for module, block in zip(modules, blocks, strict=True):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(block.partition("```")[0], page, "exec", dont_inherit=True), module.__dict__)
    return [module.KIND for module in modules]


def test_the_kind_of_table_in_the_documentation_works(runs: list[ListedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    (kind,) = kinds_on("add_a_table.md", monkeypatch)
    monkeypatch.setitem(registry.TABLES, "range", kind)
    spec = {"kind": "range", "noises": ["random40"], "methods": ["fedavg"], "title": "Apart"}
    frame = registry.build_table(runs, spec)
    grid = registry.lay_out_table(frame, spec)
    assert (grid.title, len(grid.rows)) == ("Apart", 1)
    assert [cell.text for cell in grid.rows[0].cells] == [f"{frame[key].iloc[0]:.1f}" for key in ("lowest", "highest")]


def test_a_custom_table_may_have_text_and_must_have_columns(
    runs: list[ListedRun], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (kind,) = kinds_on("add_a_table.md", monkeypatch)
    spec = {"kind": "range", "noises": ["random40"], "methods": ["fedavg"]}

    def write(kind: TableKind) -> list[str]:
        monkeypatch.setitem(registry.TABLES, "range", kind)
        registry.write_table(runs, spec, tmp_path / "range", "range")
        return [*registry.read_table(tmp_path / "range.csv", spec).get("judge", [])]

    judged = replace(kind, frame=lambda *args: kind.frame(*args).assign(judge="near"))
    with pytest.raises(
        ArtifactError, match=r"range.csv: column judge: .*names its columns of text: `texts=\('judge',\)`"
    ):
        write(judged)
    assert write(replace(judged, texts=["judge"])) == ["near"]
    with pytest.raises(SpecError, match="table: kind range: its frame has no columns"):
        write(replace(kind, frame=lambda *args: pd.DataFrame([])))


def test_the_figures_of_the_documentation_work(runs: list[ListedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    bars_kind, sizes_kind = kinds_on("add_a_figure.md", monkeypatch)
    monkeypatch.setitem(draw.FIGURES, "bars", bars_kind)
    monkeypatch.setitem(draw.FIGURES, "sizes", sizes_kind)
    monkeypatch.setitem(draw.SETTING_FIGURES, "sizes", sizes_kind)
    with style.use_house_style():
        drawing = draw.draw_figure(
            runs, {"kind": "bars", "noises": ["random40"], "start": 10, "title": "Bars", "width": "column"}
        )
        sizes = draw.draw_figure(runs, {"kind": "sizes", "noises": ["sym40"]})
        assert problems(drawing.figure) == problems(sizes.figure) == []
    bars = drawing.figure.axes[0].patches
    assert [bar.get_x() + bar.get_width() for bar in bars] == pytest.approx(list(drawing.frame["mean"]))
    assert (drawing.title, len(bars)) == ("Bars", len(METHODS))
    assert sizes.frame.groupby("partition")["samples"].sum().to_dict() == {"openset-uniform": 1200, "iid": 1200}
    assert "n = 1200" in sizes.caption


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_every_property_is_described_and_has_a_valid_default(family: str, kind: str) -> None:
    entry = SCHEMAS[family][kind]
    assert entry["description"].endswith(".")
    for name, schema in entry["properties"].items():
        assert schema["description"], name
        assert name in entry["required"] or "default" in schema, name
        if "default" in schema:
            Draft202012Validator(schema).validate(schema["default"])


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_every_example_is_valid_and_made(family: str, kind: str, runs: list[ListedRun]) -> None:
    entry, example = SCHEMAS[family][kind], SCHEMAS[family][kind]["example"]
    properties = {"kind": {"const": kind}, **entry["properties"]}
    schema = {"type": "object", "properties": properties, "required": entry["required"], "additionalProperties": False}
    Draft202012Validator(schema).validate(example)
    full = {name: setting["default"] for name, setting in entry["properties"].items() if "default" in setting} | example
    for spec in (example, full):  # the defaults written out change nothing
        if family == "table":
            frame = registry.build_table(runs, spec)
        else:
            with style.use_house_style():
                frame = draw.draw_figure(runs, spec).frame
        assert len(frame) > 0 or entry.get("of_a_paper")  # these need a paper's tables, which this study lacks

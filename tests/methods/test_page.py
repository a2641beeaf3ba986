"""docs/methods/README.md has every method, and says of each what its class, its case and its runs say."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from cases import MODEL, case

from fednoise_core.io import ArtifactError
from fednoise_core.methods import METHODS, method_class
from fednoise_core.report.code_lines import code_lines, method_lines
from workflow_scripts import methods_table, readme_table

ROOT = Path(__file__).parents[2]
ROWS = {row["name"]: row for row in methods_table.rows((ROOT / methods_table.PAGE).read_text(encoding="utf-8"))}
EVERY_ROUND = [(0, 0)] + [(4 * MODEL, 4 * MODEL)] * 3

every_method = pytest.mark.parametrize("name", METHODS)


def test_the_page_has_every_method_once() -> None:
    listed = [row["name"] for row in methods_table.rows((ROOT / methods_table.PAGE).read_text(encoding="utf-8"))]
    assert sorted(listed) == sorted(METHODS)
    assert f"{len(METHODS)} methods" in (ROOT / "README.md").read_text(encoding="utf-8")


@every_method
def test_a_method_has_row_page_case_and_catalogue_entry(name: str) -> None:
    row = ROWS[name]
    assert row["page"] == f"{name}.md"
    assert f"`{name}`" in (ROOT / "docs/methods" / row["page"]).read_text(encoding="utf-8").splitlines()[0]
    assert case(name).FIELDS is not None
    catalogue = yaml.safe_load((ROOT / "config/catalogue.yaml").read_text(encoding="utf-8"))
    assert name in {method["name"] for method in catalogue["methods"].values()}
    assert all(row.values())


@every_method
def test_passes_and_lines_are_those_of_the_code(name: str) -> None:
    assert int(ROWS[name]["passes"]) == method_class(name).passes
    assert int(ROWS[name]["lines"]) == method_lines(name)


@every_method
def test_what_crosses_and_stays_is_what_a_run_shows(name: str, played) -> None:
    """On the toy world: bytes of FedAvg where the page says "the model" and nothing else, and things that clients keep
    unless it says "nothing". (Its net has no normalisation layers, so that FedBN sends what FedAvg does.)
    """
    made, row = played(name).run, ROWS[name]
    sends_the_model = case(name).traffic(made) == EVERY_ROUND
    assert sends_the_model == (row["crosses"] == "the model" or name == "fedbn")
    assert any(made.outcome.state.clients.values()) == (row["keeps"] != "nothing")


def test_an_old_page_is_noticed_and_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = (ROOT / methods_table.PAGE).read_text(encoding="utf-8")
    page = tmp_path / methods_table.PAGE
    page.parent.mkdir(parents=True)
    page.write_text(right.replace(f"| 2 | – | {method_lines('ditto')} |", "| 1 | – | 7 |"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert methods_table.main(["--check"]) == 1
    assert methods_table.main([]) == 0
    assert methods_table.main(["--check"]) == 0
    assert page.read_text(encoding="utf-8") == right


SOURCE = '''"""What it is,
in two lines."""

import os  # a comment beside code counts as code

# a comment


class Mine:
    """Docstring."""

    text = """two
lines"""


@property
class Other:
    pass
'''


def test_lines_of_code() -> None:
    assert code_lines(SOURCE) == 7
    assert code_lines(SOURCE, frozenset({"Other"})) == 4
    assert code_lines("") == 0


def test_methods_of_one_file_are_counted_apart() -> None:
    """Together they have more lines than the file, as each has the imports; alone each has fewer."""
    spec = find_spec("fednoise_core.methods.robust_losses")
    assert spec is not None
    assert spec.origin is not None
    whole = code_lines(Path(spec.origin).read_text(encoding="utf-8"))
    each = [method_lines(name) for name in ("sce", "gce", "mae")]
    assert max(each) < whole < sum(each)
    assert method_lines("no_such_method") is None


def test_the_readme_shows_the_published_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / readme_table.PAGE).read_text(encoding="utf-8")
    assert readme_table.filled(text, ROOT) == text
    rows = [line for line in readme_table.table(ROOT / readme_table.STUDY).splitlines() if line.startswith("|")]
    assert f"{len(rows) - 2} runs" in (
        ROOT / readme_table.STUDY / "README.md"
    ).read_text(encoding="utf-8")
    (tmp_path / readme_table.STUDY).mkdir(parents=True)
    for name in ("accuracy.csv", "cost.csv"):
        source = (ROOT / readme_table.STUDY / name).read_text(encoding="utf-8")
        (tmp_path / readme_table.STUDY / name).write_text(source.replace(",FedAvg,", ",Plain,"), encoding="utf-8")
    (tmp_path / readme_table.PAGE).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert readme_table.main(["--check"]) == 1
    assert readme_table.main([]) == 0
    assert "| Plain | " in (tmp_path / readme_table.PAGE).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["accuracy", "cost"])
def test_a_study_of_several_settings_makes_no_readme_table(name: str, tmp_path: Path) -> None:
    for file in ("accuracy.csv", "cost.csv"):
        lines = (ROOT / readme_table.STUDY / file).read_text(encoding="utf-8").splitlines(keepends=True)
        again = lines[1:] if file == f"{name}.csv" else []
        (tmp_path / file).write_text("".join([*lines, *again]), encoding="utf-8")
    with pytest.raises(ArtifactError, match=f"{name}.csv: several rows of a method"):
        readme_table.table(tmp_path)

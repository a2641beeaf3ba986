"""Texts from settings files are shown unchanged. They become no markup, broken table or formula."""

import base64
import csv
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_runs import METHODS, NOISES, write_study
from markdown_it import MarkdownIt

from fednoise_core.io import ArtifactError
from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.pages.study_page import study_page
from workflow_scripts.report.runs.csv_files import csv_text, read_csv, write_csv
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import registry
from workflow_scripts.report.text.escape import one_line
from workflow_scripts.steps import figure, table

MARKUP = "<script>alert(1)</script> [x](javascript:alert(1)) ![y](z) &lt;b&gt; <javascript:a> `a|b` \\| **bold**"
FORMULAS = ["=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "'=1", "'quoted'"]


def some_study(path: Path, monkeypatch: pytest.MonkeyPatch, label: str, noise: str = "noise") -> Path:
    """Two methods, one of which has the label, under a noise with a label."""
    monkeypatch.setitem(METHODS, "fedavg", {"name": "fedavg", "label": label})
    monkeypatch.setitem(NOISES, "sym40", {"kind": "symmetric", "rate": 0.4, "label": noise})
    grid = [{"noises": ["sym40", "random40"], "partitions": ["iid"], "methods": ["fedavg", "sce"]}]
    study = write_study(path, grid=grid, rounds=3, seeds=(0,))
    (path / "study.json").write_text(json.dumps(study))
    return path


def make(root: Path, name: str, spec: dict[str, Any]) -> Path:
    """Make a table or figure with its command, and return the path of its files without the ending."""
    command, out = (figure, "figures") if spec["kind"] in draw.FIGURES else (table, "tables")
    prefix = root / out / name
    shared = ["--runs-list", str(root / "runs.json"), "--out-prefix", str(prefix)]
    assert command.main(["--spec", json.dumps(spec), *shared]) == 0
    return prefix


def test_markdown_shows_texts_and_never_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = some_study(tmp_path, monkeypatch, MARKUP, MARKUP)
    spec = {"kind": "accuracy", "title": f"T\n\n{MARKUP}"}
    text = make(root, "main", spec).with_suffix(".md").read_text(encoding="utf-8")
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert set(re.findall(r"</?(\w+)", html)) <= {
        "p",
        "strong",
        "em",
        "br",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert html.count("<table>") == 1
    rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL) for row in html.split("<tr>")[1:]]
    assert len({len(row) for row in rows}) == 1
    assert MARKUP in [unescape(cell) for row in rows for cell in row]


def test_latex_has_no_empty_line_in_an_argument_and_no_row_begins_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = some_study(tmp_path, monkeypatch, "[A] < B | C > D\n\nE")
    spec = {"kind": "accuracy", "title": "One\n\n two.\r\n\t\r\nThree"}
    lines = make(root, "t", spec).with_suffix(".tex").read_text(encoding="utf-8").split("\n")
    assert r"\caption{One two. Three. Test accuracy" in "\n".join(lines)
    body = lines[lines.index(r"\toprule") : lines.index(r"\bottomrule")]
    assert not [line for line in body if not line.strip()]
    assert all(line.endswith(r"\\") or line.startswith((r"\midrule", r"\toprule")) for line in body)
    assert not [line for line in body if line.startswith(("[", "*"))]  # LaTeX: \\[ and \\* have arguments
    assert [line for line in body if line.startswith(r"{}[A] \textless{} B \textbar{} C \textgreater{} D E & ")]


def test_no_text_cell_of_a_csv_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"method_label": FORMULAS, "method": "fedavg", "difference": -1.5, "class": 3})
    write_csv(tmp_path / "t.csv", frame)
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text(encoding="utf-8").split("\n")))
    for row, text in zip(rows, FORMULAS, strict=True):
        assert row["method_label"] == "'" + one_line(text)
        assert (row["difference"], row["class"], row["method"]) == ("-1.5000", "3", "fedavg")
    back = read_csv(tmp_path / "t.csv")
    assert list(back["method_label"]) == [one_line(text) for text in FORMULAS]
    assert list(back["difference"]) == [-1.5] * len(FORMULAS)
    plain = pd.DataFrame({"method_label": ["FedAvg", "3 - 2", "a=b", "", "−1"]})
    assert csv_text(plain) == 'method_label\nFedAvg\n3 - 2\na=b\n""\n−1\n'


def test_all_csvs_of_a_study_are_harmless_and_its_tables_show_the_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = '=HYPERLINK("http://x")'
    root = some_study(tmp_path, monkeypatch, label, "@noise")
    tables = [kind for kind in registry.TABLES if not registry.find_kind({"kind": kind}).of_a_paper]
    figures = [kind for kind in draw.FIGURES if not draw.find_figure_kind({"kind": kind}).of_a_paper]
    paths = [make(root, kind, {"kind": kind}) for kind in tables]
    texts = [path.with_suffix(".csv").read_text(encoding="utf-8") for path in paths]
    runs = listed_runs(root / "runs.json")
    with style.use_house_style():
        drawn = [draw.draw_figure(runs, {"kind": kind}) for kind in figures if kind != "sweep"]  # nothing is swept
    texts += [csv_text(figure.frame) for figure in drawn]
    study = json.loads((root / "study.json").read_text()) | {"tables": {}, "figures": {}}
    page = study_page(study, listed_runs(root / "runs.json"), root)
    inside = re.search(r'href="data:text/csv[^,]*,([^"]*)" download="runs.csv"', page)
    assert inside is not None
    texts.append(base64.b64decode(inside[1]).decode())
    cells = [cell for text in texts for row in csv.reader(text.splitlines()) for cell in row]
    assert f"'{label}" in cells
    assert "'@noise" in cells
    risky = [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@"))]
    assert [cell for cell in risky if not re.fullmatch(r"-?\d+(\.\d+)?", cell)] == []
    grid = registry.lay_out_table(read_csv(root / "tables/accuracy.csv"), {"kind": "accuracy"})
    assert grid.rows[0].stub == label
    assert grid.levels[0][0][0] == "@noise"


def test_words_of_several_lines_reach_the_page_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = some_study(tmp_path, monkeypatch, "two\nlines")
    prefix = make(root, "f", {"kind": "curves", "title": "A\n\n\x00B"})
    title, caption, alt, _ = style.read_words(f"{prefix}.svg")
    assert title == "A B"
    assert caption.startswith("Test accuracy")
    assert alt.startswith("A B: lines over rounds, 2 methods.")


def test_a_dollar_in_a_label_is_a_dollar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = some_study(tmp_path, monkeypatch, r"$\frac$")
    with style.use_house_style():
        drawing = draw.draw_figure(listed_runs(root / "runs.json"), {"kind": "curves"})
        drawing.figure.draw_without_rendering()
    assert any(text.get_text().endswith(r" $\frac$") for text in drawing.figure.axes[0].get_legend().get_texts())


def test_a_damaged_file_of_printed_numbers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = listed_runs(some_study(tmp_path, monkeypatch, "FedAvg") / "runs.json")
    (tmp_path / "printed.csv").write_bytes(b"dataset,noise\n\xff\xfe,\n")
    with pytest.raises(ArtifactError, match=r"printed\.csv: damaged CSV"):
        registry.build_table(runs, {"kind": "reproduction", "reference": {"file": str(tmp_path / "printed.csv")}})

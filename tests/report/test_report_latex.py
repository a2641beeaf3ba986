"""LaTeX tables fit a paper's page. They are compiled if LaTeX is installed."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml

from workflow_scripts.report.runs.names import describe_spec
from workflow_scripts.report.runs.ranking import AHEAD
from workflow_scripts.report.tables.latex import render_latex
from workflow_scripts.report.text.cells import MISSING, Cell, Grid, GridRow
from workflow_scripts.report.text.footnotes import MARKS, explain_marks

ROOT = Path(__file__).parents[2]

PAPER = r"""\documentclass[10pt,twocolumn]{article}
\usepackage[textwidth=7in,textheight=9in,columnsep=0.2in]{geometry}\usepackage{booktabs,graphicx}
\begin{document}\hbadness=10000
%s
\end{document}
"""


def make_grid(settings: int, methods: int = 6) -> Grid:
    heads = [f"symmetric, no self-flips 0.{place % 10}" for place in range(settings)]
    rows = [
        GridRow(f"Method {m} with a name ‡", [Cell(f"{80 + m}.12 ± {c}.34", m == 2) for c in range(8, 8 + settings)])
        for m in range(methods)
    ]
    rows[1].cells[0] = Cell("diverged (1 of 2)")
    rows[3].cells[0] = Cell("91.00")
    rows.append(GridRow("FedAvg, no noise", [Cell("95.00 ± 0.10")] * settings, "ceiling"))
    levels = [[("digits & more", settings)], [(head, 1) for head in heads]]
    return Grid("Accuracy in %", "n = 2 seeds.", "method", levels, rows, ["Bold: the highest mean of a column."])


def test_means_and_spreads_stand_below_each_other() -> None:
    text = render_latex(make_grid(2), "main")
    assert r"\begin{tabular}{@{}lr@{}lr@{}l@{}}" in text
    assert r"80.12 & \,$\pm$\,8.34 & 80.12 & \,$\pm$\,9.34 \\" in text
    assert r"\best{82.12} & \,$\pm$\,\best{8.34}" in text
    assert r"\multicolumn{2}{c}{diverged (1 of 2)}" in text
    assert r" & 91.00 & & " in text
    assert r"\multicolumn{2}{c}{\shortstack{symmetric, no \\ self-flips~0.0}}" in text
    assert text.count(r"\midrule") == 2  # below the head, and above the row that is set apart
    assert r"\begin{table}" in text
    assert r"\begin{table*}" in render_latex(make_grid(4), "main")


ACCENTS = "äöüßéèêëàâáãåæçíîïñóôòõøœúùûšžłÄÖÜÉÈÅÆÇØŠŽ"  # inputenc knows these
LATEX_CHARACTERS = {*map(chr, range(32, 127)), "\n", *ACCENTS}


def test_latex_knows_every_character() -> None:
    """Check every mark, sign and name in the project's texts, in all parts of a table, without running LaTeX."""
    frame = pd.DataFrame({"marks": ["".join(MARKS)], "epsilon": [0.811]})
    catalogue = yaml.safe_load((ROOT / "config/catalogue.yaml").read_text(encoding="utf-8"))
    noises = yaml.safe_load((ROOT / "config/studies/gallery.yaml").read_text(encoding="utf-8"))
    specs = [spec for file in (catalogue, noises) for key in ("noises", "partitions") for spec in file[key].values()]
    texts = [*explain_marks(frame), AHEAD, *(describe_spec(spec, "") for spec in specs)]
    texts += [f"{MISSING} 10\u202f000 −1", "s₁ σ² β λ σ γ η κ ζ 5° × ≥ √ → Müller"]
    texts += [(ROOT / "workflow_scripts/report/tables/reproduction_layout.py").read_text(encoding="utf-8")]
    text = " ".join(texts)
    assert {"ε", "ρ", "α", "²", "₁", "†"} <= set(text)
    row = GridRow(text, [Cell(text, True), Cell(f"1.0 ± 0.1 {text}")])
    levels = [[(text, 2)], [(text, 1), (text, 1)]]
    grid = Grid(text, text, text, levels, [row, GridRow(text, [], "group")], [text])
    assert sorted(set(render_latex(grid, "main")) - LATEX_CHARACTERS) == []


def tall(methods: int, settings: int = 5) -> Grid:
    """A table beside a paper's numbers: three rows a method, in two groups."""
    short = make_grid(settings, methods)
    rows = []
    for number, row in enumerate(short.rows):
        if number % (methods // 2) == 0 and row.style == "":
            rows.append(GridRow(f"Group {number}", [], "group"))
        rows += [row, *(GridRow(word, row.cells, "printed") for word in ("paper", "verdict"))]
    return dataclasses.replace(short, rows=rows, notes=[f"Claim {n}: " + "words " * 30 for n in range(4)])


def test_no_cell_is_lost() -> None:
    grid = tall(24, 60)
    text = render_latex(grid, "main")
    cells = sum(len(row.cells) for row in grid.rows)
    assert text.count(r"$\pm$") + text.count("diverged (1 of 2)") + text.count("91.00") == cells
    assert text.count(r"\quad verdict") == 25
    assert r"\multicolumn{121}{l}{\emph{Group 0}}" in text
    assert text.count("Claim ") == 4


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
@pytest.mark.parametrize("grid", [make_grid(1), make_grid(20), tall(40), tall(24, 60)], ids=["1", "20", "high", "wide"])
def test_it_compiles_and_nothing_is_too_wide_or_too_high(tmp_path: Path, grid: Grid) -> None:
    (tmp_path / "paper.tex").write_text(PAPER % render_latex(grid, "main"), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 1000

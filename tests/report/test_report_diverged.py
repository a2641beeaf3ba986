"""Runs that diverged to numbers that are not finite are marked everywhere and are part of no mean."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_runs import diverge, write_study
from html_page import Page
from layout_check import problems

from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.pages.run_details import scores_of
from workflow_scripts.report.pages.study_page import study_page
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.provenance import list_limits
from workflow_scripts.report.runs.run import listed_runs, load
from workflow_scripts.report.tables import latex, markdown, registry
from workflow_scripts.report.text.cells import Grid
from workflow_scripts.steps import figure as figure_step
from workflow_scripts.steps import metrics as metrics_step
from workflow_scripts.steps import table as table_step

METHODS = ["fedavg", "sce", "fedcorr", "local"]
GRID = [
    {"noises": ["sym40"], "partitions": ["iid"], "methods": METHODS},
    {"noises": ["random40"], "partitions": ["iid"], "methods": METHODS},
    {"noises": ["clean"], "partitions": ["iid"], "methods": ["fedavg"]},
]
TABLES: dict[str, dict[str, Any]] = {
    "accuracy": {"kind": "accuracy"},
    "last": {"kind": "accuracy", "metric": "last10_mean"},
    "cost": {"kind": "cost"},
    "diagnostics": {"kind": "diagnostics"},
}
FIGURES: list[dict[str, Any]] = [
    *({"kind": kind} for kind in ("curves", "dots", "cost")),
    {"kind": "sweep", "field": "noise.rate"},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedCorr, the best method, diverges in 2 of 3 runs under sym40. Local only (personal models) diverges in all."""
    path = tmp_path_factory.mktemp("study")
    study = write_study(path, grid=GRID, rounds=12, seeds=(0, 1, 2))
    diverge(path / "runs/digits/sym40/iid/fedcorr/seed0", 5)
    diverge(path / "runs/digits/sym40/iid/fedcorr/seed2", 9, dropped=7, best=False)
    for seed in (0, 1, 2):
        diverge(path / f"runs/digits/sym40/iid/local/seed{seed}", seed)  # before training, after round 1, after round 2
    outputs = {"tables": TABLES, "figures": {"curves": {"kind": "curves"}}}
    (path / "study.json").write_text(json.dumps(study | outputs))
    return path


def make_table(root: Path, name: str) -> tuple[pd.DataFrame, Grid]:
    frame = registry.build_table(listed_runs(root / "runs.json"), TABLES[name])
    return frame, registry.lay_out_table(frame, TABLES[name])


def draw_study(root: Path, kind: str, **spec: Any) -> style.Drawn:
    with style.use_house_style():
        return draw.draw_figure(listed_runs(root / "runs.json"), {"kind": kind, **spec})


@pytest.mark.parametrize("name", ["accuracy", "last"])
def test_a_table_says_diverged_and_gives_no_mean_and_no_bold(root: Path, name: str) -> None:
    frame, grid = make_table(root, name)
    rows = {row.stub: row.cells for row in grid.rows}
    assert rows["FedCorr"][0].text == "diverged (2 of 3)"
    assert rows["Local only §"][0].text == "diverged (3 of 3)"
    assert not rows["FedCorr"][0].bold
    assert "±" in rows["FedCorr"][1].text
    assert any(note.startswith("diverged (k of n): ") for note in grid.notes)
    assert "Updates of clients that were not finite numbers, and were left out: FedCorr 7." in grid.notes
    lost = frame[frame["diverged"] > 0]
    assert dict(zip(lost["method"], lost["diverged"], strict=True)) == {"fedcorr": 2, "local": 3}
    assert lost.filter(regex="_(mean|std)$").isna().all(axis=None)
    assert "nan" not in markdown.render_markdown(grid) + latex.render_latex(grid, "x")


def test_tables_without_room_in_their_cells_mark_the_method(root: Path) -> None:
    frame, grid = make_table(root, "diagnostics")
    rows = [row for row in grid.rows if "diverged" in row.stub]
    assert {row.stub for row in rows} == {"FedCorr, diverged (2 of 3)", "Local only §, diverged (3 of 3)"}
    assert {cell.text for row in rows for cell in row.cells} == {"–"}
    assert not any(cell.bold for row in rows for cell in row.cells)
    fedcorr = frame[(frame["diverged"] == 0) & (frame["method"] == "fedcorr")]
    assert fedcorr["suspects_recall_mean"].notna().all()
    assert frame["noise_rate_mean"].notna().all()  # the noise rate does not depend on the training


def test_costs_of_diverged_runs_are_shown_and_marked(root: Path) -> None:
    frame, grid = make_table(root, "cost")
    assert frame["seconds_mean"].notna().all()
    assert "FedCorr, diverged (2 of 6)" in {row.stub for row in grid.rows}


def test_a_study_that_went_well_has_no_such_columns_or_words(tmp_path: Path) -> None:
    write_study(tmp_path, grid=GRID[:1], rounds=3, seeds=(0,))
    for name in TABLES:
        frame, grid = make_table(tmp_path, name)
        assert "diverged" not in frame
        assert "diverged" not in markdown.render_markdown(grid)
    assert "diverged" not in draw_study(tmp_path, "curves").frame


@pytest.mark.parametrize("spec", FIGURES, ids=lambda spec: spec["kind"])
def test_figures_draw_no_mean_with_a_diverged_run_and_say_so(root: Path, spec: dict[str, Any]) -> None:
    drawing = draw_study(root, **spec)
    with style.use_house_style():
        assert problems(drawing.figure) == []
    legends = [*drawing.figure.legends, *(axis.get_legend() for axis in drawing.figure.axes if axis.get_legend())]
    texts = [text for axis in drawing.figure.axes for text in (*axis.texts, *axis.get_yticklabels())]
    texts += [text for legend in legends for text in legend.get_texts()]
    labels = " | ".join(" ".join(text.get_text().split()) for text in texts) + " |"
    expected = ("FedCorr, diverged (2 of 6) |", "Local only (personal models), diverged (3 of 6) |", "SCE |")
    assert [label for label in expected if label not in labels] == []
    assert "A run diverged" in drawing.caption
    assert "Diverged: FedCorr in 2 of 6 runs; Local only in 3 of 6 runs." in drawing.alt
    highest = drawing.alt.split("Highest ")[1]
    assert "40 % of labels wrong: SCE" in highest or "40 % of labels wrong · classes spread evenly: SCE" in highest
    rows = drawing.frame[(drawing.frame["method"] == "fedcorr") & (drawing.frame["noise"] == "sym40")]
    assert set(rows["diverged"]) == {2}
    end = rows["mean"].iloc[-1]
    assert math.isnan(end)
    lines = [line.get_ydata() for axis in drawing.figure.axes for line in axis.get_lines()]
    assert not [y for ys in lines for y in ys if y == 0 and list(ys) not in ([0, 1], [0, 0, 0])]  # FedAvg; beside names


def test_a_line_stops_at_a_cross_before_the_first_run_that_diverges(root: Path) -> None:
    drawing = draw_study(root, "curves", noises=["sym40"], methods=["fedavg", "fedcorr"], metric="last")
    means = drawing.frame[drawing.frame["method"] == "fedcorr"].set_index("round")["mean"]
    stored = [
        pd.read_parquet(root / f"runs/digits/sym40/iid/fedcorr/seed{seed}/metrics.parquet")
        .query("metric == 'accuracy' and client == -1")
        .set_index("round")["value"]
        for seed in (0, 1, 2)
    ]
    assert means.loc[:4].to_numpy() == pytest.approx(100 * np.mean([curve.loc[:4] for curve in stored], 0))
    assert means.loc[5:].isna().all()
    crosses = [line for line in drawing.figure.axes[0].get_lines() if line.get_marker() == "x"]
    assert [line.get_ydata()[0] for line in crosses] == [pytest.approx(means.loc[4])]


def test_metrics_in_git_and_plots_of_dvc_mark_diverged_runs(root: Path, tmp_path: Path) -> None:
    out = {name: tmp_path / name for name in ("out", "headline", "accuracy", "curves")}
    options = [word for name, path in out.items() for word in (f"--{name}", str(path))]
    assert metrics_step.main(["--runs-list", str(root / "runs.json"), *options]) == 0
    metrics, headline = json.loads(out["out"].read_text()), json.loads(out["headline"].read_text())
    assert metrics["fedcorr"]["digits/sym40/iid"] == {"diverged": 2, "runs": 3}
    assert set(metrics["fedcorr"]["digits/random40/iid"]) == {"best", "last", "last10_mean"}
    assert headline["fedcorr"] == "diverged (2 of 6)"
    assert headline["local"] == "diverged (3 of 6)"
    assert 0 < headline["sce"] < 1
    bars = pd.read_csv(out["accuracy"]).set_index("setting").loc["digits/sym40/iid"].set_index("method")
    assert dict(bars["diverged"]) == {"FedAvg": 0, "SCE": 0, "FedCorr": 2, "Local only §": 3}
    assert bars.loc[["FedCorr", "Local only §"], ["best", "last", "last10_mean"]].isna().all(axis=None)
    assert bars.loc[["FedAvg", "SCE"], "best"].notna().all()
    curves = pd.read_csv(out["curves"])
    assert set(curves["setting"]) == {"digits/sym40/iid", "digits/random40/iid"}
    lines = curves[curves["setting"] == "digits/sym40/iid"].groupby("method")["round"].max()
    last_rounds = {"FedCorr, diverged (2 of 3)": 4, "SCE": 12, "FedAvg": 12, "FedAvg, no noise": 12}
    assert dict(lines) == last_rounds  # local has no mean in any round
    end = curves.query("setting == 'digits/sym40/iid' and method == 'SCE'")["drawn"].iloc[-1]
    assert end == pytest.approx(bars.loc["SCE", "last10_mean"], abs=1e-4)
    assert curves["start"].nunique() == 1


def test_the_page_marks_diverged_runs_in_tables_runs_and_notes(root: Path) -> None:
    shared = ["--runs-list", str(root / "runs.json")]
    study = json.loads((root / "study.json").read_text())
    for folder, make in (("tables", table_step), ("figures", figure_step)):
        for name, spec in study[folder].items():
            prefix = ["--out-prefix", str(root / folder / name)]
            assert make.main(["--spec", json.dumps(spec), *shared, *prefix]) == 0
    page = Page(study_page(study, listed_runs(root / "runs.json"), root))
    assert "Diverged: FedCorr in 2 of 6 runs; Local only in 3 of 6 runs. Their outputs" in page.text
    assert "Updates of clients that were not finite numbers were left out: FedCorr in 1 of 6 runs." in page.text
    assert page.text.count("diverged (2 of 3)") >= 2
    assert "nan" not in page.text.lower().split()
    assert "FedCorr40 % of labels wrong0divergeddivergeddiverged" in page.text  # a row of the table of runs


def test_table_notes_and_details_mention_a_run_at_chance(tmp_path: Path) -> None:
    write_study(tmp_path, grid=GRID[:1], rounds=3, seeds=(0, 1))
    file = tmp_path / "runs/digits/sym40/iid/sce/seed1/summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"at_chance": True, "left_out": 1234}))
    frame, grid = make_table(tmp_path, "accuracy")
    assert frame.set_index("method")["at_chance"]["sce"] == 1
    assert "At chance after the last round: SCE in 1 of 2 runs." in grid.notes
    runs = load(listed_runs(tmp_path / "runs.json"))
    (limit,) = [line for line in list_limits({"tables": {}}, runs) if line.startswith("At chance")]
    assert "SCE in 1 of 2 runs" in limit
    assert "Damaged images were left out: 1,234 of digits." in list_limits({"tables": {}}, runs)
    scores = [dict(scores_of(run))["last round"] for run in runs]
    assert sum(score.endswith("%, at chance") for score in scores) == 1


def test_diverged_runs_are_recognised(root: Path) -> None:
    runs = [run for run in load(listed_runs(root / "runs.json")) if run.diverged]
    assert {(run.listed.method, run.listed.seed) for run in runs} == {
        *(("local", seed) for seed in (0, 1, 2)),
        *(("fedcorr", seed) for seed in (0, 2)),
    }
    assert frames.tabulate_results(runs)[["best", "last", "last10_mean", "round0"]].isna().all(axis=None)

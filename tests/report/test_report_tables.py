"""Tables agree with the runs: their numbers, the best in bold, the ceiling apart, the same bytes every time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_runs import FINAL_ACCURACY, METHODS, NOISES, write_study

from fednoise_core.io import ArtifactError
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.report.pages.headline import make_headline
from workflow_scripts.report.runs.csv_files import read_csv, write_csv
from workflow_scripts.report.runs.frames import tabulate_results
from workflow_scripts.report.runs.run import listed_runs, load
from workflow_scripts.report.tables import markdown, registry
from workflow_scripts.steps import table
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
GRID = [
    {
        "noises": ["sym40"],
        "partitions": ["openset-uniform", "iid"],
        "methods": ["fedavg", "coteaching-oracle", "local"],
    },
    {"noises": ["random40"], "partitions": ["iid"], "methods": ["fedavg", "local"]},
    {"noises": ["clean"], "partitions": ["openset-uniform", "iid"], "methods": ["fedavg"]},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_study(path, grid=GRID, rounds=12, seeds=(0, 1, 2))
    return path


def frame_of(root: Path, **spec: Any) -> pd.DataFrame:
    return registry.build_table(listed_runs(root / "runs.json"), {"kind": "accuracy", **spec})


def scores(root: Path, method: str, noise: str, partition: str, key: str) -> np.ndarray:
    folders = sorted((root / "runs" / "digits" / noise / partition / method).iterdir())
    return np.array([100 * json.loads((f / "summary.json").read_text())["accuracy"][key] for f in folders])


def test_mean_and_sample_deviation_over_seeds(root: Path) -> None:
    frame = frame_of(root, metric="last")
    row = frame.query("method == 'local' and noise == 'random40'").iloc[0]
    values = scores(root, "local", "random40", "iid", "last")
    first = scores(root, "local", "random40", "iid", "round0")
    assert row["seeds"] == 3
    assert row["last_mean"] == pytest.approx(sum(values) / 3)
    assert row["last_std"] == pytest.approx((sum((values - sum(values) / 3) ** 2) / 2) ** 0.5)  # n - 1, not n
    assert row["gain_mean"] == pytest.approx(sum(values - first) / 3)
    assert {"best_mean", "last10_mean_mean", "round0_mean"} <= set(frame.columns)


def test_the_best_method_is_bold_and_the_ceiling_never(root: Path) -> None:
    frame = frame_of(root)
    frame.loc[frame["noise"] == "clean", "last10_mean_mean"] = 99.9
    layout = registry.lay_out_table(frame, {"kind": "accuracy"})
    rows = {row.stub: row for row in layout.rows}
    assert list(rows) == ["FedAvg", "Co-teaching †", "Local only §", "FedAvg, no noise"]
    assert not any(cell.bold for cell in rows["Co-teaching †"].cells)  # best, but with the true rate
    bold = [[cell.bold for cell in rows[name].cells] for name in ("FedAvg", "Local only §")]
    assert bold == [[True] * 3, [False] * 3]  # local models are far below
    assert "Excluded from this comparison: the row without noise, †." in layout.notes[0]
    assert any(note.startswith("† was told the true noise rate") for note in layout.notes)
    assert any(note.startswith("§ the mean over personal models") for note in layout.notes)
    assert rows["Co-teaching †"].cells[2].text == "–"
    assert rows["FedAvg, no noise"].style == "ceiling"
    assert not any(cell.bold for cell in rows["FedAvg, no noise"].cells)
    assert [cell.text[:4] for cell in rows["FedAvg, no noise"].cells[:3]] == [
        "99.9"
    ] * 3  # iid stands under both noises


def test_a_method_with_the_true_rate_of_a_setting_is_marked_there_and_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "guess", {"name": "coteaching", "label": "Guess", "forget_rate": 0.4})
    monkeypatch.setitem(NOISES, "sym20", {"kind": "symmetric", "rate": 0.2})
    monkeypatch.setitem(FINAL_ACCURACY, "guess", 0.999)
    grid = [{"noises": ["sym40", "sym20"], "partitions": ["iid"], "methods": ["guess", "fedavg", "local"]}]
    write_study(tmp_path, grid=grid, rounds=3, seeds=(0, 1, 2, 3))
    frame = frame_of(tmp_path)
    assert list(frame[frame["as_told"] > 0]["noise"]) == ["sym40"]
    layout = registry.lay_out_table(frame, {"kind": "accuracy"})
    marked, unmarked = next(row for row in layout.rows if row.stub == "Guess").cells[:2]
    assert (marked.bold, unmarked.bold) == (False, True)
    assert marked.text.endswith(" †")
    assert "†" not in unmarked.text
    note = "The noise rate that Guess assumes is the true one in “40 % of labels wrong”."
    assert f"{note} So results there are not compared." in layout.notes
    results = tabulate_results(load(listed_runs(tmp_path / "runs.json")))
    first = make_headline(results, "fedavg")
    assert [row.methods for row in first.rows if row.setting.noise == "sym40"] == [["FedAvg"]]


def test_planned_runs_say_which_methods_assume_the_true_rate() -> None:
    noises = {
        "others": {"kind": "symmetric", "rate": 0.4},
        "all": {"kind": "symmetric", "rate": 0.4, "inclusive": True},
    }
    guess = {"name": "coteaching", "forget_rate": 0.36}
    methods = {"guess": guess, "told": guess | {"forget_rate": "oracle_nominal"}, "fedmixcon": {"name": "fedmixcon"}}
    block = {"datasets": ["digits"], "noises": list(noises), "partitions": ["iid"], "methods": ["fedavg", *methods]}
    overlay = {"noises": noises, "methods": methods, "grid": [block], "tables": {}, "figures": {}, "seeds": [0]}
    config = {**read_yaml(ROOT / "config/config.yaml"), "scale": "smoke", "overlay": overlay, "studies": ["gallery"]}
    runs = Study(Project(config, ROOT), "gallery").runs
    pairs = {(run.method, run.noise) for run in runs if run.row["as_told"]}
    assert pairs == {("guess", "all"), ("fedmixcon", "others")}  # 0.4 is its default; of 0.4 inclusive 0.36 are wrong


def test_a_cell_with_fewer_seeds_than_the_table_shows_their_number(root: Path) -> None:
    frame = frame_of(root, kind="diagnostics", noises=["sym40"])
    complete = registry.lay_out_table(frame, {"kind": "diagnostics"})
    assert not any("(n = " in cell.text for row in complete.rows for cell in row.cells)
    frame.loc[frame["method"] == "coteaching-oracle", "suspects_precision_n"] = 1
    layout = registry.lay_out_table(frame, {"kind": "diagnostics"})
    assert any("(n = 1)" in cell.text for row in layout.rows for cell in row.cells)
    assert any(note.startswith("(n = k): only k of the seeds") for note in layout.notes)


def test_heads_span_and_constant_parts_go_to_the_caption(root: Path) -> None:
    layout = registry.lay_out_table(frame_of(root), {"kind": "accuracy"})
    assert layout.levels == [
        [("40 % of labels wrong", 2), ("40 % of labels wrong, mix-ups vary by class", 1)],
        [
            ("clients lack classes (equal shares)", 1),
            ("classes spread evenly", 1),
            ("classes spread evenly", 1),
        ],
    ]
    assert "n = 3 seeds" in layout.caption
    assert layout.caption.endswith("All on digits.")


def test_one_seed_has_no_spread(root: Path) -> None:
    layout = registry.lay_out_table(frame_of(root, seeds=[1]), {"kind": "accuracy"})
    assert "±" not in markdown.render_markdown(layout).split("|", 1)[1]
    assert "one seed, so no spread" in layout.caption


def test_diagnostics_leave_out_methods_without_values(root: Path) -> None:
    layout = registry.lay_out_table(frame_of(root, kind="diagnostics", noises=["sym40"]), {"kind": "diagnostics"})
    assert {row.stub for row in layout.rows if row.style == ""} == {"Co-teaching †"}
    assert (
        layout.rows[0].stub
        == "digits · 40 % of labels wrong · clients lack classes (equal shares): realised noise rate 0.404"
    )


def test_diagnostics_leave_out_settings_without_wrong_labels(root: Path) -> None:
    frame = frame_of(root, kind="diagnostics").assign(suspects_precision_mean=0.0)  # all methods name suspects
    frame.loc[frame["noise"] == "clean", "noise_rate_mean"] = 0.0
    layout = registry.lay_out_table(frame, {"kind": "diagnostics"})
    assert not [row.stub for row in layout.rows if "no noise" in row.stub]
    alone = registry.lay_out_table(frame[frame["noise"] == "clean"], {"kind": "diagnostics"})
    assert [row.stub for row in alone.rows if row.style == ""]


def test_unknown_clean_labels_read_unknown(tmp_path: Path) -> None:
    grid = [{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg", "fedcorr"]}]
    write_study(tmp_path, grid=grid, rounds=12, clean_known=False)
    layout = registry.lay_out_table(frame_of(tmp_path, kind="diagnostics"), {"kind": "diagnostics"})
    assert layout.rows == []
    assert "unknown: nobody knows the clean labels of digits." in layout.notes
    assert layout.notes[-1] in markdown.render_markdown(layout)


def test_cost_counts_both_ways_and_names_sizes(root: Path, tmp_path: Path) -> None:
    frame = frame_of(root, kind="cost")
    row = frame.query("method == 'fedavg'").iloc[0]
    assert row["up_mb_mean"] == pytest.approx(12 * 0.4)
    assert row["runs"] == 15
    assert row["cpu_seconds_mean"] == pytest.approx(0.97 * row["seconds_mean"])
    write_study(tmp_path, grid=[{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedmd"]}], rounds=12)
    layout = registry.lay_out_table(frame_of(tmp_path, kind="cost"), {"kind": "cost"})
    assert layout.rows[0].cells[0].text == "4\u202f240 / 9\u202f930"
    file, *_ = tmp_path.rglob("cost.json")
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"device": "NVIDIA H100", "seconds": 1e9}))
    mixed = frame_of(tmp_path, kind="cost")
    assert (mixed["seconds_mean"] < 1e6).all()
    assert "NVIDIA" not in mixed["device"].iloc[0]
    notes = registry.lay_out_table(mixed, {"kind": "cost"}).notes
    assert "Time and memory leave out 1 run on another kind of device." in notes
    file.write_text(json.dumps(stored))
    for file in tmp_path.rglob("cost.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"executor": "workers"}))
    (by_workers,) = registry.lay_out_table(frame_of(tmp_path, kind="cost"), {"kind": "cost"}).rows
    assert sum(cell.text == "–" for cell in by_workers.cells) == 1 + sum(c.text == "–" for c in layout.rows[0].cells)


def test_ids_survive_the_csv(root: Path, tmp_path: Path) -> None:
    frame = frame_of(root)
    frame["noise"] = frame["noise"].replace({"clean": "none", "sym40": "040"})
    write_csv(tmp_path / "t.csv", frame)
    back = read_csv(tmp_path / "t.csv")
    assert list(back["noise"]) == list(frame["noise"])
    assert back["best_mean"].to_numpy() == pytest.approx(frame["best_mean"].to_numpy(), abs=1e-4)
    (tmp_path / "t.csv").write_text("dataset,best_mean\ndigits,eighty\n")
    with pytest.raises(ArtifactError, match=r"t\.csv: column best_mean"):
        read_csv(tmp_path / "t.csv")


def test_a_note_on_several_versions_survives_the_csv(tmp_path: Path) -> None:
    write_study(tmp_path, grid=[{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg"]}], rounds=2)
    file, *_ = tmp_path.rglob("spec.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"versions": "numpy 9.9.9"}))
    write_csv(tmp_path / "t.csv", frame_of(tmp_path))
    (note,) = [
        x for x in registry.lay_out_table(read_csv(tmp_path / "t.csv"), {"kind": "accuracy"}).notes if "9.9.9" in x
    ]
    assert note.startswith("Made with several versions")


def test_the_command_writes_the_same_bytes_again(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--spec", '{"kind": "accuracy"}', "--runs-list", str(root / "runs.json")]
    for place in ("a", "b"):
        assert table.main([*arguments, "--out-prefix", str(tmp_path / place / "main")]) == 0
    for ending in ("csv", "md", "tex"):
        assert (tmp_path / "a" / f"main.{ending}").read_bytes() == (tmp_path / "b" / f"main.{ending}").read_bytes()
    capsys.readouterr()
    assert table.main(["--spec", '{"kind": "pie"}', *arguments[2:], "--out-prefix", str(tmp_path / "d")]) == 2
    assert "table.kind: unknown table 'pie'" in capsys.readouterr().err
    assert not (tmp_path / "d.csv").exists()

"""Tuned tables pick by validation accuracy and say what they picked; the sweep figure shows a method's values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from report import fake_runs
from report.fake_runs import write_study
from report.layout_check import problems

from fednoise_core.io import ArtifactError, SpecError, write_json
from fednoise_core.report import figures, layout, render, style, tables
from fednoise_core.report.csv_files import read_csv, write_csv
from fednoise_core.report.runs import listed_runs

MU = ("0", "0.01", "0.1", "1")
GRID = [{"noises": ["sym40", "random40"], "partitions": ["iid"], "methods": ["fedavg", *(f"prox@mu={m}" for m in MU)]}]
VALID = {  # setting -> mu -> by seed; test accuracy knows nothing of it
    "sym40": {"0": (0.5, 0.5), "0.01": (0.9, 0.1), "0.1": (0.6, 0.6), "1": (0.4, 0.4)},
    "random40": {"0": (0.2, 0.2), "0.01": (0.8, 0.7), "0.1": (0.6, 0.6), "1": (0.4, 0.4)},
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for mu in MU:
        spec = {"name": "fedprox", "label": f"FedProx, mu {mu}", "mu": float(mu)}
        monkeypatch.setitem(fake_runs.METHODS, f"prox@mu={mu}", spec)
        monkeypatch.setitem(fake_runs.LEVEL, f"prox@mu={mu}", {"0": 0.97, "0.01": 0.8, "0.1": 0.85, "1": 0.7}[mu])
    write_study(tmp_path, grid=GRID, rounds=12)
    for noise, found in VALID.items():
        for mu, values in found.items():
            for seed, value in enumerate(values):
                told(tmp_path, noise, mu, seed, valid_accuracy=value)
    return tmp_path


def told(root: Path, noise: str, mu: str, seed: int, **keys: Any) -> dict[str, Any]:
    file = root / f"runs/digits/{noise}/iid/prox@mu={mu}/seed{seed}/summary.json"
    summary = json.loads(file.read_text())
    summary |= keys
    write_json(file, summary)
    return summary


def table(root: Path, **spec: Any) -> Any:
    return tables.build(listed_runs(root / "runs.json"), {"kind": "accuracy", "tuned": True, **spec})


def test_the_variant_with_the_best_mean_on_validation_labels_is_shown(root: Path) -> None:
    frame = table(root)
    rows = {(row["noise"], row["method"]): row for row in frame.to_dict("records")}
    assert set(rows) == {(noise, method) for noise in VALID for method in ("fedavg", "prox")}
    assert rows["sym40", "prox"]["variant"] == "prox@mu=0.1"  # 0.01 has the best seed, 0 the best test accuracy
    assert rows["random40", "prox"]["variant"] == "prox@mu=0.01"
    assert rows["random40", "prox"]["valid_mean"] == pytest.approx(75)
    assert rows["sym40", "prox"]["method_label"] == "FedProx"
    plain = tables.build(listed_runs(root / "runs.json"), {"kind": "accuracy"})
    chosen = plain.query("noise == 'sym40' and method == 'prox@mu=0.1'").iloc[0]
    assert rows["sym40", "prox"]["best_mean"] == chosen["best_mean"]
    assert len(plain) == 10
    assert "variant" not in plain


def test_the_table_says_which(root: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", table(root))
    made = layout.grid(read_csv(tmp_path / "t.csv"), {"kind": "accuracy", "tuned": True})
    assert [row.stub for row in made.rows] == ["FedAvg", "FedProx"]
    (note,) = [note for note in made.notes if "validation" in note]
    assert re.search(r"FedProx: mu 0\.1 on .*symmetric 0\.4.*, mu 0\.01 on .*random 0\.4", note)
    assert "FedProx: mu 0.1" in render.markdown(made)
    one = table(root, noises=["sym40"], methods=["prox"])
    assert layout.grid(one, {"kind": "accuracy"}).notes[0].endswith("FedProx: mu 0.1.")  # alone, so nothing is bold


def test_a_variant_of_which_a_run_diverged_is_not_picked(root: Path) -> None:
    told(root, "sym40", "0.1", 1, valid_accuracy=None)
    picked = table(root).query("noise == 'sym40' and method == 'prox'")["variant"]
    assert list(picked) == ["prox@mu=0"]  # equal to 0.01, and before it
    for mu in MU:
        told(root, "sym40", mu, 0, valid_accuracy=None)
    assert list(table(root).query("noise == 'sym40' and method == 'prox'")["variant"]) == ["prox@mu=0"]


def test_a_run_without_a_validation_split_is_refused(root: Path) -> None:
    file = root / "runs/digits/sym40/iid/prox@mu=1/seed1/summary.json"
    write_json(file, {k: v for k, v in json.loads(file.read_text()).items() if k != "valid_accuracy"})
    with pytest.raises(ArtifactError, match=r"prox@mu=1/seed1/summary.json: has no 'valid_accuracy'.*`validation`"):
        table(root)
    assert len(table(root, methods=["fedavg"])) == 2  # nothing to choose


def drawn(root: Path, spec: Mapping[str, Any]) -> style.Drawn:
    with style.styled():
        return figures.draw(listed_runs(root / "runs.json"), {"kind": "sweep", **spec})


def test_the_figure_has_every_value_and_a_place_for_zero(root: Path) -> None:
    made = drawn(root, {"metric": "last"})
    assert problems(made.figure) == []
    axis = made.figure.axes[0]
    assert axis.get_xscale() == "symlog"
    assert axis.get_xlabel() == "mu" or made.figure.axes[-1].get_xlabel() == "mu"
    line = next(bars.lines[0] for bars in axis.containers if bars.get_label() == "FedProx")
    plain = tables.build(listed_runs(root / "runs.json"), {"kind": "accuracy", "metric": "last"})
    mine = plain[(plain["noise"] == "sym40") & plain["method"].str.startswith("prox")]
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == pytest.approx(
        {float(m.split("=")[1]): v for m, v in zip(mine["method"], mine["last_mean"], strict=True)}
    )
    flat = next(line for line in axis.get_lines() if line.get_label() == "FedAvg")
    assert len(set(flat.get_ydata())) == 1
    assert "Dashed: a method without this setting." in made.caption
    assert sorted(set(made.frame["value"])) == ["", *MU]


def test_the_axis_is_logarithmic_where_it_fits(root: Path) -> None:
    scale = {
        ("0.01", "0.1", "1"): "log",
        ("0.1", "1"): "log",
        ("0", "1"): "linear",
        ("0", "0.1"): "linear",
    }
    for values, wanted in scale.items():
        made = drawn(root, {"methods": [f"prox@mu={m}" for m in values], "noises": ["sym40"]})
        assert made.figure.axes[0].get_xscale() == wanted, values
        assert problems(made.figure) == []


def test_a_diverged_variant_is_a_gap_that_the_caption_names(root: Path) -> None:
    fake_runs.diverge(root / "runs/digits/sym40/iid/prox@mu=0.1/seed1", 4)
    made = drawn(root, {"noises": ["sym40"]})
    line = next(bars.lines[0] for bars in made.figure.axes[0].containers if bars.get_label() == "FedProx")
    assert [math.isnan(y) for y in line.get_ydata()] == [False, False, True, False]
    assert "A run diverged" in made.caption
    assert "FedProx, mu 0.1 in 1 of 2 runs" in made.alt
    for folder in root.glob("runs/digits/random40/*/*/*"):
        fake_runs.diverge(folder, 0)
    assert problems(drawn(root, {"noises": ["random40"]}).figure) == []


def test_the_lines_of_a_sweep_have_their_marks(root: Path) -> None:
    for noise in VALID:
        for mu, seeds in VALID[noise].items():
            for seed in range(len(seeds)):
                told(root, noise, mu, seed, oracle_rate=True)
    with style.styled():
        made = figures.draw(listed_runs(root / "runs.json"), {"kind": "sweep"})
    labels = [bars.get_label() for bars in made.figure.axes[0].containers]
    assert "FedProx †" in labels
    assert "FedProx" not in labels


def test_a_figure_without_variants_is_refused(root: Path) -> None:
    with pytest.raises(SpecError, match="none of its methods has a `sweep`"):
        drawn(root, {"methods": ["fedavg"]})
    with pytest.raises(SpecError, match="no method sweeps 'q'; swept: mu"):
        drawn(root, {"field": "q"})

"""The sweep figure shows a method's values."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fake_runs
import pytest
from fake_runs import write_study
from layout_check import problems

from fednoise_core.io import SpecError, write_json
from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import registry

MU = ("0", "0.01", "0.1", "1")
GRID = [{"noises": ["sym40", "random40"], "partitions": ["iid"], "methods": ["fedavg", *(f"prox@mu={m}" for m in MU)]}]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for mu in MU:
        spec = {"name": "fedprox", "label": f"FedProx, mu {mu}", "mu": float(mu)}
        monkeypatch.setitem(fake_runs.METHODS, f"prox@mu={mu}", spec)
        monkeypatch.setitem(
            fake_runs.FINAL_ACCURACY, f"prox@mu={mu}", {"0": 0.97, "0.01": 0.8, "0.1": 0.85, "1": 0.7}[mu]
        )
    write_study(tmp_path, grid=GRID, rounds=12)
    return tmp_path


def draw_sweep(root: Path, spec: Mapping[str, Any]) -> style.Drawn:
    with style.use_house_style():
        return draw.draw_figure(listed_runs(root / "runs.json"), {"kind": "sweep", **spec})


def test_the_figure_has_every_value_and_a_place_for_zero(root: Path) -> None:
    drawing = draw_sweep(root, {"metric": "last"})
    assert problems(drawing.figure) == []
    axis = drawing.figure.axes[0]
    assert axis.get_xscale() == "symlog"
    assert axis.get_xlabel() == "μ" or drawing.figure.axes[-1].get_xlabel() == "μ"
    line = next(bars.lines[0] for bars in axis.containers if bars.get_label() == "FedProx")
    plain = registry.build_table(listed_runs(root / "runs.json"), {"kind": "accuracy", "metric": "last"})
    variants = plain[(plain["noise"] == "sym40") & plain["method"].str.startswith("prox")]
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == pytest.approx(
        {float(m.split("=")[1]): v for m, v in zip(variants["method"], variants["last_mean"], strict=True)}
    )
    flat = next(line for line in axis.get_lines() if line.get_label() == "FedAvg")
    assert len(set(flat.get_ydata())) == 1
    assert "A level line is a method without this setting." in drawing.caption
    assert sorted(set(drawing.frame["value"])) == ["", *MU]


def test_the_axis_is_logarithmic_where_it_fits(root: Path) -> None:
    scale = {
        ("0.01", "0.1", "1"): "log",
        ("0.1", "1"): "log",
        ("0", "1"): "linear",
        ("0", "0.1"): "linear",
    }
    for values, expected in scale.items():
        drawing = draw_sweep(root, {"methods": [f"prox@mu={m}" for m in values], "noises": ["sym40"]})
        assert drawing.figure.axes[0].get_xscale() == expected, values
        assert problems(drawing.figure) == []


def test_a_diverged_variant_is_a_gap_that_the_caption_names(root: Path) -> None:
    fake_runs.diverge(root / "runs/digits/sym40/iid/prox@mu=0.1/seed1", 4)
    drawing = draw_sweep(root, {"noises": ["sym40"]})
    line = next(bars.lines[0] for bars in drawing.figure.axes[0].containers if bars.get_label() == "FedProx")
    assert [math.isnan(y) for y in line.get_ydata()] == [False, False, True, False]
    assert "A run diverged" in drawing.caption
    assert "FedProx, mu 0.1 in 1 of 2 runs" in drawing.alt
    for folder in root.glob("runs/digits/random40/*/*/*"):
        fake_runs.diverge(folder, 0)
    assert problems(draw_sweep(root, {"noises": ["random40"]}).figure) == []


def test_the_lines_of_a_sweep_have_their_marks(root: Path) -> None:
    for file in root.glob("runs/digits/*/iid/prox@*/*/summary.json"):
        write_json(file, json.loads(file.read_text()) | {"oracle_rate": True})
    with style.use_house_style():
        drawing = draw.draw_figure(listed_runs(root / "runs.json"), {"kind": "sweep"})
    labels = [bars.get_label() for bars in drawing.figure.axes[0].containers]
    assert "FedProx (told the noise rate)" in labels
    assert "FedProx" not in labels


def test_a_figure_without_variants_is_refused(root: Path) -> None:
    with pytest.raises(SpecError, match="expected a method with a `sweep`, got none"):
        draw_sweep(root, {"methods": ["fedavg"]})
    with pytest.raises(SpecError, match="no method sweeps 'q'; swept: mu"):
        draw_sweep(root, {"field": "q"})
